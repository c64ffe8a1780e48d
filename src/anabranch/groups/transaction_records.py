"""Records of `__transaction_state`: what became of each transactional id, as Kafka writes it.

    key    int16 0 · transactional id (string)
    value  int16 version, then
           0   producer id 8 · epoch 2 · timeout ms 4 · state 1 · partitions · updated ms 8 · started ms 8
           1   the same, flexible, and tagged: 0 the producer id before, 1 the one that comes next,
               2 the client's transaction version
    partitions  array of topic (string), array of int32; null while the state is Empty

Version 1 is written, what a cluster at transaction.version 2 has; both are read.  A tombstone says that
an id has expired.  A tag that is not set has its default and is left out.
"""

from enum import IntEnum
from typing import NamedTuple

from anabranch.base.errors import Corrupt
from anabranch.groups.fields import INT16, INT64, Fields, compact_string, string, tagged, varint

NO_PRODUCER_ID = -1
NO_EPOCH = -1

_KEY_KIND = 0
_VERSION = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = range(3)


class State(IntEnum):
    """Of a transaction, numbered as in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # this and the next are Kafka's own between two steps, and never written
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """What Kafka's tools call it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


STATES = {state.title: state for state in State}

TopicPartition = tuple[str, int]


class Transaction(NamedTuple):
    """All that is kept of a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = -1
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0


def encode_key(transactional_id: str) -> bytes:
    return INT16.pack(_KEY_KIND) + string(transactional_id)


def decode_key(key: bytes) -> str | None:
    """The transactional id; None if the record is of a kind that is not known."""
    fields = Fields(key)
    return fields.string() if fields.int16() == _KEY_KIND else None


def encode_value(transaction: Transaction) -> bytes:
    tags: dict[int, bytes] = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_ID] = INT64.pack(transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_ID] = INT64.pack(transaction.next_producer_id)
    if transaction.client_version:
        tags[_CLIENT_VERSION] = INT16.pack(transaction.client_version)
    return b"".join(
        (
            INT16.pack(_VERSION),
            INT64.pack(transaction.producer_id),
            INT16.pack(transaction.epoch),
            transaction.timeout_ms.to_bytes(4, signed=True),
            transaction.state.to_bytes(1),
            _encode_partitions(transaction),
            INT64.pack(transaction.updated_ms),
            INT64.pack(transaction.started_ms),
            tagged(tags),
        )
    )


def _encode_partitions(transaction: Transaction) -> bytes:
    if transaction.state is State.EMPTY:
        return varint(0)
    parts = [varint(len(topics := by_topic(transaction.partitions)) + 1)]
    for topic, indexes in topics.items():
        parts += (compact_string(topic), varint(len(indexes) + 1))
        parts += [index.to_bytes(4, signed=True) for index in indexes]
        parts.append(tagged({}))
    return b"".join(parts)


def by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def decode_value(value: bytes) -> Transaction | None:
    """None if the record is of a version that is not known."""
    fields = Fields(value)
    version = fields.int16()
    if version not in (0, _VERSION):
        return None
    flexible = version == _VERSION
    producer_id, epoch, timeout_ms = fields.int64(), fields.int16(), fields.int32()
    number = fields.int8()
    if not State.EMPTY <= number <= State.COMPLETE_ABORT:
        raise Corrupt(f"a transaction is in state {number}, which is never written")
    state = State(number)
    partitions = _decode_partitions(fields, flexible=flexible)
    updated_ms, started_ms = fields.int64(), fields.int64()
    tags = fields.tags() if flexible else {}
    return Transaction(
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        updated_ms=updated_ms,
        started_ms=started_ms,
        previous_producer_id=_id(tags.get(_PREVIOUS_ID)),
        next_producer_id=_id(tags.get(_NEXT_ID)),
        client_version=Fields(tags[_CLIENT_VERSION]).int16() if _CLIENT_VERSION in tags else 0,
    )


def _decode_partitions(fields: Fields, *, flexible: bool) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(fields.count(flexible=flexible)):
        topic = fields.string(flexible=flexible)
        found.update((topic, fields.int32()) for _ in range(fields.count(flexible=flexible)))
        if flexible:
            fields.tags()
    return frozenset(found)


def _id(content: bytes | None) -> int:
    return NO_PRODUCER_ID if content is None else Fields(content).int64()
