"""Image builder: makes the image of the cluster from documents of the metadata store.

A builder starts from an image, takes documents one by one, and gives the next image:

    builder = ImageBuilder(image)
    builder.apply("/topics/public/default/orders", data)
    builder.apply("/brokers/2", None)                       # it is gone
    image = builder.build()

It costs a copy of each table that changes and the work for what was applied.  The image depends on the
documents alone, not on the order in which they came: a partition is what its state says, else what its
topic's document does.  State of a topic that is not there may be of one that comes, or was left behind by a
deletion; it is kept apart and means nothing until then.  A path that is no document's means nothing at all.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.base.errors import Corrupt, Invalid
from anabranch.base.ids import NON_PERSISTENT, BrokerId, Namespace, TopicId, TopicName
from anabranch.base.path_parts import text_of
from anabranch.cluster.partition_states import new_state
from anabranch.cluster.topics import is_internal
from anabranch.meta import paths
from anabranch.meta.documents import (
    BrokerDocument,
    BrokersSeenDocument,
    ConfigDocument,
    ControllerDocument,
    NonPersistentDocument,
    PartitionState,
    PartitionStatesDocument,
    TenantDocument,
    TopicDocument,
    decode,
)
from anabranch.meta.image import (
    NO_BROKER,
    NO_EPOCH,
    NO_NUMBERS,
    NOTHING,
    BrokerImage,
    ClusterImage,
    ImageChange,
    NonPersistentImage,
    PartitionImage,
    TopicChange,
    TopicImage,
    collision_key,
)
from anabranch.meta.policies import NamespacePolicies

_NO_STATES: Mapping[int, PartitionState] = {}


class ImageBuilder:
    """`changed` tells whether what was applied made a difference."""

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self._changed: dict[str, Any] = {}  # fields of the image; tables are copies
        self._touched: dict[TopicId, None] = {}

    @property
    def changed(self) -> bool:
        return bool(self._changed)

    def build(self) -> ClusterImage:
        return msgspec.structs.replace(self._before, **self._changed)

    def change(self) -> ImageChange:
        """The next image, and what became of the topics on the way to it."""
        image = self.build()
        known = [(self._before.topics_by_id.get(id), image.topics_by_id.get(id)) for id in self._touched]
        changes = [TopicChange(before, after) for before, after in known if before is not after]
        changes.sort(key=lambda change: change.after is not None)
        return ImageChange(self._before, image, changes)

    def apply(self, path: str, data: bytes | None, czxid: int = NO_EPOCH) -> None:
        """The node at `path` holds `data`, since it was made at `czxid`, or is gone."""
        try:
            self._apply(path, data, czxid)
        except (ValueError, Invalid) as error:
            raise Corrupt(f"metadata node {path} has a name that no document of ours has") from error

    def _apply(self, path: str, data: bytes | None, czxid: int) -> None:
        match path.split("/")[1:]:
            case ["topics", tenant, namespace, local]:
                self._topic(TopicName(*map(text_of, (tenant, namespace, local))), path, data)
            case ["partitions", page]:
                self._partition_states(*paths.partition_states_page(page), path, data)
            case ["brokers", id]:
                self._broker(BrokerId(int(id)), path, data, czxid)
            case ["controller"]:
                self._controller(path, data)
            case ["controller-brokers"]:
                self._seen_brokers(path, data)
            case ["config", "brokers", id]:
                self._broker_config(id, path, data)
            case ["config", "client-metrics", name]:
                self._overrides("client_metrics", paths.client_metrics_name(name), path, data)
            case ["config", "groups", group_id]:
                self._overrides("group_configs", paths.group_config_id(group_id), path, data)
            case ["tenants", tenant]:
                known = None if data is None else decode(data, TenantDocument, path)
                self._set("tenants", text_of(tenant), known)
            case ["namespaces", tenant, name]:
                policies = None if data is None else decode(data, NamespacePolicies, path)
                self._set("namespaces", Namespace.of(text_of(tenant), text_of(name)), policies)
            case ["non-persistent", tenant, namespace, local]:
                parts = (text_of(tenant), text_of(namespace), text_of(local))
                self._non_persistent_topic(TopicName(*parts, domain=NON_PERSISTENT), path, data)

    def _topic(self, name: TopicName, path: str, data: bytes | None) -> None:
        before = self._table("topics").get(name)
        after = None
        if data is not None:
            document = decode(data, TopicDocument, path)
            states = states_of(self._table("partition_states"), document.id, len(document.replicas))
            after = topic_image(name, document, states, before)
        if before is not None and (after is None or after.id != before.id):
            self._set_topic(before.id, None)
        self._set("topics", name, after)
        self._set("topics_by_kafka_name", name.kafka, after)
        if after is not None:
            self._set_topic(after.id, after)
        key = collision_key(name)
        if key is not None and (after is not None or self._table("topics_by_collision_key").get(key) == name):
            self._set("topics_by_collision_key", key, None if after is None else name)

    def _non_persistent_topic(self, name: TopicName, path: str, data: bytes | None) -> None:
        image = (
            None if data is None else non_persistent_image(name, decode(data, NonPersistentDocument, path))
        )
        self._set("non_persistent", name, image)

    def _partition_states(self, topic_id: TopicId, page: int, path: str, data: bytes | None) -> None:
        states = None if data is None else decode(data, PartitionStatesDocument, path).states
        self._set("partition_states", (topic_id, page), states)
        before: TopicImage | None = self._table("topics_by_id").get(topic_id)
        if before is None:
            return
        known = states_of(self._table("partition_states"), topic_id, len(before.placement))
        partitions = partition_images(before.placement, known, before.partitions)
        after = msgspec.structs.replace(before, partitions=partitions)
        self._set("topics", after.name, after)
        self._set("topics_by_kafka_name", after.name.kafka, after)
        self._set_topic(after.id, after)

    def _broker(self, id: BrokerId, path: str, data: bytes | None, czxid: int) -> None:
        registered = None if data is None else broker_image(id, decode(data, BrokerDocument, path), czxid)
        self._set("brokers", id, registered)

    def _controller(self, path: str, data: bytes | None) -> None:
        told = ControllerDocument(NO_BROKER) if data is None else decode(data, ControllerDocument, path)
        self._replace("controller_id", told.broker)
        self._replace("controller_epoch", told.epoch)

    def _seen_brokers(self, path: str, data: bytes | None) -> None:
        seen = BrokersSeenDocument({}) if data is None else decode(data, BrokersSeenDocument, path)
        known = {id: BrokerImage(id, place.host, place.port, place.rack) for id, place in seen.places.items()}
        self._replace("seen_brokers", known)

    def _broker_config(self, id: str, path: str, data: bytes | None) -> None:
        overrides = None if data is None else decode(data, ConfigDocument, path).overrides
        if path != paths.DEFAULT_BROKER_CONFIG:
            self._set("broker_configs", BrokerId(int(id)), overrides)
            return
        self._replace("default_broker_config", overrides or {})

    def _overrides(self, table: str, name: str, path: str, data: bytes | None) -> None:
        self._set(table, name, None if data is None else decode(data, ConfigDocument, path).overrides)

    def _set_topic(self, id: TopicId, topic: TopicImage | None) -> None:
        self._touched[id] = None
        self._set("topics_by_id", id, topic)

    def _table(self, name: str) -> Mapping[Any, Any]:
        """A table of the image as it is now."""
        table: Mapping[Any, Any] | None = self._changed.get(name)
        return getattr(self._before, name) if table is None else table

    def _set(self, name: str, key: Hashable, value: object) -> None:
        """Put `value` into a table, or take the key out.  What is equal stays the object it was."""
        if value == self._table(name).get(key):
            return
        table = self._changed.get(name)
        if table is None:
            table = self._changed[name] = dict(getattr(self._before, name))
        if value is None:
            del table[key]
        else:
            table[key] = value

    def _replace(self, name: str, value: object) -> None:
        if value != self._changed.get(name, getattr(self._before, name)):
            self._changed[name] = value


def broker_image(id: BrokerId, document: BrokerDocument, epoch: int) -> BrokerImage:
    return BrokerImage(id=id, epoch=epoch, **msgspec.structs.asdict(document))


def states_of(
    pages: Mapping[tuple[TopicId, int], Mapping[int, PartitionState]], id: TopicId, partitions: int
) -> Mapping[int, PartitionState]:
    """What is written of the state of a topic's partitions."""
    if not pages:
        return _NO_STATES
    found = [states for page in paths.pages_of(partitions) if (states := pages.get((id, page)))]
    if len(found) <= 1:
        return found[0] if found else _NO_STATES
    return {index: state for states in found for index, state in states.items()}


def topic_image(
    name: TopicName,
    document: TopicDocument,
    states: Mapping[int, PartitionState] = _NO_STATES,
    before: TopicImage | None = None,
) -> TopicImage:
    """The topic of these documents.  What is equal to `before` is the same object."""
    return TopicImage(
        name=name,
        id=document.id,
        partitions=partition_images(document.replicas, states, () if before is None else before.partitions),
        config=document.config,
        is_internal=is_internal(name),
        created_ms=document.created_ms,
        is_partitioned=document.partitioned,
        policies=document.policies,
        properties=document.properties or NOTHING,
        epochs=document.epochs or NO_NUMBERS,
        terminated=document.terminated or NO_NUMBERS,
        placement=document.replicas,
    )


def partition_images(
    placement: Sequence[tuple[BrokerId, ...]],
    states: Mapping[int, PartitionState],
    before: Sequence[PartitionImage],
) -> tuple[PartitionImage, ...]:
    images = []
    for index, replicas in enumerate(placement):
        known = before[index] if index < len(before) else None
        state = states.get(index)
        if state is not None:
            image = partition_image(index, state)
            images.append(known if known == image else image)
        elif known is not None and _is_as_made(known, replicas):
            images.append(known)
        else:
            images.append(partition_image(index, new_state(replicas)))
    return tuple(images)


def partition_image(index: int, state: PartitionState) -> PartitionImage:
    return PartitionImage(
        index,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.replicas,
        state.isr,
        state.adding,
        state.removing,
    )


def _is_as_made(known: PartitionImage, replicas: tuple[BrokerId, ...]) -> bool:
    """Without making another one: a topic may have thousands, of which one has changed."""
    return (
        not known.partition_epoch
        and not known.leader_epoch
        and known.leader == replicas[0]
        and known.replicas == known.isr == replicas
    )


def non_persistent_image(name: TopicName, document: NonPersistentDocument) -> NonPersistentImage:
    return NonPersistentImage(
        name,
        document.partitions,
        document.partitioned,
        document.created_ms,
        document.policies,
        document.properties or NOTHING,
    )
