"""Durable subscriptions on the coordinators: positions with the group's, the rest in a topic of its own.

    Positions ─> StoredPositions ─┬─ GroupCoordinator     __consumer_offsets
                                  └─ SubscriptionStates   __subscription_state
    CommittedOffsets, DeleteGroups ─> SubscribedGroups ─> which offsets are subscriptions', which moved
    retention ─> hold ─> how far the slowest subscription of a partition has got

A subscription is there if its document and its position are.  The document is written first and the
position removed first, so what a crash leaves of a creation or deletion is no subscription.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from uuid import UUID

import msgspec

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    AnabranchError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    Corrupt,
    NotCoordinator,
    UnknownTopic,
)
from anabranch.base.ids import TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.group_topics import GroupTopics
from anabranch.cluster.topics import NewTopic
from anabranch.groups.config import GroupConfig
from anabranch.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from anabranch.groups.effects import Effects, Token
from anabranch.groups.parts import Topics
from anabranch.groups.positions import OWN, Position, commit_positions, delete_position, has_readers
from anabranch.groups.records import CommittedOffset, OffsetKey
from anabranch.groups.shard import GroupShard
from anabranch.groups.subscription_shard import StateChanges, SubscriptionState
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC, SubscriptionStates
from anabranch.meta.image import ImageChange
from anabranch.partition.host import PartitionHost
from anabranch.partition.led_partitions import LedPartitions
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.durable import (
    ChunkChanges,
    CursorName,
    DurableCursor,
    GroupInUse,
    StoredSubscription,
    SubscriptionDocument,
)
from anabranch.subscriptions.positions import Positions

log = logging.getLogger(__name__)

_NOT_KNOWN = (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator)
"""What is said of a shard that has not been read, or is elsewhere."""

_BATCH_BYTES = 256 << 10
_RECORD_BYTES = 100  # an offset and what stands around it, its names apart
_documents = msgspec.json.Decoder(SubscriptionDocument)


class SubscribedGroups:
    """What the group coordinator sees of subscriptions."""

    def __init__(self, states: SubscriptionStates) -> None:
        self._states = states
        self._dropping: set[asyncio.Task[None]] = set()
        self.positions: Positions | None = None
        """Of the topics that are open, once there can be any."""
        self.ahead: Callable[[str, str, int], Cursor | None] = lambda group_id, topic, partition: None

    def has(self, name: OffsetKey, metadata: str) -> bool:
        try:
            return self._states.has(name)
        except NotCoordinator:
            return metadata == OWN
        except _NOT_KNOWN:
            return True

    def is_attached(self, group_id: str, topic: str) -> bool:
        return self.positions is not None and self.positions.is_attached(group_id, topic)

    def is_open(self, group_id: str) -> bool:
        return self.positions is not None and self.positions.is_open(group_id)

    def moved(self, name: OffsetKey, committed: CommittedOffset) -> None:
        if committed.metadata == OWN:
            return
        if self.positions is not None:
            self.positions.moved(CursorName(*name), max(0, committed.offset))
        try:
            state = self._states.find(name)
        except _NOT_KNOWN:
            return
        if state is not None and state.chunks and state.floor is not None and committed.offset < state.floor:
            # For good: when the group comes by again it has read them anew, or is about to.
            drop = StateChanges(name, {}, list(state.chunks), committed.offset)
            task = asyncio.ensure_future(self._drop(drop))
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)

    async def _drop(self, changes: StateChanges) -> None:
        try:
            await self._states.write_chunks([changes])
        except AnabranchError as error:
            log.warning(
                "%s: what was acknowledged ahead could not be dropped: %s", _subject(changes.name), error
            )


class StoredPositions:
    """A `PositionStore` and `SnapshotStore`."""

    def __init__(
        self,
        groups: GroupCoordinator,
        states: SubscriptionStates,
        topics: Topics,
        has_entries: Callable[[str, int], bool],
    ) -> None:
        """`has_entries` tells whether Pulsar producers have written to a partition."""
        self._groups = groups
        self._states = states
        self._topics = topics
        self._has_entries = has_entries
        self._held: dict[tuple[str, int], int] = {}  # where `hold` last was when all of it was safe

    # --- positions

    def shard_of(self, subscription: str) -> int:
        return 0 if self._topics.by_name(OFFSETS_TOPIC) is None else self._groups.shard_of(subscription)

    async def of_topic(self, topic: str, partition: int) -> dict[str, StoredSubscription]:
        found = {}
        for subscription, state in (await self._states.of_topic(topic, partition)).items():
            name = OffsetKey(subscription, topic, partition)
            committed = await self._groups.ask(subscription, partial(self._committed_in, name=name))
            if committed is not None:
                found[subscription] = _stored(name, state, committed)
        return found

    async def position(self, name: CursorName) -> int | None:
        if self._topics.by_name(OFFSETS_TOPIC) is None:
            return None
        key = OffsetKey(*name)

        def seen(shard: GroupShard) -> tuple[bool, CommittedOffset | None]:
            return has_readers(shard, name.subscription, name.topic), self._committed_in(shard, key)

        is_read, committed = await self._groups.ask(name.subscription, seen)
        if is_read:
            raise _in_use(key)
        return None if committed is None else max(0, committed.offset)

    async def write_positions(self, positions: Mapping[CursorName, int]) -> dict[CursorName, AnabranchError]:
        await self._groups.ensure_topic()
        shards: dict[int, list[Position]] = {}
        refused: dict[CursorName, AnabranchError] = {}
        for name, offset in positions.items():
            try:
                position = Position(OffsetKey(*name), offset, self._topic_id(name.topic))
            except UnknownTopic as error:
                refused[name] = error
            else:
                shards.setdefault(self._groups.shard_of(name.subscription), []).append(position)
        for together in shards.values():
            for batch in _batches(together):
                answer = await self._groups.submit(batch[0].name.group_id, partial(_commit, positions=batch))
                refused.update((CursorName(*name), _in_use(name)) for name in answer["refused"])
        return refused

    def hold(self, topic: str, partition: int) -> int | None:
        """The least position of the partition's subscriptions: what is there from it on is not too old.

        None if it has none.  0, which holds everything, while they are not known.  One that is not safe yet
        lets go of nothing: it may be lost.  Where other brokers keep some, what Pulsar producers have written
        is held; the rest is not, or the first subscription would end all retention in the cluster.
        """
        place = (topic, partition)
        try:
            if not self._states.is_all_here and self._has_entries(topic, partition):
                return 0
            subscriptions = list(self._states.here_of_topic(topic, partition))
            positions = [
                committed.offset
                for subscription in subscriptions
                if (committed := self._known(OffsetKey(subscription, topic, partition))) is not None
            ]
            are_safe = all(map(self._groups.is_safe, subscriptions))
        except _NOT_KNOWN:
            return 0
        if not positions:
            self._held.pop(place, None)
            return None
        if are_safe:
            self._held[place] = min(positions)
        return min(self._held.get(place, 0), *positions)

    def ahead(self, group_id: str, topic: str, partition: int) -> Cursor | None:
        """What the subscription of a group's name has acknowledged, if members of the group read the topic.

        None if that is nothing but what lies before its position.
        """
        name = OffsetKey(group_id, topic, partition)
        try:
            state = self._states.find(name)
            if state is None or not state.chunks:
                return None
            shard = self._groups.known(group_id)
        except _NOT_KNOWN:
            return None
        committed = self._committed_in(shard, name)
        if committed is None or not has_readers(shard, group_id, topic):
            return None
        try:
            return DurableCursor(CursorName(*name), _stored(name, state, committed)).cursor
        except Corrupt as error:
            log.warning("%s: what was acknowledged ahead cannot be read: %s", _subject(name), error)
            return None

    def _known(self, name: OffsetKey) -> CommittedOffset | None:
        return self._committed_in(self._groups.known(name.group_id), name)

    def _committed_in(self, shard: GroupShard, name: OffsetKey) -> CommittedOffset | None:
        """The committed offset, if it is of this topic and not of one that had its name before."""
        found = shard.offsets.find(name)
        topic = self._topics.by_name(name.topic)
        if found is None or topic is None or found.topic_id not in (None, topic.topic_id):
            return None
        return found

    def _topic_id(self, topic: str) -> UUID:
        facts = self._topics.by_name(topic)
        if facts is None:
            raise UnknownTopic(f"there is no topic {topic!r}")
        return facts.topic_id

    # --- the rest

    async def write_document(self, name: CursorName, document: SubscriptionDocument, *, new: bool) -> None:
        await self._states.write_document(OffsetKey(*name), msgspec.json.encode(document), new=new)

    async def write_chunks(self, changes: Sequence[ChunkChanges]) -> None:
        shards: dict[int, list[StateChanges]] = {}
        for change in changes:
            index = self._states.shard_of(change.name.subscription)
            shards.setdefault(index, []).append(StateChanges(OffsetKey(*change.name), *change[1:]))
        for together in shards.values():
            await self._states.write_chunks(together)

    async def delete(self, name: CursorName) -> None:
        key = OffsetKey(*name)
        if self._topics.by_name(OFFSETS_TOPIC) is not None:
            await self._groups.submit(
                name.subscription, lambda shard, token, now_ms: delete_position(shard, key, token)
            )
        await self._states.delete(key)

    async def snapshot_of(self, topic: str, partition: int) -> bytes | None:
        return await self._states.snapshot_of((topic, partition), self._topic_id(topic))

    async def write_snapshot(self, topic: str, partition: int, snapshot: bytes | None) -> None:
        await self._states.write_snapshot((topic, partition), self._topic_id(topic), snapshot)


def subscription_states(
    cluster: Cluster, host: PartitionHost, clock: Clock, config: Callable[[], GroupConfig]
) -> SubscriptionStates:
    """The state of subscriptions that this broker keeps, told of topics that are deleted."""
    topics = GroupTopics(lambda: cluster.image)

    async def create_topic() -> None:
        told = config()
        offsets = topics.by_name(OFFSETS_TOPIC)
        await cluster.create_topic(
            NewTopic(
                TopicName.from_kafka(SUBSCRIPTION_TOPIC),
                told.topic_partitions if offsets is None else offsets.num_partitions,
                told.topic_replication_factor,
                config=told.topic_config,
                asked_by="subscriptions",
            )
        )

    states = SubscriptionStates(
        clock,
        topics,
        LedPartitions(host, SUBSCRIPTION_TOPIC),
        create_topic,
    )
    cluster.subscribe(lambda change: states.topics_deleted([topic.name.kafka for topic in change.deleted]))
    return states


def positions(
    cluster: Cluster,
    host: PartitionHost,
    groups: GroupCoordinator,
    states: SubscriptionStates,
    seen: SubscribedGroups,
) -> tuple[Positions, StoredPositions]:
    """The positions of this broker's topics, and where they are stored; `seen` learns who is attached."""

    def bounds(topic: str, index: int) -> tuple[int, int]:
        partition = host.partition(topic, index)
        # A compacted view has what retention took from the log, and a cursor may stand there.
        return 0 if partition.view is not None else partition.log_start, partition.log_end

    def image_changed(change: ImageChange) -> None:
        for topic in change.deleted:
            made.topic_deleted(topic.name.kafka)

    stored = StoredPositions(groups, states, GroupTopics(lambda: cluster.image), host.has_entries)
    made = Positions(stored, stored, bounds)
    seen.positions = made
    seen.ahead = stored.ahead
    cluster.subscribe(image_changed)
    return made, stored


def _commit(shard: GroupShard, token: Token, now_ms: int, positions: list[Position]) -> Effects:
    return commit_positions(shard, positions, token, now_ms)


def _batches(positions: list[Position]) -> Iterator[list[Position]]:
    batch: list[Position] = []
    room = _BATCH_BYTES
    for position in positions:
        size = _RECORD_BYTES + len(position.name.group_id.encode()) + len(position.name.topic.encode())
        if batch and size > room:
            yield batch
            batch, room = [], _BATCH_BYTES
        batch.append(position)
        room -= size
    if batch:
        yield batch


def _stored(name: OffsetKey, state: SubscriptionState, committed: CommittedOffset) -> StoredSubscription:
    assert state.document is not None
    try:
        document = _documents.decode(state.document)
    except msgspec.MsgspecError as error:  # where it has got to matters more than its properties
        log.error("%s: its document cannot be read, its properties are lost: %s", _subject(name), error)
        document = SubscriptionDocument(created_ms=0)
    is_own = committed.metadata == OWN
    return StoredSubscription(document, max(0, committed.offset), is_own, state.floor, dict(state.chunks))


def _subject(name: OffsetKey) -> str:
    """A subscription on a partition, for a line of the log."""
    return f"{name.topic}-{name.partition}, subscription {name.group_id}"


def _in_use(name: OffsetKey) -> GroupInUse:
    return GroupInUse(
        f"members of the Kafka group {name.group_id!r} read topic {name.topic!r}; "
        "use another subscription name, or stop them first"
    )
