"""Classic group records: Kafka's keys and values for offsets and groups in `__consumer_offsets`.

    key     int16 version, then                      value   int16 version, then
    0, 1    group, topic, partition                  0-4     an offset and what stands beside it
    2       group                                    0-4     a group and its members

Written as Kafka 4 writes them: an offset at version 4, with the topic's id when the client gave one;
at version 1 when the client set its own retention, which the later versions have no field for; a group
at version 3.  Read at every version, since a topic may be older than its broker.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from anabranch.base.errors import Corrupt
from anabranch.groups.fields import (
    INT16,
    INT32,
    INT64,
    Fields,
    blob,
    compact_string,
    string,
)
from anabranch.records.builder import Alike

OFFSET_KEYS = frozenset((0, 1))
GROUP_KEY = 2

_FLEXIBLE = 4
_KEY_VERSION = INT16.pack(1)
_V4 = INT16.pack(4)
_NO_TAGS = b"\x00"
_NOTHING_SAID = b"\x01"
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one tagged field, number 0, 16 bytes
_TOPIC_ID_BYTES = 19
_LEAST_V4_BYTES = 24
_OFFSET_V1 = struct.Struct(">hq")
_OFFSET_V4 = struct.Struct(">hqi")
_TIMES_V1 = struct.Struct(">qq")


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """How far a group has got in a partition; -1 where an older client or version says nothing."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = -1
    topic_id: UUID | None = None


class MemberMetadata(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A classic group after a rebalance.  `state_ms`: since when it is in its state, -1 if not known."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberMetadata, ...]


# Offsets: a group may commit thousands at once, and a restart reads them all, so the usual case is short.


@lru_cache(256)
def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """What the keys of all partitions of a topic begin with; the partition, an int32, is the rest."""
    return _KEY_VERSION + string(group_id) + string(topic)


def write_offset_key(key: OffsetKey) -> bytes:
    return offset_key_prefix(key.group_id, key.topic) + INT32.pack(key.partition)


def read_offset_key(data: bytes) -> OffsetKey:
    try:
        (partition,) = INT32.unpack_from(data, len(data) - INT32.size)
    except struct.error as error:
        raise Corrupt("the key of an offset is cut short") from error
    return OffsetKey(*_names(data[: -INT32.size]), partition)


@lru_cache(256)
def _names(prefix: bytes) -> tuple[str, str]:
    """Group and topic of a key without its partition; the keys of a commit, or of a log, repeat them."""
    fields = Fields(prefix, INT16.size)
    names = fields.string(), fields.string()
    if offset_key_prefix(*names)[INT16.size :] != prefix[INT16.size :]:
        raise Corrupt("the key of an offset has more than its fields")
    return names


def write_offset(value: CommittedOffset) -> bytes:
    return write_offset_fields(*value)


def write_offset_fields(
    offset: int, leader_epoch: int, metadata: str, committed_ms: int, expires_ms: int, topic_id: UUID | None
) -> bytes:
    """A CommittedOffset, without making one."""
    if expires_ms >= 0:
        times = _TIMES_V1.pack(committed_ms, expires_ms)
        return _OFFSET_V1.pack(1, offset) + string(metadata) + times
    said = compact_string(metadata) if metadata else _NOTHING_SAID
    return (
        _OFFSET_V4.pack(4, offset, leader_epoch) + said + INT64.pack(committed_ms) + _topic_id_tags(topic_id)
    )


def alike_offset_keys(group_id: str, topic: str, partitions: Sequence[int]) -> Alike:
    """The keys of many partitions of a topic."""
    return Alike(offset_key_prefix(group_id, topic), "i", (partitions,))


def alike_offsets(
    offsets: Sequence[int], leader_epochs: Sequence[int], committed_ms: int, topic_id: UUID | None
) -> Alike:
    """Many that were committed together, without metadata or a retention of their own."""
    rest = _NOTHING_SAID + INT64.pack(committed_ms) + _topic_id_tags(topic_id)
    return Alike(_V4, "qi", (offsets, leader_epochs), rest)


@lru_cache(1024)
def _topic_id_tags(topic_id: UUID | None) -> bytes:
    return _NO_TAGS if topic_id is None else _TOPIC_ID_TAG + topic_id.bytes


def read_offset(data: bytes) -> CommittedOffset:
    return _read_usual_offset(data) or _read_any_offset(data)


def _read_usual_offset(data: bytes) -> CommittedOffset | None:
    """An offset as it is written here, with a short metadata; None if it is anything else."""
    if data[:2] != _V4 or len(data) < _LEAST_V4_BYTES or not 0 < data[14] < 128:
        return None
    at = 14 + data[14]
    tags = data[at + 8 :]
    if tags != _NO_TAGS and (len(tags) != _TOPIC_ID_BYTES or tags[:3] != _TOPIC_ID_TAG):
        return None
    try:
        metadata = str(data[15:at], "utf-8")
    except UnicodeDecodeError:
        return None
    _, offset, leader_epoch = _OFFSET_V4.unpack_from(data)
    topic_id = _uuid(tags[3:]) if len(tags) == _TOPIC_ID_BYTES else None
    return CommittedOffset(offset, leader_epoch, metadata, INT64.unpack_from(data, at)[0], -1, topic_id)


def _read_any_offset(data: bytes) -> CommittedOffset:
    fields = Fields(data)
    version = _known(fields.int16(), "a committed offset")
    flexible = version >= _FLEXIBLE
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else -1
    metadata = fields.string(flexible=flexible)
    committed_ms = fields.int64()
    expires_ms = fields.int64() if version == 1 else -1
    topic_id = fields.tags().get(0) if flexible else None
    return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms, _uuid(topic_id))


# Groups


def write_group_key(group_id: str) -> bytes:
    return INT16.pack(GROUP_KEY) + string(group_id)


def read_group_key(data: bytes) -> str:
    return Fields(data, INT16.size).string()


def write_group(value: GroupMetadata) -> bytes:
    return b"".join(
        (
            INT16.pack(3),
            string(value.protocol_type),
            INT32.pack(value.generation),
            string(value.protocol),
            string(value.leader),
            INT64.pack(value.state_ms),
            INT32.pack(len(value.members)),
            *(_write_member(member) for member in value.members),
        )
    )


def read_group(data: bytes) -> GroupMetadata:
    fields = Fields(data)
    version = _known(fields.int16(), "a group")
    flexible = version >= _FLEXIBLE
    protocol_type = fields.string(flexible=flexible)
    generation = fields.int32()
    protocol = fields.optional_string(flexible=flexible)
    leader = fields.optional_string(flexible=flexible)
    state_ms = fields.int64() if version >= 2 else -1
    members = tuple(_read_member(fields, version) for _ in range(fields.count(flexible=flexible)))
    return GroupMetadata(protocol_type, generation, protocol, leader, state_ms, members)


def _write_member(member: MemberMetadata) -> bytes:
    return b"".join(
        (
            string(member.member_id),
            string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            blob(member.subscription),
            blob(member.assignment),
        )
    )


def _read_member(fields: Fields, version: int) -> MemberMetadata:
    flexible = version >= _FLEXIBLE
    member_id = fields.string(flexible=flexible)
    instance_id = fields.optional_string(flexible=flexible) if version >= 3 else None
    client_id = fields.string(flexible=flexible)
    client_host = fields.string(flexible=flexible)
    rebalance_ms = fields.int32() if version >= 1 else -1
    session_ms = fields.int32()
    subscription = fields.blob(flexible=flexible)
    assignment = fields.blob(flexible=flexible)
    if flexible:
        fields.tags()
    return MemberMetadata(
        member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, subscription, assignment
    )


def _known(version: int, what: str) -> int:
    if not 0 <= version <= 4:
        raise Corrupt(f"{what} is written at version {version}, which is not known here")
    return version


@lru_cache(1024)
def _uuid(data: bytes | None) -> UUID | None:
    if data is None:
        return None
    if len(data) != 16:
        raise Corrupt(f"a topic id of {len(data)} bytes")
    return UUID(bytes=data) if any(data) else None
