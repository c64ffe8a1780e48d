"""Fetch answers, by hand: headers as bytes, records as ranges of files that nobody reads.

v4        last stable offset, aborted transactions
v5        log start offset
v7        sessions: an error code and a session id for the whole answer
v11       preferred read replica
v12       flexible; tagged diverging epoch
v13       topics by id
v16       tagged: the current leader of a partition that is not led here, and where brokers are
"""

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple, cast
from uuid import UUID

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt
from anabranch.base.network import Chunk, FileRange
from anabranch.wire.kafka.current_leader import Brokers, CurrentLeader, leader_field, node_endpoints
from anabranch.wire.kafka.decoder import Cursor, skip_tags
from anabranch.wire.kafka.encoder import uvarint

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_SESSION = struct.Struct(">ihi")
_V4 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_NO_REPLICA = _INT.pack(-1)
_NOT_THROTTLED = bytes(4)
_DIVERGING_SIZE = 1 + _EPOCH_END.size
_FIRST_WITH_LEADERS = 16
_LEADER_TAG = 1


class AskedPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    partition_max_bytes: int
    log_start: int = -1  # where a follower's own log begins


class AskedTopic(NamedTuple):
    topic: str | UUID  # an id from v13 on
    partitions: list[AskedPartition]


class ForgottenTopic(NamedTuple):
    topic: str | UUID
    partitions: list[int]


CONSUMER = -1
"""The replica id of who is no replica."""


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[AskedTopic]
    forgotten: list[ForgottenTopic]
    wishes: int = 0
    """Of our own tag, which other brokers pass over: DESCRIBED, COMPACTED."""
    replica_id: int = CONSUMER
    replica_epoch: int = -1
    """Of the broker that the replica is on, -1 if it does not say."""
    rack: str = ""


_HEADS = {4: struct.Struct(">iiiib"), 7: struct.Struct(">iiiibii"), 15: struct.Struct(">iiibii")}
_NO_RACK_NO_TAGS = b"\1\0"  # how as good as every request ends
_REPLICA_STATE_TAG = 1  # v15, where the head had the replica id before
_ASKED = {4: struct.Struct(">iqi"), 5: struct.Struct(">iqqi"), 9: struct.Struct(">iiqqi")}
WISHES_TAG = 0x616E61  # "ana": far from those that Kafka gives out, one after the other
DESCRIBED = 1
"""Messages of Pulsar's with all that its clients see of them (`records/to_kafka.py`)."""
COMPACTED = 2
"""The compacted view, where there is one, as far as it goes (`partition/compacted_part.py`)."""
_ASKED_FLEXIBLE = struct.Struct(">iiqiqi")
_REPLICA_STATE = struct.Struct(">iq")


def read_fetch(frame: memoryview, at: int, version: int) -> FetchRequest:
    """The request whose body starts at `at`.  Corrupt if the bytes are not one."""
    layout = _HEADS[15 if version >= 15 else 7 if version >= 7 else 4]
    try:
        head: Any = layout.unpack_from(frame, at)
        cursor = Cursor(frame, at + layout.size)
        topics = [_asked_topic(cursor, version) for _ in range(_count(cursor, version))]
        forgotten = []
        if version >= 7:
            forgotten = [_forgotten_topic(cursor, version) for _ in range(_count(cursor, version))]
    except struct.error as error:
        raise Corrupt(f"not a fetch request of version {version}: {error}") from error
    replica, *head = head if version < 15 else (CONSUMER, *head)
    wait_ms, least, most, isolation, session_id, epoch = head if version >= 7 else (*head, 0, -1)
    asked = FetchRequest(wait_ms, least, most, isolation, session_id, epoch, topics, forgotten, 0, replica)
    if version < 11 or frame[cursor.at :] == _NO_RACK_NO_TAGS:
        return asked
    return _with_rack_and_tags(asked, cursor, version)


def _with_rack_and_tags(asked: FetchRequest, cursor: Cursor, version: int) -> FetchRequest:
    size = cursor.uvarint() - 1 if version >= 12 else _SHORT.unpack(cursor.take(2))[0]
    rack = str(cursor.take(max(size, 0)), "utf-8", "replace")
    if version < 12:
        return asked._replace(rack=rack)
    tags = {cursor.uvarint(): cursor.take(cursor.uvarint()) for _ in range(cursor.spend(cursor.uvarint()))}
    state, wish = tags.get(_REPLICA_STATE_TAG, b""), tags.get(WISHES_TAG, b"")
    replica, replica_epoch = asked.replica_id, -1
    if version >= 15 and len(state) >= _REPLICA_STATE.size:
        replica, replica_epoch = _REPLICA_STATE.unpack_from(state)
    wishes = wish[0] if len(wish) == 1 else 0
    return asked._replace(wishes=wishes, replica_id=replica, replica_epoch=replica_epoch, rack=rack)


def _count(cursor: Cursor, version: int) -> int:
    """How many items an array has; one that is null is none of ours."""
    count = cursor.uvarint() - 1 if version >= 12 else _INT.unpack(cursor.take(4))[0]
    if count < 0:
        raise Corrupt("an array that may not be null is null")
    return cursor.spend(count)


def _topic_key(cursor: Cursor, version: int) -> str | UUID:
    if version >= 13:
        return UUID(bytes=bytes(cursor.take(16)))
    size = cursor.uvarint() - 1 if version >= 12 else _SHORT.unpack(cursor.take(2))[0]
    try:
        return str(cursor.take(size), "utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"a topic's name is not UTF-8: {error}") from error


def _asked_topic(cursor: Cursor, version: int) -> AskedTopic:
    key = _topic_key(cursor, version)
    count = _count(cursor, version)
    if version >= 12:
        partitions = [_asked_flexible(cursor) for _ in range(count)]
        skip_tags(cursor)
        return AskedTopic(key, partitions)
    layout = _ASKED[9 if version >= 9 else 5 if version >= 5 else 4]
    asked = layout.iter_unpack(cursor.take(count * layout.size))
    if version >= 9:
        return AskedTopic(
            key, [AskedPartition(p, epoch, at, -1, most, start) for p, epoch, at, start, most in asked]
        )
    if version >= 5:
        return AskedTopic(key, [AskedPartition(p, -1, at, -1, most, start) for p, at, start, most in asked])
    return AskedTopic(key, [AskedPartition(p, -1, at, -1, most) for p, at, most in asked])


def _asked_flexible(cursor: Cursor) -> AskedPartition:
    index, epoch, at, fetched, start, most = _ASKED_FLEXIBLE.unpack_from(cursor.frame, cursor.at)
    asked = AskedPartition(index, epoch, at, fetched, most, start)
    cursor.at += _ASKED_FLEXIBLE.size
    skip_tags(cursor)
    return asked


def _forgotten_topic(cursor: Cursor, version: int) -> ForgottenTopic:
    key = _topic_key(cursor, version)
    count = _count(cursor, version)
    partitions = [index for (index,) in _INT.iter_unpack(cursor.take(4 * count))]
    if version >= 12:
        skip_tags(cursor)
    return ForgottenTopic(key, partitions)


class Fetched(NamedTuple):
    """What a fetch found in one partition."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]] | None  # producer id and first offset of each transaction
    records: Chunk | None
    diverging: tuple[int, int] | None = None
    leader: CurrentLeader | None = None
    preferred_replica: int = -1
    """The broker that a consumer should read from instead (v11)."""

    @property
    def size_bytes(self) -> int:
        records = self.records
        if records is None:
            return 0
        return records.size if type(records) is FileRange else len(cast(Buffer, records))


Topics = Iterable[tuple[str | UUID, list[Fetched]]]


def write_fetched(
    version: int, error_code: int, session_id: int, topics: Topics, brokers: Brokers | None = None
) -> list[Chunk]:
    """The answer, from the header's tagged fields on; `brokers` are those that may be leaders in it."""
    listed = list(topics)
    out = _Chunks()
    flexible = version >= 12
    if flexible:
        out.write(b"\0")
    out.write(_SESSION.pack(0, error_code, session_id) if version >= 7 else _NOT_THROTTLED)
    out.write(uvarint(len(listed) + 1) if flexible else _INT.pack(len(listed)))
    for topic, partitions in listed:
        out.write(_topic(topic, flexible))
        out.write(uvarint(len(partitions) + 1) if flexible else _INT.pack(len(partitions)))
        for one in partitions:
            _write_partition(out, one, version)
        if flexible:
            out.write(b"\0")
    if version >= _FIRST_WITH_LEADERS and brokers is not None:
        out.write(node_endpoints((one.leader for _, partitions in listed for one in partitions), brokers))
    elif flexible:
        out.write(b"\0")
    return out.finish()


class _Chunks:
    """Bytes gathered into as few pieces as the file ranges between them allow."""

    __slots__ = ("_chunks", "_parts")

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def attach(self, part: Chunk) -> None:
        self._chunks.append(b"".join(self._parts))
        self._parts.clear()
        self._chunks.append(part)

    def finish(self) -> list[Chunk]:
        if self._parts:
            self._chunks.append(b"".join(self._parts))
        return self._chunks


def _topic(topic: str | UUID, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    raw = topic.encode()
    return (uvarint(len(raw) + 1) if flexible else _SHORT.pack(len(raw))) + raw


def _write_partition(out: _Chunks, one: Fetched, version: int) -> None:
    head = (one.partition, one.error_code, one.high_watermark, one.last_stable)
    out.write(_V5.pack(*head, one.log_start) if version >= 5 else _V4.pack(*head))
    flexible = version >= 12
    if one.aborted is None:
        out.write(b"\0" if flexible else b"\xff\xff\xff\xff")
    else:
        out.write(uvarint(len(one.aborted) + 1) if flexible else _INT.pack(len(one.aborted)))
        for entry in one.aborted:
            out.write(_ABORTED.pack(*entry))
            if flexible:
                out.write(b"\0")
    if version >= 11:
        out.write(_NO_REPLICA if one.preferred_replica < 0 else _INT.pack(one.preferred_replica))
    size = one.size_bytes
    out.write(uvarint(size + 1) if flexible else _INT.pack(size))
    if one.records is not None:
        out.attach(one.records)
    if flexible:
        if one.diverging is None and one.leader is None:
            out.write(b"\0")
        else:
            out.write(_tagged(one, version))


def _tagged(one: Fetched, version: int) -> bytes:
    fields = []
    if one.diverging is not None:
        fields.append(b"\0" + uvarint(_DIVERGING_SIZE) + _EPOCH_END.pack(*one.diverging) + b"\0")
    if one.leader is not None and version >= _FIRST_WITH_LEADERS:
        fields.append(leader_field(_LEADER_TAG, one.leader))
    return uvarint(len(fields)) + b"".join(fields)
