"""Durable subscriptions on the coordinators: positions with the group's, the rest in a topic of its own.

    Positions ─> StoredPositions ─> SubscriptionCalls ─┬─ GroupCoordinator     __consumer_offsets
                                                       └─ SubscriptionStates   __subscription_state
    CommittedOffsets, DeleteGroups ─> SubscribedGroups ─> which offsets are subscriptions', which moved
    retention ─> hold ─> how far the slowest subscription of a partition has got

A subscription is there if its document and its position are.  The document is written first and the
position removed first, so what a crash leaves of a creation or deletion is no subscription.

Both may be kept by other brokers.  What is only looked at without waiting is known here alone then: what was
acknowledged ahead is not kept from Kafka's members, who get it again, and a group that is moved back has it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    AnabranchError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    Corrupt,
    NotCoordinator,
    NotOwner,
    UnknownTopic,
)
from anabranch.base.ids import TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.group_topics import GroupTopics
from anabranch.cluster.subscription_calls import (
    ANY_EPOCH,
    Claim,
    Committed,
    DeletePosition,
    DeleteState,
    DropPendingAcks,
    ReadPendingAcks,
    ReadSnapshot,
    ReadStates,
    Stamp,
    State,
    SubscriptionCalls,
    WriteChunks,
    WriteDocument,
    WritePositions,
    WriteSnapshot,
    Written,
)
from anabranch.cluster.subscription_floors import Floors, committed_of
from anabranch.cluster.topics import NewTopic
from anabranch.groups.config import GroupConfig
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.parts import Topics
from anabranch.groups.positions import OWN, Position, has_readers
from anabranch.groups.records import CommittedOffset, OffsetKey
from anabranch.groups.shard import GroupShard
from anabranch.groups.subscription_shard import StateChanges, SubscriptionState
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC, SubscriptionStates
from anabranch.groups.transaction_ids import TxnId
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

    def __init__(
        self,
        states: SubscriptionStates,
        epoch_of: Callable[[str, int], int] = lambda topic, partition: ANY_EPOCH,
    ) -> None:
        """`epoch_of`: the leader epoch of a partition, as far as this broker knows."""
        self._states = states
        self._epoch_of = epoch_of
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

    def is_led_in(self, topic: str, partition: int, epoch: int) -> bool:
        return self._epoch_of(topic, partition) == epoch

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
        calls: SubscriptionCalls,
        topics: Topics,
        epoch_of: Callable[[str, int], int] = lambda topic, partition: ANY_EPOCH,
    ) -> None:
        """`epoch_of`: the epoch in which this broker leads a partition.  NotOwner if it does not."""
        self._calls = calls
        self._groups = calls.kept.groups
        self._states = calls.kept.states
        self._topics = topics
        self._epoch_of = epoch_of
        self._epochs: dict[tuple[str, int], int] = {}  # in which partitions were loaded here
        self._attached: set[CursorName] = set()
        self._held: dict[tuple[str, int], int] = {}  # where `hold` last was when all of it was safe
        self._floors = Floors(calls, self._position_of)

    def _epoch(self, topic: str, partition: int) -> int:
        """A topic that has left still writes in the epoch of which it was."""
        return self._epochs.get((topic, partition), ANY_EPOCH)

    def _stamp(self, name: CursorName, number: int) -> Stamp:
        return Stamp(self._epoch(name.topic, name.partition), number)

    async def _in_group(self, name: CursorName, call: Callable[[OffsetKey, Stamp], Any]) -> Any:
        """The answer of who keeps the position of `name`."""
        index = self._groups.shard_of(name.subscription)
        return await self._calls.ask(
            OFFSETS_TOPIC, index, lambda number: call(OffsetKey(*name), self._stamp(name, number))
        )

    async def _in_state(self, name: CursorName, call: Callable[[OffsetKey, Stamp], Any]) -> Any:
        """The answer of who keeps the rest of it."""
        index = self._states.shard_of(name.subscription)
        return await self._calls.ask(
            SUBSCRIPTION_TOPIC, index, lambda number: call(OffsetKey(*name), self._stamp(name, number))
        )

    # --- positions

    def shard_of(self, subscription: str) -> int:
        return 0 if self._topics.by_name(OFFSETS_TOPIC) is None else self._groups.shard_of(subscription)

    async def of_topic(self, topic: str, partition: int) -> dict[str, StoredSubscription]:
        epoch = self._epochs[topic, partition] = self._epoch_of(topic, partition)
        states: dict[str, State] = {}
        for found in await self._calls.ask_each(
            SUBSCRIPTION_TOPIC,
            self._states.shards,
            lambda shards, _: ReadStates(topic, partition, epoch, set(shards)),
        ):
            states.update(found)
        committed = await self._committed([OffsetKey(group, topic, partition) for group in states], epoch)
        return {
            name.group_id: _stored(name, states[name.group_id], found)
            for name, found in committed.items()
            if self._position_of(name, found) is not None
        }

    async def _committed(self, names: Sequence[OffsetKey], epoch: int) -> dict[OffsetKey, Committed]:
        if self._topics.by_name(OFFSETS_TOPIC) is None:
            return {}
        return await committed_of(self._calls, names, epoch)

    def _position_of(self, name: OffsetKey, found: Committed) -> int | None:
        """A committed offset, if it is of this topic and not of one that had its name before."""
        topic = self._topics.by_name(name.topic)
        if found.offset < 0 or topic is None or found.topic_id not in (None, topic.topic_id):
            return None
        return found.offset

    async def position(self, name: CursorName) -> int | None:
        if self._topics.by_name(OFFSETS_TOPIC) is None:
            return None
        key = OffsetKey(*name)
        found = (await self._committed([key], self._epoch(name.topic, name.partition)))[key]
        if found.is_read:
            raise _in_use(key)
        return self._position_of(key, found)

    async def claim(self, name: CursorName) -> None:
        if not self._calls.are_all_here and self._topics.by_name(OFFSETS_TOPIC) is not None:
            self._attached.add(name)
            await self._in_group(name, lambda key, stamp: Claim(key, stamp, True))

    async def release(self, name: CursorName) -> None:
        if name in self._attached:
            self._attached.discard(name)
            await self._in_group(name, lambda key, stamp: Claim(key, stamp, False))

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
        for index, together in shards.items():
            for batch in _batches(together):
                answer = await self._calls.ask(OFFSETS_TOPIC, index, partial(self._written, batch))
                refused.update((CursorName(*name), _in_use(name)) for name in answer)
        return refused

    def _written(self, batch: list[Position], number: int) -> WritePositions:
        for name, offset, _ in batch:
            self._floors.wrote(name, offset)
        names = [CursorName(*position.name) for position in batch]
        return WritePositions(
            [
                Written(position, self._stamp(name, number), name in self._attached)
                for name, position in zip(names, batch, strict=True)
            ]
        )

    def hold(self, topic: str, partition: int) -> int | None:
        """The least position of the partition's subscriptions: what is there from it on is not too old.

        None if it has none.  0, which holds everything, while they are not known.  One that is not safe yet
        lets go of nothing: it may be lost.  Where other brokers keep some, they are asked.
        """
        if not self._calls.are_all_here:
            try:
                epoch = self._epoch_of(topic, partition)
            except (NotOwner, UnknownTopic):
                return self._floors.of(topic, partition, None)
            return self._floors.of(topic, partition, epoch)
        place = (topic, partition)
        try:
            subscriptions = list(self._states.known_of_topic(topic, partition))
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
        await self._states.ensure_topic()
        data = msgspec.json.encode(document)
        await self._in_state(name, lambda key, stamp: WriteDocument(key, stamp, data, new))

    async def write_chunks(self, changes: Sequence[ChunkChanges]) -> None:
        shards: dict[int, list[ChunkChanges]] = {}
        for change in changes:
            shards.setdefault(self._states.shard_of(change.name.subscription), []).append(change)
        for index, together in shards.items():
            await self._calls.ask(SUBSCRIPTION_TOPIC, index, partial(self._changed, together))

    def _changed(self, changes: Sequence[ChunkChanges], number: int) -> WriteChunks:
        return WriteChunks(
            [
                (StateChanges(OffsetKey(*change.name), *change[1:]), self._stamp(change.name, number))
                for change in changes
            ]
        )

    async def delete(self, name: CursorName) -> None:
        self._attached.discard(name)
        if self._topics.by_name(OFFSETS_TOPIC) is not None:
            await self._in_group(name, DeletePosition)
        await self._in_state(name, DeleteState)

    async def snapshot_of(self, topic: str, partition: int) -> bytes | None:
        if self._topics.by_name(SUBSCRIPTION_TOPIC) is None:
            return None
        epoch, topic_id = self._epoch(topic, partition), self._topic_id(topic)
        index = self._states.shard_of_place((topic, partition))
        call = ReadSnapshot(topic, partition, epoch, topic_id)
        found: bytes | None = await self._calls.ask(SUBSCRIPTION_TOPIC, index, lambda _: call)
        return found

    async def write_snapshot(self, topic: str, partition: int, snapshot: bytes | None) -> None:
        await self._states.ensure_topic()
        epoch, topic_id = self._epoch(topic, partition), self._topic_id(topic)
        index = self._states.shard_of_place((topic, partition))
        await self._calls.ask(
            SUBSCRIPTION_TOPIC,
            index,
            lambda number: WriteSnapshot(topic, partition, Stamp(epoch, number), topic_id, snapshot),
        )

    async def pending_acks(self, name: CursorName) -> dict[TxnId, dict[int, bytes]]:
        """What open transactions acknowledge of a subscription, by the number of the request."""
        if self._topics.by_name(SUBSCRIPTION_TOPIC) is None:
            return {}
        found = await self._in_state(name, lambda key, _: ReadPendingAcks(key))
        return {TxnId(*one.txn): one.acks for one in found}

    async def drop_pending_acks(self, name: CursorName, txn: TxnId) -> None:
        await self._in_state(name, lambda key, _: DropPendingAcks(key, txn))

    def topics_deleted(self, names: Sequence[str]) -> None:
        gone = set(names)
        self._epochs = {place: epoch for place, epoch in self._epochs.items() if place[0] not in gone}
        self._attached = {name for name in self._attached if name.topic not in gone}
        self._floors.topics_deleted(gone)


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
    cluster: Cluster, host: PartitionHost, calls: SubscriptionCalls, seen: SubscribedGroups
) -> tuple[Positions, StoredPositions]:
    """The positions of this broker's topics, and where they are stored; `seen` learns who is attached."""

    def bounds(topic: str, index: int) -> tuple[int, int]:
        partition = host.partition(topic, index)
        # A compacted view has what retention took from the log, and a cursor may stand there.
        return 0 if partition.view is not None else partition.log_start, partition.log_end

    def image_changed(change: ImageChange) -> None:
        deleted = [topic.name.kafka for topic in change.deleted]
        for topic in deleted:
            made.topic_deleted(topic)
        if deleted:
            calls.kept.topics_deleted(deleted)
            stored.topics_deleted(deleted)

    stored = StoredPositions(calls, GroupTopics(lambda: cluster.image), host.leader_epoch)
    made = Positions(stored, stored, bounds)
    seen.positions = made
    seen.ahead = stored.ahead
    cluster.subscribe(image_changed)
    return made, stored


def leader_epoch_of(cluster: Cluster, topic: str, partition: int) -> int:
    """As far as this broker knows; `ANY_EPOCH` if there is no such partition."""
    found = cluster.image.topics_by_kafka_name.get(topic)
    if found is None or partition >= found.partition_count:
        return ANY_EPOCH
    return found.partitions[partition].leader_epoch


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


def _stored(
    name: OffsetKey, state: SubscriptionState | State, committed: CommittedOffset | Committed
) -> StoredSubscription:
    assert state.document is not None
    try:
        document = _documents.decode(state.document)
    except msgspec.MsgspecError as error:  # where it has got to matters more than its properties
        log.error("%s: its document cannot be read, its properties are lost: %s", _subject(name), error)
        document = SubscriptionDocument(created_ms=0)
    is_own = committed.is_own if isinstance(committed, Committed) else committed.metadata == OWN
    return StoredSubscription(document, max(0, committed.offset), is_own, state.floor, dict(state.chunks))


def _subject(name: OffsetKey) -> str:
    """A subscription on a partition, for a line of the log."""
    return f"{name.topic}-{name.partition}, subscription {name.group_id}"


def _in_use(name: OffsetKey) -> GroupInUse:
    return GroupInUse(
        f"members of the Kafka group {name.group_id!r} read topic {name.topic!r}; "
        "use another subscription name, or stop them first"
    )
