"""OffsetCommit requests and answers, by hand: every consumer sends them, some with hundreds of offsets.

    v5    no retention of its own any more
    v6    the leader epoch of the last record read
    v7    static members
    v8    flexible: compact lengths, tagged fields
    v10   topics by id

Flexible versions are read here, into what `decode` would give as far as anybody looks at it; older ones by
the schema.  Offsets are given out in columns, which is how they are written down.  Answers are written from
the dicts that the schema's encoder takes, and to the same bytes.  Whatever the bytes claim, what is given out
lies inside the frame and is limited as `decode` limits it.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.decoder import Cursor, decode, skip_tags
from anabranch.wire.kafka.encoder import uvarint

_KEY = 8
_FLEXIBLE = 8
_BY_ID = 10
_INT = struct.Struct(">i")
_OFFSET = struct.Struct(">iqiH")  # and at least two bytes more, of metadata and tags
_METADATA_AT = 16
_NOTHING_MORE = 0x0100  # a text of no length, no tags
_MANY = 4  # fewer are less work one by one
_FIELDS = (
    attrgetter("partition_index"),
    attrgetter("committed_offset"),
    attrgetter("committed_leader_epoch"),
    attrgetter("committed_metadata"),
)
_CODE = struct.Struct(">ihb")  # with no tags
_LEGACY_CODE = struct.Struct(">ih")
_NO_ID = bytes(16)
_NOT_THROTTLED = bytes(4)


class OffsetColumns(NamedTuple):
    """Offsets of a topic, field by field: there may be hundreds, and most are alike in most fields."""

    partitions: Sequence[int]
    offsets: Sequence[int]
    leader_epochs: Sequence[int]
    metadata: Sequence[str | None]

    def only(self, chosen: Sequence[bool]) -> "OffsetColumns":
        """Those that are true in `chosen`."""
        partitions, offsets, leader_epochs, metadata = self
        return OffsetColumns(
            list(compress(partitions, chosen)),
            list(compress(offsets, chosen)),
            list(compress(leader_epochs, chosen)),
            list(compress(metadata, chosen)),
        )


class CommittedTopic(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: OffsetColumns


class OffsetCommit(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: list[CommittedTopic]


_Committer = tuple[str, int, str, str | None]  # group, epoch, member, instance


def read_offset_commit(frame: memoryview, at: int, version: int) -> Any:
    """The request whose body starts at `at`: an OffsetCommit, or what has its fields.  Corrupt if none."""
    if version < _FLEXIBLE:
        return with_columns(decode(_KEY, version, frame, at))
    cursor = Cursor(frame, at)
    try:
        who = _committer(cursor)
        topics = [_topic(cursor, version) for _ in range(_count(cursor))]
        skip_tags(cursor)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Corrupt(f"not an offset commit of version {version}: {error}") from error
    return OffsetCommit(*who, topics)


def with_columns(request: Any) -> Any:
    """A request that the schema has read, this one or TxnOffsetCommit, with its offsets in columns."""
    for topic in request.topics:
        topic.partitions = OffsetColumns(*(list(map(field, topic.partitions)) for field in _FIELDS))
    return request


def _committer(cursor: Cursor) -> _Committer:
    """Who commits: the same bytes with every commit of a member, so they are read once."""
    frame, at = cursor.frame, cursor.at
    if (group := frame[at]) < 128 and (member := frame[member_at := at + group + _INT.size]) < 128:
        instance_at = member_at + member
        if (instance := frame[instance_at]) < 128:
            cursor.at = instance_at + (instance or 1)
            return _known_committer(frame[at : cursor.at].tobytes())
    return _read_committer(cursor)


@lru_cache(256)
def _known_committer(data: bytes) -> _Committer:
    return _read_committer(Cursor(memoryview(data), 0))


def _read_committer(cursor: Cursor) -> _Committer:
    group_id = _text(cursor)
    (epoch,) = _INT.unpack_from(cursor.frame, cursor.at)
    cursor.at += _INT.size
    return group_id, epoch, _text(cursor), _nullable_text(cursor)


def _topic(cursor: Cursor, version: int) -> CommittedTopic:
    topic_id = None
    name = ""
    if version >= _BY_ID:
        raw = bytes(cursor.take(16))
        topic_id = None if raw == _NO_ID else UUID(bytes=raw)
    else:
        name = _text(cursor)
    count = _count(cursor)
    offsets = _bare_offsets(cursor, count) if count >= _MANY else None
    if offsets is None:
        offsets = _any_offsets(cursor, count)
    skip_tags(cursor)
    return CommittedTopic(name, topic_id, offsets)


def _bare_offsets(cursor: Cursor, count: int) -> OffsetColumns | None:
    """`count` offsets that have no metadata and no tags, and so are all of one size; None if any has."""
    size = count * _OFFSET.size
    data = cursor.frame[cursor.at : cursor.at + size]
    if (
        len(data) < size
        or data[_METADATA_AT :: _OFFSET.size] != b"\1" * count
        or data[_METADATA_AT + 1 :: _OFFSET.size] != bytes(count)
    ):
        return None
    cursor.at += size
    partitions, offsets, leader_epochs, _ = zip(*_OFFSET.iter_unpack(data), strict=True)
    return OffsetColumns(partitions, offsets, leader_epochs, ("",) * count)


def _any_offsets(cursor: Cursor, count: int) -> OffsetColumns:
    partitions = []
    offsets = []
    leader_epochs = []
    metadata: list[str | None] = []
    for _ in range(count):
        index, offset, leader_epoch, rest = _OFFSET.unpack_from(cursor.frame, cursor.at)
        partitions.append(index)
        offsets.append(offset)
        leader_epochs.append(leader_epoch)
        if rest == _NOTHING_MORE:
            cursor.at += _OFFSET.size
            metadata.append("")
        else:
            cursor.at += _METADATA_AT
            metadata.append(_nullable_text(cursor))
            skip_tags(cursor)
    return OffsetColumns(partitions, offsets, leader_epochs, metadata)


def _count(cursor: Cursor) -> int:
    count = cursor.uvarint() - 1
    if count < 0:
        raise Corrupt("an array that may not be null is null")
    return cursor.spend(count)


def _text(cursor: Cursor) -> str:
    frame, at = cursor.frame, cursor.at
    end = at + frame[at]
    if at < end <= min(at + 127, len(frame)):  # as good as always
        cursor.at = end
        return str(frame[at + 1 : end], "utf-8")
    return str(cursor.take(cursor.uvarint() - 1), "utf-8")


def _nullable_text(cursor: Cursor) -> str | None:
    size = cursor.uvarint() - 1
    return None if size < 0 else str(cursor.take(size), "utf-8")


def write_offset_commit(version: int, topics: Sequence[Mapping[str, Any]]) -> bytes:
    """The answer, from the header's tagged fields on."""
    return _flexible(version, topics) if version >= _FLEXIBLE else _legacy(version, topics)


def _flexible(version: int, topics: Sequence[Mapping[str, Any]]) -> bytes:
    out = [b"\0", _NOT_THROTTLED, uvarint(len(topics) + 1)]
    for topic in topics:
        if version >= _BY_ID:
            topic_id = topic["topic_id"]
            out.append(_NO_ID if topic_id is None else topic_id.bytes)
        else:
            name = topic["name"].encode()
            out += (uvarint(len(name) + 1), name)
        partitions = topic["partitions"]
        out.append(uvarint(len(partitions) + 1))
        out += [_CODE.pack(part["partition_index"], part["error_code"], 0) for part in partitions]
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)


def _legacy(version: int, topics: Sequence[Mapping[str, Any]]) -> bytes:
    out = [_NOT_THROTTLED if version >= 3 else b"", _INT.pack(len(topics))]
    for topic in topics:
        name = topic["name"].encode()
        partitions = topic["partitions"]
        out += (struct.pack(">h", len(name)), name, _INT.pack(len(partitions)))
        out += [_LEGACY_CODE.pack(part["partition_index"], part["error_code"]) for part in partitions]
    return b"".join(out)
