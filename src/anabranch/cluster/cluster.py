"""Control plane of a node: what it knows of the cluster, and every change to it.

`image` is read without waiting.  A change writes a document to the metadata store, waits until the
image shows it (so subscribers have seen it too: a topic's logs are open when its creation is
answered), and returns.  Documents are the truth; the image follows them, whoever wrote them.

Changes of one topic take turns, and so do topics whose names would collide; changes of different
topics go to the store together and share its sync.  Nothing here opens a log: whoever serves
partitions subscribes.

Subscribers are called on the event loop as (old, new) and must not raise.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random
from uuid import UUID

import msgspec

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    Conflict,
    Exists,
    Fenced,
    NotFound,
    Unavailable,
    UnknownTopic,
    UnknownTopicId,
)
from anabranch.base.ids import BrokerId, TopicId, TopicName, id_text
from anabranch.base.turns import Turns
from anabranch.cluster import change_lines
from anabranch.cluster.builder import states_of, topic_image
from anabranch.cluster.controller import Controller
from anabranch.cluster.departure import Departure
from anabranch.cluster.elector import Rules
from anabranch.cluster.identity import random_id
from anabranch.cluster.image_watcher import ImageWatcher, Subscriber
from anabranch.cluster.non_persistent import NonPersistentTopics
from anabranch.cluster.registration import Registration
from anabranch.cluster.tenants import Tenants, found_namespaces
from anabranch.cluster.topics import (
    NewTopic,
    TopicDefaults,
    check_name_is_free,
    place_more_partitions,
    place_new_topic,
)
from anabranch.meta import paths
from anabranch.meta.documents import (
    ClusterDocument,
    ConfigDocument,
    ProducerIdsDocument,
    TopicDocument,
    decode,
    encode,
)
from anabranch.meta.image import BrokerImage, ClusterImage, Overrides, TopicImage, collision_key
from anabranch.meta.policies import NO_TOPIC_POLICIES, TopicPolicies
from anabranch.meta.store import MUST_NOT_EXIST, Delete, MetadataStore

log = logging.getLogger(__name__)

PRODUCER_IDS_PER_BLOCK = 1000
_MAX_PRODUCER_ID = (1 << 63) - 1

ChangeOverrides = Callable[[Overrides], Mapping[str, str]]
ChangePolicies = Callable[[TopicPolicies], TopicPolicies]


class Cluster:
    def __init__(
        self,
        store: MetadataStore,
        watcher: ImageWatcher,
        node_id: BrokerId,
        clock: Clock,
        chance: Random,
        defaults: TopicDefaults,
        validate_topic_config: Callable[[Mapping[str, str]], None],
        rules: Rules | None = None,
    ) -> None:
        self._store = store
        self._watcher = watcher
        self._clock = clock
        self._chance = chance
        self._defaults = defaults
        self._validate_topic_config = validate_topic_config
        self._turns = Turns()
        self.registration = Registration(store, watcher, chance)
        self.controller = Controller(store, watcher, node_id, rules)
        self._departure = Departure(store, watcher, self.registration, self.controller, node_id)
        self.tenants = Tenants(store, watcher, self._turns)
        self.non_persistent = NonPersistentTopics(store, watcher, clock, self.tenants, self._turns)

    @classmethod
    async def open(
        cls,
        store: MetadataStore,
        node_id: BrokerId,
        clock: Clock,
        chance: Random,
        defaults: TopicDefaults,
        validate_topic_config: Callable[[Mapping[str, str]], None],
        name: str = "standalone",
        rules: Rules | None = None,
    ) -> "Cluster":
        """Join the cluster that `store` describes, or found it, under a `name`, if it describes none.

        `validate_topic_config` raises InvalidConfig for overrides that no topic may have.
        """
        cluster_id = await _cluster_id(store, clock, chance)
        watcher = ImageWatcher(store, ClusterImage(cluster_id=cluster_id))
        await watcher.start()
        await found_namespaces(store, watcher, name)
        return cls(store, watcher, node_id, clock, chance, defaults, validate_topic_config, rules)

    @property
    def image(self) -> ClusterImage:
        return self._watcher.image

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Be told of every new image from now on.  What comes back ends it."""
        return self._watcher.subscribe(subscriber)

    def when_read_anew(self, callback: Callable[[], None]) -> None:
        """Call back whenever changes may have been missed, and the image shows all that is there again."""
        self._watcher.on_read_anew = callback

    async def run(self) -> None:
        """Follow what other nodes change, forever.  Belongs in the node's task group."""
        await asyncio.gather(self._watcher.run(), self.registration.run(), self.controller.run())

    async def look_for(self, *names: TopicName) -> None:
        """Return once the image shows what there is by these names, or something newer."""
        await self._watcher.refresh(*map(paths.topic, names))

    # --- topics

    async def create_topic(self, new: NewTopic, validate_only: bool = False) -> TopicImage:
        async with self._turn_of(new.name), self.tenants.made_in(new.name.in_namespace):
            if new.name in self.image.topics:  # another broker may just have deleted it
                await self._watcher.refresh(paths.topic(new.name))
            check_name_is_free(self.image, new.name, for_pulsar=new.for_pulsar)
            self._validate_topic_config(new.config)
            start = self._chance.randrange(max(1, len(self.image.brokers)))
            replicas = place_new_topic(self.image, new, self._defaults, start)
            id = TopicId(random_id(self._chance))
            document = TopicDocument(
                id,
                replicas,
                dict(new.config),
                self._clock.now_ms(),
                partitioned=new.is_partitioned,
                properties=dict(new.properties),
            )
            if not validate_only:
                path = paths.topic(new.name)
                await self._store.put(path, encode(document), MUST_NOT_EXIST)
                log.info("%s: %s", new.name.kafka, change_lines.made(document, new.asked_by))
                await self._watcher.refresh(path)
            return self.image.topics_by_id.get(id) or topic_image(new.name, document)

    async def is_gone(self, kafka_name: str, partition: int) -> bool:
        """Whether there is no such partition, by what the store says now."""
        name = TopicName.from_kafka(kafka_name)
        if (topic := self.image.topics.get(name)) is None or partition >= topic.partition_count:
            await self._watcher.refresh(paths.topic(name))
        topic = self.image.topics.get(name)
        return topic is None or partition >= topic.partition_count

    async def delete_topic(self, target: TopicName | TopicId, asked_by: str = "") -> TopicImage:
        """Delete a topic; the last that was known of it."""
        async with self._turn_of(self._find(target).name):
            while (deleted := await self._delete(topic := self._find(target))) is None:
                await self._watcher.refresh(paths.topic(topic.name))
            line = change_lines.deleted(topic.id, topic.partition_count, asked_by)
            log.info("%s: %s", topic.name.kafka, line)
            await self._watcher.refresh(*deleted)
            return topic

    async def add_partitions(
        self,
        name: TopicName,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        """Bring a topic to `total` partitions; `assignments` are the replicas of each new one."""

        def grown(document: TopicDocument) -> TopicDocument:
            states = states_of(self.image.partition_states, document.id, len(document.replicas))
            topic = topic_image(name, document, states)  # that of the image may have fewer partitions
            added = place_more_partitions(self.image, topic, total, assignments)
            return msgspec.structs.replace(document, replicas=document.replicas + added)

        return await self._change_topic(name, grown, validate_only)

    async def replace_topic_config(self, name: TopicName, overrides: Mapping[str, str]) -> TopicImage:
        return await self.alter_topic_config(name, lambda _: overrides)

    async def alter_topic_config(self, name: TopicName, change: ChangeOverrides) -> TopicImage:
        """Replace a topic's overrides by what `change` makes of them, with nobody in between."""

        def changed(document: TopicDocument) -> TopicDocument:
            overrides = dict(change(document.config))
            self._validate_topic_config(overrides)
            return msgspec.structs.replace(document, config=overrides)

        return await self._change_topic(name, changed, validate_only=False)

    async def alter_topic_policies(self, name: TopicName, change: ChangePolicies) -> TopicImage:
        """Replace a topic's policies by what `change` makes of them; without any it has its namespace's."""

        def changed(document: TopicDocument) -> TopicDocument:
            policies = change(document.policies or NO_TOPIC_POLICIES)
            kept = None if policies == NO_TOPIC_POLICIES else policies
            return msgspec.structs.replace(document, policies=kept)

        return await self._change_topic(name, changed, validate_only=False)

    async def alter_topic_properties(self, name: TopicName, change: ChangeOverrides) -> TopicImage:
        def changed(document: TopicDocument) -> TopicDocument:
            return msgspec.structs.replace(document, properties=dict(change(document.properties)))

        return await self._change_topic(name, changed, validate_only=False)

    async def store_topic_epoch(self, name: TopicName, partition: int, epoch: int) -> None:
        """A producer has a partition alone, for the `epoch`th time.  Fenced if a later one had it."""

        def changed(document: TopicDocument) -> TopicDocument:
            if document.epochs.get(partition, -1) > epoch:
                raise Fenced(f"epoch {epoch} of topic '{name.kafka}' is over")
            return msgspec.structs.replace(document, epochs=document.epochs | {partition: epoch})

        await self._change_topic(name, changed, validate_only=False)

    async def terminate(self, name: TopicName, partition: int, end: int) -> TopicImage:
        """A partition takes no more messages, for good; it ends at offset `end`, or where it ended before."""

        def changed(document: TopicDocument) -> TopicDocument:
            return msgspec.structs.replace(document, terminated={partition: end} | document.terminated)

        return await self._change_topic(name, changed, validate_only=False)

    # --- other configuration

    async def replace_broker_config(self, id: BrokerId | None, overrides: Mapping[str, str]) -> None:
        """Replace the overrides of one broker, or those of every broker if `id` is None."""
        await self.alter_broker_config(id, lambda _: overrides)

    async def alter_broker_config(self, id: BrokerId | None, change: ChangeOverrides) -> None:
        subject = "all brokers" if id is None else f"broker {id}"
        await self._alter_overrides(paths.broker_config(id), change, subject, change_lines.names)

    async def replace_client_metrics(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace a client metrics subscription; without overrides there is none."""
        await self.alter_client_metrics(name, lambda _: overrides)

    async def alter_client_metrics(self, name: str, change: ChangeOverrides) -> None:
        await self._alter_overrides(paths.client_metrics(name), change, f"client metrics {name}")

    async def alter_group_config(self, group_id: str, change: ChangeOverrides) -> None:
        await self._alter_overrides(paths.group_config(group_id), change, f"group {group_id}")

    # --- brokers and producers

    async def register_broker(self, broker: BrokerImage, former: Collection[str] = ()) -> None:
        """As `Registration.register`; then it may be the controller, too."""
        await self.registration.register(broker, former)
        await self.controller.claim()
        await self._watcher.refresh(paths.CONTROLLER)

    async def depart(self, most_s: float) -> None:
        """As `Departure.hand_over`."""
        await self._departure.hand_over(most_s)

    async def deregister(self) -> None:
        """As `Departure.deregister`."""
        await self._departure.deregister()

    async def allocate_producer_ids(self) -> range:
        """Producer ids that nobody has had or will get, whatever crashes."""
        async with self._turns.of(paths.PRODUCER_IDS):
            while (taken := await self._take_producer_ids()) is None:
                continue  # another broker took a block
            return taken

    # --- how it is done

    async def _take_producer_ids(self) -> range | None:
        value = await self._store.get(paths.PRODUCER_IDS)
        version, first = MUST_NOT_EXIST, 0
        if value is not None:
            version, first = value.version, decode(value.data, ProducerIdsDocument, paths.PRODUCER_IDS).next
        end = first + PRODUCER_IDS_PER_BLOCK
        if end > _MAX_PRODUCER_ID:
            raise Unavailable("all producer ids are used up")
        was_put = await self._was_put(paths.PRODUCER_IDS, encode(ProducerIdsDocument(end)), version)
        return range(first, end) if was_put else None

    async def _change_topic(
        self, name: TopicName, change: Callable[[TopicDocument], TopicDocument], validate_only: bool
    ) -> TopicImage:
        async with self._turn_of(name):
            path = paths.topic(name)
            while True:
                value = await self._store.get(path)
                if value is None:
                    raise UnknownTopic(f"there is no topic '{name.kafka}'")
                before = decode(value.data, TopicDocument, path)
                document = change(before)
                if validate_only:
                    states = states_of(self.image.partition_states, document.id, len(document.replicas))
                    return topic_image(name, document, states, self.image.topics.get(name))
                if await self._was_put(path, encode(document), value.version):
                    break
            for line in change_lines.topic_changes(before, document):
                log.info("%s: %s", name.kafka, line)
            await self._watcher.refresh(path)
            return self._find(document.id)

    async def _delete(self, topic: TopicImage) -> list[str] | None:
        """The nodes that went with it; None if another broker has changed or deleted it meanwhile."""
        path = paths.topic(topic.name)
        value = await self._store.get(path)
        if value is None or decode(value.data, TopicDocument, path).id != topic.id:
            return None
        states = await self._written_states(topic)
        try:
            await self._store.multi([Delete(path, value.version), *map(Delete, states)])
        except (Conflict, NotFound):
            return None
        # No election comes after the multi, but one may have come before it and after the look.
        late = set(await self._written_states(topic))
        for state in late:
            await self._store.delete(state)
        return [path, *states, *late]

    async def _alter_overrides(
        self,
        path: str,
        change: ChangeOverrides,
        subject: str,
        describe: Callable[[Overrides, Overrides], str] = change_lines.overrides,
    ) -> None:
        async with self._turns.of(path):
            while True:
                value = await self._store.get(path)
                before = {} if value is None else decode(value.data, ConfigDocument, path).overrides
                overrides = dict(change(before))
                data = encode(ConfigDocument(overrides)) if overrides else None
                if await self._was_put(path, data, MUST_NOT_EXIST if value is None else value.version):
                    break
            if overrides != before:
                log.info("%s: configuration changed: %s", subject, describe(before, overrides))
            await self._watcher.refresh(path)

    async def _was_put(self, path: str, data: bytes | None, version: int) -> bool:
        """Replace, or delete without data, what was read at `version`.  False if it has changed since."""
        try:
            if data is not None:
                await self._store.put(path, data, version)
            elif version != MUST_NOT_EXIST:
                await self._store.delete(path, version)
        except (Conflict, Exists, NotFound):
            return False
        return True

    async def _written_states(self, topic: TopicImage) -> list[str]:
        pages = paths.pages_of(len(topic.partitions))
        found = [paths.partition_states(topic.id, page) for page in pages]
        return [path for path in found if await self._store.get(path) is not None]

    def _find(self, target: TopicName | TopicId) -> TopicImage:
        if isinstance(target, UUID):
            topic = self.image.topics_by_id.get(TopicId(target))
            if topic is None:
                raise UnknownTopicId(f"there is no topic with id {id_text(target)}")
            return topic
        topic = self.image.topics.get(target)
        if topic is None:
            raise UnknownTopic(f"there is no topic '{target.kafka}'")
        return topic

    def _turn_of(self, name: TopicName) -> AbstractAsyncContextManager[None]:
        return self._turns.of(collision_key(name) or name)


async def _cluster_id(store: MetadataStore, clock: Clock, chance: Random) -> str:
    value = await store.get(paths.CLUSTER)
    if value is None:
        founded = ClusterDocument(id_text(random_id(chance)), clock.now_ms())
        try:
            await store.put(paths.CLUSTER, encode(founded), MUST_NOT_EXIST)
        except Exists:
            return await _cluster_id(store, clock, chance)  # another node was first
        return founded.cluster_id
    return decode(value.data, ClusterDocument, paths.CLUSTER).cluster_id
