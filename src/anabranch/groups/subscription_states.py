"""Subscription coordinator: which shard a durable subscription belongs to, and the way to it.

`__subscription_state` is partitioned like `__consumer_offsets` and by the same hash of the same name; of
several brokers the one that keeps a group's offsets may not be the one that keeps the rest of the
subscription.  Snapshots of producers go by their partition.  The topic is made when it is first needed.

A topic's subscriptions are spread over all shards, so all that are here and were ever written to are read
before the first question about a topic is answered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable, TooLarge
from anabranch.groups.coordinator import partition_for
from anabranch.groups.effects import Answer
from anabranch.groups.internal_topic import InternalTopic
from anabranch.groups.parts import Topics
from anabranch.groups.records import OffsetKey
from anabranch.groups.runtime import Decide, Runtime, Seen
from anabranch.groups.subscription_shard import (
    StateChanges,
    SubscriptionShard,
    SubscriptionState,
    TopicPartition,
)
from anabranch.groups.transaction_ids import TxnId
from anabranch.partition.led_partitions import LedPartitions

SUBSCRIPTION_TOPIC = "__subscription_state"

log = logging.getLogger(__name__)

_BATCH_BYTES = 256 << 10
_MOST_BYTES = 768 << 10  # below the largest message that a topic takes unless told otherwise
_DOCUMENT_BYTES = 64 << 10  # of a subscription, which stays in memory
_RECORD_BYTES = 100  # a key and what stands around it, roughly


class SubscriptionStates:
    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        partitions: LedPartitions,
        create_topic: Callable[[], Awaitable[object]],
    ) -> None:
        # Without a deadline: cursors go by what is kept, and could not tell a record that is late from none.
        self._runtime: Runtime[SubscriptionShard] = Runtime(clock, SubscriptionShard, partitions)
        self._topic = InternalTopic(SUBSCRIPTION_TOPIC, topics, self._runtime, partitions, create_topic)

    # --- as the node lives

    async def load(self) -> None:
        """Read every shard that has something to read, so that nobody has to wait for it later."""
        try:
            await self._load()
        except AnabranchError as error:
            log.warning("%s: cannot be read, tried again when it is asked for: %s", SUBSCRIPTION_TOPIC, error)

    async def _load(self) -> None:
        for index in self._topic.in_use():
            await self._runtime.load(index)

    def elected(self, index: int) -> None:
        """This broker leads partition `index` of the topic from now on."""
        self._topic.elected(index, "subscriptions")

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Forget what was kept for topics that are no more."""
        gone = [name for name in names if name != SUBSCRIPTION_TOPIC]
        if gone:
            self._topic.forget_topics("subscriptions", lambda shard, now_ms: shard.forget_topics(gone))

    def close(self) -> None:
        self._topic.close()

    # --- writing

    async def write_document(self, name: OffsetKey, document: bytes, *, new: bool) -> None:
        _check_size(document, f"the properties of subscription {name.group_id!r}", _DOCUMENT_BYTES)
        await self._submit(
            name.group_id,
            lambda shard, token, now_ms: shard.write_document(token, name, document, new=new),
        )

    async def write_chunks(self, changes: Sequence[StateChanges]) -> None:
        """Those of one shard; in as many batches as it takes, between which others have their turn."""
        for i, batch in enumerate(_batches(changes)):
            if i:
                await asyncio.sleep(0)
            await self._submit(
                batch[0].name.group_id,
                lambda shard, token, now_ms, batch=batch: shard.write_chunks(token, batch),  # type: ignore[misc]
            )

    async def delete(self, name: OffsetKey) -> None:
        await self._submit(name.group_id, lambda shard, token, now_ms: shard.delete(token, name))

    async def write_pending_ack(self, name: OffsetKey, txn: TxnId, number: int, ack: bytes) -> None:
        """`txn` acknowledges something if it commits.  In the log before anything else runs, if the shard is
        loaded: so nobody can end the transaction in between."""
        _check_size(ack, f"the acknowledgement of transaction {txn}")
        await self._submit(
            name.group_id, lambda shard, token, now_ms: shard.write_pending_ack(token, name, txn, number, ack)
        )

    async def drop_pending_acks(self, name: OffsetKey, txn: TxnId) -> None:
        """In as many batches as it takes; if it is cut off the rest goes when it is asked for again."""
        size = _RECORD_BYTES + len(name.group_id.encode()) + len(name.topic.encode())
        most = max(1, _BATCH_BYTES // size)
        left = 1
        while left:
            answer = await self._submit(
                name.group_id,
                lambda shard, token, now_ms: shard.drop_pending_acks(token, name, txn, most),
            )
            left = answer["left"]

    async def write_snapshot(self, place: TopicPartition, topic_id: UUID, snapshot: bytes | None) -> None:
        _check_size(snapshot or b"", f"the snapshot of {place[0]}-{place[1]}")
        await self._submit(
            _name_of(place),
            lambda shard, token, now_ms: shard.write_snapshot(token, place, topic_id, snapshot),
        )

    async def _submit(self, key: str, decide: Decide[SubscriptionShard]) -> Answer:
        await self._topic.ensure()
        return await self._runtime.submit(self.shard_of(key), decide)

    # --- looking

    def shard_of(self, key: str) -> int:
        """0 while there is no topic, and thus nothing in any shard."""
        return partition_for(key, self._topic.num_partitions) if self._topic.exists else 0

    def shard_of_place(self, place: TopicPartition) -> int:
        """Where the snapshot of a partition is."""
        return self.shard_of(_name_of(place))

    @property
    def shards(self) -> range:
        """Of the topic; none while there is no topic."""
        return range(self._topic.num_partitions if self._topic.exists else 0)

    async def ensure_topic(self) -> int:
        """The number of shards; the topic is made if there is none.  CoordinatorNotAvailable until it is."""
        await self._topic.ensure()
        return self._topic.num_partitions

    async def of_shards(
        self, topic: str, partition: int, shards: Iterable[int]
    ) -> dict[str, SubscriptionState]:
        """The subscriptions of a partition in some shards.  NotCoordinator if one of these is elsewhere."""
        found: dict[str, SubscriptionState] = {}
        for index in shards:
            for group_id, state in await self._read(index, lambda shard: shard.of_topic(topic, partition)):
                found[group_id] = state
        return found

    async def names(self, shards: Iterable[int]) -> list[OffsetKey]:
        """Every subscription in some shards; raises as `of_shards`."""
        return [name for index in shards for name in await self._read(index, lambda shard: shard.names())]

    async def _read(self, index: int, read: Callable[[SubscriptionShard], Iterator[Seen]]) -> list[Seen]:
        """What is seen in a shard once that is safe."""
        if index not in self.shards:
            raise CoordinatorNotAvailable(f"shard {index} of {SUBSCRIPTION_TOPIC} is not known here")
        if self._topic.is_unwritten(index):
            return []
        found = list(read(await self._runtime.load(index)))
        if found:
            await self._runtime.settled(index)
        return found

    def known_of_topic(self, topic: str, partition: int) -> dict[str, SubscriptionState]:
        """The subscriptions of a partition.  NotCoordinator or CoordinatorLoading if not all are here."""
        return {
            group_id: state
            for shard in self._topic.all()
            for group_id, state in shard.of_topic(topic, partition)
        }

    def has(self, name: OffsetKey) -> bool:
        """Whether there is such a subscription.  NotCoordinator or CoordinatorLoading if it is not here."""
        return self.find(name) is not None

    def find(self, name: OffsetKey) -> SubscriptionState | None:
        """What is kept of a subscription, if there is one.  Raises as `has`."""
        shard = self._shard(name.group_id)
        return None if shard is None else shard.find(name)

    def _shard(self, key: str) -> SubscriptionShard | None:
        return self._topic.find(self.shard_of(key)) if self._topic.exists else None

    async def pending_acks(self, name: OffsetKey) -> dict[TxnId, dict[int, bytes]]:
        await self._load()
        shard = self._shard(name.group_id)
        if shard is None:
            return {}
        found = shard.pending_acks(name)
        await self._runtime.settled(self.shard_of(name.group_id))
        return found

    async def acknowledged_by(self, index: int, producer_id: int) -> list[tuple[OffsetKey, TxnId]]:
        """Subscriptions of shard `index` of which a transaction of that producer acknowledges messages."""
        found = (await self._runtime.load(index)).acknowledged_by(producer_id)
        await self._runtime.settled(index)
        return found

    async def snapshot_of(self, place: TopicPartition, topic_id: UUID) -> bytes | None:
        await self._load()
        key = _name_of(place)
        shard = self._shard(key)
        if shard is None:
            return None
        found = shard.snapshot_of(place, topic_id)
        await self._runtime.settled(self.shard_of(key))
        return found


def _name_of(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def _check_size(data: bytes, what: str, most: int = _MOST_BYTES) -> None:
    if len(data) > most:
        raise TooLarge(f"{what} take {len(data)} bytes, {most} are the most")


def _batches(changes: Sequence[StateChanges]) -> Iterator[list[StateChanges]]:
    """The same changes, in lists that fit a batch each; drops before puts, the floor with the first."""
    batch: list[StateChanges] = []
    room = _BATCH_BYTES
    for change in changes:
        put: dict[int, bytes] = {}
        drop = change.drop
        floor = change.floor
        room -= _RECORD_BYTES * (len(drop) + 1)
        for chunk, bitmap in change.put.items():
            if room < len(bitmap) + _RECORD_BYTES:
                yield [*batch, StateChanges(change.name, put, drop, floor)]
                batch, put, drop, floor, room = [], {}, (), None, _BATCH_BYTES
            put[chunk] = bitmap
            room -= len(bitmap) + _RECORD_BYTES
        batch.append(StateChanges(change.name, put, drop, floor))
    if batch:
        yield batch
