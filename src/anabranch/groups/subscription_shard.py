"""The durable subscriptions of one partition of `__subscription_state`, and what is decided over them.

Documents and bitmaps are bytes here; `subscriptions` knows what they mean.  Every record replaces one
thing, so replaying is replacing.  What has no document is left over from a subscription that was deleted, or
whose creation was cut off: it belongs to nobody, and is removed when one of that name is made.

What transactions acknowledge is kept as anything else is, until they have ended: no record is in one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from anabranch.groups.effects import Effects, PlainShard, Token
from anabranch.groups.records import OffsetKey
from anabranch.groups.subscription_records import (
    CHUNK,
    DOCUMENT,
    FLOOR,
    PENDING_ACK,
    SNAPSHOT,
    StateKey,
    read_floor,
    read_key,
    read_snapshot,
    read_value,
    write_floor,
    write_key,
    write_snapshot,
    write_value,
)
from anabranch.groups.transaction_ids import TxnId

TopicPartition = tuple[str, int]


class SubscriptionState:
    """What is kept of one subscription, its committed offset apart."""

    __slots__ = ("chunks", "document", "floor", "pending")

    def __init__(self) -> None:
        self.document: bytes | None = None
        self.floor: int | None = None
        self.chunks: dict[int, bytes] = {}
        self.pending: dict[TxnId, dict[int, bytes]] = {}
        """What open transactions acknowledge, by the number of the request."""

    @property
    def is_nothing(self) -> bool:
        return self.document is None and self.floor is None and not self.chunks and not self.pending


class StateChanges(NamedTuple):
    """Chunks of one subscription to write and to drop, and its floor if it changes."""

    name: OffsetKey
    put: Mapping[int, bytes]
    drop: Sequence[int]
    floor: int | None


class SubscriptionShard(PlainShard):
    def __init__(self, index: int) -> None:
        self.index = index
        self._states: dict[TopicPartition, dict[str, SubscriptionState]] = {}
        self._snapshots: dict[TopicPartition, tuple[UUID, bytes]] = {}
        self._acking: dict[int, set[OffsetKey]] = {}  # producer id of a transaction -> subscriptions

    # --- state

    def replay(self, key: bytes, value: bytes | None) -> None:
        read = read_key(key)
        if read is None:
            return
        place = (read.topic, read.partition)
        if read.kind == SNAPSHOT:
            if value is None:
                self._snapshots.pop(place, None)
            else:
                self._snapshots[place] = read_snapshot(value)
            return
        states = self._states.setdefault(place, {})
        state = states.setdefault(read.group_id, SubscriptionState())
        if read.kind == DOCUMENT:
            state.document = None if value is None else read_value(value)
        elif read.kind == FLOOR:
            state.floor = None if value is None else read_floor(value)
        elif read.kind == PENDING_ACK:
            self._replay_pending_ack(read, state, value)
        elif value is None:
            state.chunks.pop(read.chunk, None)
        else:
            state.chunks[read.chunk] = read_value(value)
        if value is None and state.is_nothing:
            del states[read.group_id]
            if not states:
                del self._states[place]

    def _replay_pending_ack(self, key: StateKey, state: SubscriptionState, value: bytes | None) -> None:
        assert key.txn is not None
        name = OffsetKey(key.group_id, key.topic, key.partition)
        producer_id = key.txn.producer.producer_id
        if value is not None:
            state.pending.setdefault(key.txn, {})[key.chunk] = read_value(value)
            self._acking.setdefault(producer_id, set()).add(name)
            return
        acks = state.pending.get(key.txn, {})
        acks.pop(key.chunk, None)
        if not acks:
            state.pending.pop(key.txn, None)
        if not any(txn.producer.producer_id == producer_id for txn in state.pending):
            subscriptions = self._acking.get(producer_id, set())
            subscriptions.discard(name)
            if not subscriptions:
                self._acking.pop(producer_id, None)

    # --- decisions

    def write_document(self, token: Token, name: OffsetKey, document: bytes, *, new: bool) -> Effects:
        effects = Effects()
        if new:
            self._drop_all(effects, name)
        effects.write(_key(DOCUMENT, name), write_value(document))
        effects.reply(token, {})
        return effects

    def write_chunks(self, token: Token, changes: Iterable[StateChanges]) -> Effects:
        effects = Effects()
        for change in changes:
            for chunk in change.drop:
                effects.write(_key(CHUNK, change.name, chunk), None)
            for chunk, bitmap in change.put.items():
                effects.write(_key(CHUNK, change.name, chunk), write_value(bitmap))
            if change.floor is not None:
                effects.write(_key(FLOOR, change.name), write_floor(change.floor))
        effects.reply(token, {})
        return effects

    def delete(self, token: Token, name: OffsetKey) -> Effects:
        effects = Effects()
        self._drop_all(effects, name)
        effects.reply(token, {})
        return effects

    def write_pending_ack(
        self, token: Token, name: OffsetKey, txn: TxnId, number: int, ack: bytes
    ) -> Effects:
        """`txn` acknowledges something if it commits."""
        effects = Effects()
        effects.write(_pending_key(name, txn, number), write_value(ack))
        effects.reply(token, {})
        return effects

    def drop_pending_acks(self, token: Token, name: OffsetKey, txn: TxnId, most: int) -> Effects:
        """Drop at most so many; what came of them is kept elsewhere.  `left` is how many there still are."""
        effects = Effects()
        state = self._state(name)
        acks = {} if state is None else state.pending.get(txn, {})
        for number in islice(acks, most):
            effects.write(_pending_key(name, txn, number), None)
        effects.reply(token, {"left": max(0, len(acks) - most)})
        return effects

    def write_snapshot(
        self, token: Token, place: TopicPartition, topic_id: UUID, snapshot: bytes | None
    ) -> Effects:
        effects = Effects()
        value = None if snapshot is None else write_snapshot(topic_id, snapshot)
        if value is not None or place in self._snapshots:
            effects.write(write_key(StateKey(SNAPSHOT, "", *place)), value)
        effects.reply(token, {})
        return effects

    def forget_topics(self, topics: Iterable[str]) -> Effects:
        """The topics are deleted, and with them everything that was kept for them."""
        effects = Effects()
        gone = set(topics)
        for (topic, partition), states in self._states.items():
            if topic in gone:
                for group_id in states:
                    self._drop_all(effects, OffsetKey(group_id, topic, partition))
        for place in self._snapshots:
            if place[0] in gone:
                effects.write(write_key(StateKey(SNAPSHOT, "", *place)), None)
        effects.each_for_itself()
        return effects

    # --- looking

    def of_topic(self, topic: str, partition: int) -> Iterator[tuple[str, SubscriptionState]]:
        """The subscriptions of a partition that have a document."""
        for group_id, state in self._states.get((topic, partition), {}).items():
            if state.document is not None:
                yield group_id, state

    def names(self) -> Iterator[OffsetKey]:
        """Every subscription."""
        for (topic, partition), states in self._states.items():
            for group_id, state in states.items():
                if state.document is not None:
                    yield OffsetKey(group_id, topic, partition)

    def pending_acks(self, name: OffsetKey) -> dict[TxnId, dict[int, bytes]]:
        """What open transactions acknowledge of a subscription, by the number of the request."""
        state = self._state(name)
        return {} if state is None else {txn: dict(acks) for txn, acks in state.pending.items()}

    def acknowledged_by(self, producer_id: int) -> list[tuple[OffsetKey, TxnId]]:
        """Subscriptions of which a transaction under that producer id acknowledges something."""
        return [
            (name, txn)
            for name in self._acking.get(producer_id, ())
            if (state := self._state(name)) is not None
            for txn in state.pending
            if txn.producer.producer_id == producer_id
        ]

    def find(self, name: OffsetKey) -> SubscriptionState | None:
        state = self._state(name)
        return None if state is None or state.document is None else state

    def snapshot_of(self, place: TopicPartition, topic_id: UUID) -> bytes | None:
        """The snapshot of a partition, if it is of this topic and not of one that had its name before."""
        found = self._snapshots.get(place)
        return found[1] if found is not None and found[0] == topic_id else None

    # --- how it is done

    def _state(self, name: OffsetKey) -> SubscriptionState | None:
        return self._states.get((name.topic, name.partition), {}).get(name.group_id)

    def _drop_all(self, effects: Effects, name: OffsetKey) -> None:
        state = self._state(name)
        if state is None:
            return
        for txn, acks in state.pending.items():
            for number in acks:
                effects.write(_pending_key(name, txn, number), None)
        for chunk in state.chunks:
            effects.write(_key(CHUNK, name, chunk), None)
        if state.floor is not None:
            effects.write(_key(FLOOR, name), None)
        if state.document is not None:
            effects.write(_key(DOCUMENT, name), None)


def _key(kind: int, name: OffsetKey, chunk: int = -1) -> bytes:
    return write_key(StateKey(kind, name.group_id, name.topic, name.partition, chunk))


def _pending_key(name: OffsetKey, txn: TxnId, number: int) -> bytes:
    return write_key(StateKey(PENDING_ACK, *name, chunk=number, txn=txn))
