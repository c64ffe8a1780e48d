"""Produce requests and answers, by hand: the hottest messages there are.

    v3        the first that carries record batches of magic 2
    v5        answers carry the log start offset
    v8        answers carry messages and the records at fault
    v9        flexible: compact lengths, tagged fields
    v10       tagged: the current leader of a partition that is not led here, and where brokers are
    v13       topics by id

The records stay a view into the frame.  Whatever the bytes claim, what is given out lies inside it, and
a request that names more than `MAX_ITEMS` topics and partitions is none: empty ones would turn a byte
on the wire into fifty in memory.
"""

import struct
from typing import NamedTuple

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.current_leader import Brokers, CurrentLeader, leader_field, node_endpoints
from anabranch.wire.kafka.encoder import uvarint

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_TWO_INTS = struct.Struct(">ii")
_ACKS = struct.Struct(">hi")
_PLACED = struct.Struct(">ihqq")
_LONG = struct.Struct(">q")
_ONE_PARTITION = struct.Struct(">ihqqq")
MAX_ITEMS = 50_000
_MAX_TAGS = 16  # of one item; there is none yet that has any
_NOT_THROTTLED = bytes(4)
_NONE_TAGGED = b"\0"
_FIRST_WITH_LEADERS = 10
_LEADER_TAG = 0


class ProducePartition(NamedTuple):
    partition: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    name: bytes  # UTF-8, or the 16 bytes of the topic's id from v13 on
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    number: int  # of the record in its batch
    message: str | None


class Produced(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int
    base_offset: int
    append_time_ms: int
    log_start: int
    message: str | None = None
    record_errors: tuple[RecordError, ...] = ()
    leader: CurrentLeader | None = None


def read_produce(frame: memoryview, at: int, version: int) -> ProduceRequest:
    """The request whose body starts at `at`.  Corrupt if the bytes are not one."""
    try:
        return _read_flexible(frame, at, version) if version >= 9 else _read_legacy(frame, at)
    except (struct.error, IndexError) as error:
        raise Corrupt(f"not a produce request of version {version}: {error}") from error


def _cut(frame: memoryview, at: int, size: int) -> memoryview:
    if size < 0 or at + size > len(frame):
        raise Corrupt(f"a field claims {size} bytes, {len(frame) - at} are left")
    return frame[at : at + size]


def _spend(items: int, more: int) -> int:
    """How many topics and partitions there are with `more` of them.  Corrupt if that cannot be."""
    if more < 0 or items + more > MAX_ITEMS:
        raise Corrupt(f"a produce request claims {more} more topics or partitions after {items}")
    return items + more


def _read_legacy(frame: memoryview, at: int) -> ProduceRequest:
    (size,) = _SHORT.unpack_from(frame, at)
    at += 2
    transactional_id = None
    if size >= 0:
        transactional_id = str(_cut(frame, at, size), "utf-8", "replace")
        at += size
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    (topic_count,) = _INT.unpack_from(frame, at + 6)
    at += 10
    topics = []
    items = _spend(0, topic_count)
    for _ in range(topic_count):
        (size,) = _SHORT.unpack_from(frame, at)
        name = bytes(_cut(frame, at + 2, size))
        at += 2 + size
        (partition_count,) = _INT.unpack_from(frame, at)
        at += 4
        items = _spend(items, partition_count)
        partitions = []
        for _ in range(partition_count):
            index, size = _TWO_INTS.unpack_from(frame, at)
            at += 8
            if size < 0:
                partitions.append(ProducePartition(index, None))
            else:
                partitions.append(ProducePartition(index, _cut(frame, at, size)))
                at += size
        topics.append(ProduceTopic(name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def read_varint(frame: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint and where it ends."""
    byte = frame[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while shift < 35:
        at += 1
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise Corrupt("a varint is longer than five bytes")


def _skip_tags(frame: memoryview, at: int) -> int:
    count, at = read_varint(frame, at)
    if count > _MAX_TAGS:
        raise Corrupt(f"an item claims {count} tagged fields")
    for _ in range(count):
        _, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        _cut(frame, at, size)
        at += size
    return at


def _read_flexible(frame: memoryview, at: int, version: int) -> ProduceRequest:
    size, at = read_varint(frame, at)
    transactional_id = None
    if size:
        transactional_id = str(_cut(frame, at, size - 1), "utf-8", "replace")
        at += size - 1
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    topic_count, at = read_varint(frame, at + 6)
    topics = []
    items = _spend(0, topic_count)
    for _ in range(topic_count - 1):
        if version >= 13:
            size = 16
        else:
            size, at = read_varint(frame, at)
            size -= 1
        name = bytes(_cut(frame, at, size))
        partition_count, at = read_varint(frame, at + size)
        items = _spend(items, partition_count)
        partitions = []
        for _ in range(partition_count - 1):
            (index,) = _INT.unpack_from(frame, at)
            size, at = read_varint(frame, at + 4)
            if size:
                partitions.append(ProducePartition(index, _cut(frame, at, size - 1)))
                at = _skip_tags(frame, at + size - 1)
            else:
                partitions.append(ProducePartition(index, None))
                at = _skip_tags(frame, at)
        at = _skip_tags(frame, at)
        topics.append(ProduceTopic(name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


# --- answers


ProducedTopics = list[tuple[bytes, list[Produced]]]


def write_produced(version: int, topics: ProducedTopics, brokers: Brokers | None = None) -> bytes:
    """The answer, from the header's tagged fields on; `brokers` are those that may be leaders in it."""
    if version < 9:
        return _write_legacy(version, topics)
    return _write_flexible(version, topics, brokers or {})


def _write_legacy(version: int, topics: ProducedTopics) -> bytes:
    out = [_INT.pack(len(topics))]
    for name, partitions in topics:
        out += (_SHORT.pack(len(name)), name, _INT.pack(len(partitions)))
        for one in partitions:
            out.append(_PLACED.pack(one.partition, one.error_code, one.base_offset, one.append_time_ms))
            if version >= 5:
                out.append(_LONG.pack(one.log_start))
            if version >= 8:
                out.append(_INT.pack(len(one.record_errors)))
                for number, message in one.record_errors:
                    out += (_INT.pack(number), _legacy_text(message))
                out.append(_legacy_text(one.message))
    out.append(_NOT_THROTTLED)
    return b"".join(out)


def _legacy_text(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _SHORT.pack(len(raw)) + raw


def _compact_text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def _write_flexible(version: int, topics: ProducedTopics, brokers: Brokers) -> bytes:
    out = [_NONE_TAGGED, uvarint(len(topics) + 1)]
    leaders: list[CurrentLeader] = []
    for name, partitions in topics:
        if version < 13:
            out.append(uvarint(len(name) + 1))
        out += (name, uvarint(len(partitions) + 1))
        for one in partitions:
            out.append(
                _ONE_PARTITION.pack(
                    one.partition, one.error_code, one.base_offset, one.append_time_ms, one.log_start
                )
            )
            out.append(uvarint(len(one.record_errors) + 1))
            for number, message in one.record_errors:
                out += (_INT.pack(number), _compact_text(message), _NONE_TAGGED)
            out.append(_compact_text(one.message))
            if one.leader is None or version < _FIRST_WITH_LEADERS:
                out.append(_NONE_TAGGED)
            else:
                leaders.append(one.leader)
                out += (b"\1", leader_field(_LEADER_TAG, one.leader))
        out.append(_NONE_TAGGED)
    out += (_NOT_THROTTLED, node_endpoints(leaders, brokers) if leaders else _NONE_TAGGED)
    return b"".join(out)
