"""From documents of the metadata store to an image of the cluster, at start-up and ever after.

A builder starts from an image, takes documents one by one, and gives the next image:

    builder = ImageBuilder(image)
    builder.apply("/topics/public/default/orders", data)
    builder.apply("/brokers/2", None)                       # it is gone
    image = builder.build()

It costs a copy of each table and the work for what was applied.  A topic's document comes before
the state of its partitions.  State of a topic that is not there was left behind by a deletion and
means nothing; so does a path that is no document's.
"""

from collections.abc import Hashable
from typing import TypeVar
from uuid import UUID

import msgspec

from anabranch.base.errors import Corrupt
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.cluster.image import (
    NO_BROKER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    collision_key,
)
from anabranch.cluster.topics import is_internal
from anabranch.meta import paths
from anabranch.meta.documents import (
    BrokerDocument,
    ConfigDocument,
    ControllerDocument,
    PartitionDocument,
    TopicDocument,
    decode,
)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ImageBuilder:
    """`changed` tells whether what was applied made a difference."""

    def __init__(self, image: ClusterImage) -> None:
        self.changed = False
        self._controller_id = image.controller_id
        self._brokers = dict(image.brokers)
        self._topics = dict(image.topics)
        self._topics_by_kafka_name = dict(image.topics_by_kafka_name)
        self._topics_by_id = dict(image.topics_by_id)
        self._topics_by_collision_key = dict(image.topics_by_collision_key)
        self._broker_configs = dict(image.broker_configs)
        self._default_broker_config = image.default_broker_config
        self._client_metrics = dict(image.client_metrics)
        self._cluster_id = image.cluster_id

    def build(self) -> ClusterImage:
        return ClusterImage(
            cluster_id=self._cluster_id,
            controller_id=self._controller_id,
            brokers=self._brokers,
            topics=self._topics,
            topics_by_kafka_name=self._topics_by_kafka_name,
            topics_by_id=self._topics_by_id,
            topics_by_collision_key=self._topics_by_collision_key,
            broker_configs=self._broker_configs,
            default_broker_config=self._default_broker_config,
            client_metrics=self._client_metrics,
        )

    def apply(self, path: str, data: bytes | None) -> None:
        """The node at `path` holds `data`, or is gone."""
        try:
            self._apply(path, data)
        except ValueError as error:
            raise Corrupt(f"metadata node {path} has a name that no document of ours has") from error

    def _apply(self, path: str, data: bytes | None) -> None:
        match path.split("/")[1:]:
            case ["topics", tenant, namespace, local]:
                self._topic(TopicName(tenant, namespace, local), path, data)
            case ["partitions", topic_id, index]:
                self._partition(TopicId(UUID(topic_id)), int(index), path, data)
            case ["brokers", id]:
                self._broker(BrokerId(int(id)), path, data)
            case ["controller"]:
                self._controller(path, data)
            case ["config", "brokers", id]:
                self._broker_config(id, path, data)
            case ["config", "client-metrics", name]:
                self._client_metric(paths.client_metrics_name(name), path, data)

    def _topic(self, name: TopicName, path: str, data: bytes | None) -> None:
        before = self._topics.get(name)
        after = None if data is None else topic_image(name, decode(data, TopicDocument, path), before)
        if before is not None and (after is None or after.id != before.id):
            self._set(self._topics_by_id, before.id, None)
        self._set(self._topics, name, after)
        self._set(self._topics_by_kafka_name, name.kafka, after)
        if after is not None:
            self._set(self._topics_by_id, after.id, after)
        key = collision_key(name)
        if key is not None:
            self._set(self._topics_by_collision_key, key, None if after is None else name)

    def _partition(self, topic_id: TopicId, index: int, path: str, data: bytes | None) -> None:
        topic = self._topics_by_id.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            return
        partition = _new_partition(index, topic.partitions[index].replicas)
        if data is not None:
            state = decode(data, PartitionDocument, path)
            partition = msgspec.structs.replace(partition, **msgspec.structs.asdict(state))
        partitions = (*topic.partitions[:index], partition, *topic.partitions[index + 1 :])
        topic = msgspec.structs.replace(topic, partitions=partitions)
        self._set(self._topics, topic.name, topic)
        self._set(self._topics_by_kafka_name, topic.name.kafka, topic)
        self._set(self._topics_by_id, topic.id, topic)

    def _broker(self, id: BrokerId, path: str, data: bytes | None) -> None:
        if data is None:
            self._set(self._brokers, id, None)
            return
        document = decode(data, BrokerDocument, path)
        self._set(self._brokers, id, BrokerImage(id, document.host, document.port, document.rack))

    def _controller(self, path: str, data: bytes | None) -> None:
        id = NO_BROKER if data is None else decode(data, ControllerDocument, path).broker
        self.changed |= id != self._controller_id
        self._controller_id = id

    def _broker_config(self, id: str, path: str, data: bytes | None) -> None:
        overrides = None if data is None else decode(data, ConfigDocument, path).overrides
        if path != paths.DEFAULT_BROKER_CONFIG:
            self._set(self._broker_configs, BrokerId(int(id)), overrides)
            return
        self.changed |= (overrides or {}) != self._default_broker_config
        self._default_broker_config = overrides or {}

    def _client_metric(self, name: str, path: str, data: bytes | None) -> None:
        overrides = None if data is None else decode(data, ConfigDocument, path).overrides
        self._set(self._client_metrics, name, overrides)

    def _set(self, table: dict[Key, Value], key: Key, value: Value | None) -> None:
        """Put `value` into a table, or take the key out.  What is equal stays the object it was."""
        if value == table.get(key):
            return
        self.changed = True
        if value is None:
            del table[key]
        else:
            table[key] = value


def topic_image(name: TopicName, document: TopicDocument, before: TopicImage | None = None) -> TopicImage:
    """What `document` says of a topic, its partitions in the state they had `before`."""
    known = before.partitions if before is not None and before.id == document.id else ()
    return TopicImage(
        name=name,
        id=document.id,
        partitions=tuple(
            known[index]
            if index < len(known) and known[index].replicas == replicas
            else _new_partition(index, replicas)
            for index, replicas in enumerate(document.replicas)
        ),
        config=document.config,
        is_internal=is_internal(name),
    )


def _new_partition(index: int, replicas: tuple[BrokerId, ...]) -> PartitionImage:
    return PartitionImage(index, replicas[0], LeaderEpoch(0), 0, replicas, replicas)
