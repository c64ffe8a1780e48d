"""The records of share groups (KIP-932), as Kafka 4.3 writes them to `__consumer_offsets`.

    key                    value (version 0, flexible)
    10  group, member      what the member asked for
    11  group              the group's epoch, and a hash of the topics it is subscribed to
    12  group              the epoch of the target assignment; tag 0: when it was computed
    13  group, member      the member's target
    14  group, member      what the member has
    15  group              its share partitions: being initialised, initialised, being deleted

The hash is our own, as that of consumer groups is.  Topics and partitions are written in order.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import msgspec

from anabranch.base.errors import Corrupt
from anabranch.groups.consumer_member import JOINING, MemberState, Partitions
from anabranch.groups.consumer_records import (
    GroupEpoch,
    Key,
    TargetEpoch,
    read_topic_partitions,
    topic_partitions,
)
from anabranch.groups.effects import KeyValue
from anabranch.groups.fields import (
    INT16,
    INT32,
    INT64,
    Fields,
    compact_array,
    compact_string,
    int32s,
    string,
    tagged,
)

MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, TOPICS = range(10, 16)
KEY_VERSIONS = frozenset((MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, TOPICS))

_OF_A_MEMBER = frozenset((MEMBER, TARGET, CURRENT))
_V0 = INT16.pack(0)
_NO_TAGS = b"\x00"
_TAG = 0


class ShareMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a share group: what it asked for, and what it has."""

    member_id: str
    # What it asked for: one record.
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    # What it has: another.
    epoch: int = JOINING
    previous_epoch: int = JOINING
    assigned: Partitions = {}


class TopicShare(NamedTuple):
    """Share partitions of a topic."""

    name: str
    partitions: frozenset[int]


Shares = Mapping[UUID, TopicShare]


class ShareTopics(NamedTuple):
    """The share partitions that a group has, by what is kept of them."""

    initialising: Shares = MappingProxyType({})
    initialised: Shares = MappingProxyType({})
    deleting: Mapping[UUID, str] = MappingProxyType({})


# Keys


def key(kind: int, group_id: str, of: str = "") -> bytes:
    return INT16.pack(kind) + string(group_id) + (string(of) if kind in _OF_A_MEMBER else b"")


def read_key(data: bytes) -> Key:
    fields = Fields(data)
    kind = fields.int16()
    return Key(kind, fields.string(), fields.string() if kind in _OF_A_MEMBER else "")


def tombstone(kind: int, group_id: str, of: str = "") -> KeyValue:
    return KeyValue(key(kind, group_id, of), None)


# Values


def member_record(group_id: str, member: ShareMember) -> KeyValue:
    value = b"".join(
        (
            _V0,
            compact_string(member.rack_id),
            compact_string(member.client_id),
            compact_string(member.client_host),
            compact_array(compact_string(name) for name in sorted(member.topic_names)),
            _NO_TAGS,
        )
    )
    return KeyValue(key(MEMBER, group_id, member.member_id), value)


def read_member(member_id: str, data: bytes) -> ShareMember:
    """What it asked for; what it has is another record."""
    fields = _value(data)
    return ShareMember(
        member_id=member_id,
        rack_id=fields.optional_string(flexible=True),
        client_id=fields.string(flexible=True),
        client_host=fields.string(flexible=True),
        topic_names=frozenset(fields.string(flexible=True) for _ in range(fields.count(flexible=True))),
    )


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> KeyValue:
    return KeyValue(key(EPOCH, group_id), _V0 + INT32.pack(epoch) + INT64.pack(topics_hash) + _NO_TAGS)


def read_epoch(data: bytes) -> GroupEpoch:
    fields = _value(data)
    return GroupEpoch(fields.int32(), fields.int64())


def target_epoch_record(group_id: str, epoch: int, computed_ms: int) -> KeyValue:
    tags = tagged({_TAG: INT64.pack(computed_ms)} if computed_ms else {})
    return KeyValue(key(TARGET_EPOCH, group_id), _V0 + INT32.pack(epoch) + tags)


def read_target_epoch(data: bytes) -> TargetEpoch:
    fields = _value(data)
    epoch, content = fields.int32(), fields.tags().get(_TAG)
    return TargetEpoch(epoch, 0 if content is None else Fields(content).int64())


def target_record(group_id: str, member_id: str, target: Partitions) -> KeyValue:
    return KeyValue(key(TARGET, group_id, member_id), _V0 + topic_partitions(target) + _NO_TAGS)


def read_target(data: bytes) -> Partitions:
    return read_topic_partitions(_value(data))


def current_record(group_id: str, member: ShareMember) -> KeyValue:
    value = b"".join(
        (
            _V0,
            INT32.pack(member.epoch),
            INT32.pack(member.previous_epoch),
            MemberState.STABLE.to_bytes(),
            topic_partitions(member.assigned),
            _NO_TAGS,
        )
    )
    return KeyValue(key(CURRENT, group_id, member.member_id), value)


def read_current(asked: ShareMember, data: bytes) -> ShareMember:
    """`asked`, having what the record says."""
    fields = _value(data)
    epoch, previous_epoch, _ = fields.int32(), fields.int32(), fields.int8()
    return msgspec.structs.replace(
        asked, epoch=epoch, previous_epoch=previous_epoch, assigned=read_topic_partitions(fields)
    )


def topics_record(group_id: str, topics: ShareTopics) -> KeyValue:
    deleting = compact_array(
        topic.bytes + compact_string(name) + _NO_TAGS for topic, name in sorted(topics.deleting.items())
    )
    value = _V0 + _shares(topics.initialising) + _shares(topics.initialised) + deleting + _NO_TAGS
    return KeyValue(key(TOPICS, group_id), value)


def read_topics(data: bytes) -> ShareTopics:
    fields = _value(data)
    initialising, initialised = _read_shares(fields), _read_shares(fields)
    deleting: dict[UUID, str] = {}
    for _ in range(fields.count(flexible=True)):
        topic = UUID(bytes=fields.take(16))
        deleting[topic] = fields.string(flexible=True)
        fields.tags()
    return ShareTopics(initialising, initialised, deleting)


def _shares(shares: Shares) -> bytes:
    return compact_array(
        topic.bytes + compact_string(share.name) + int32s(sorted(share.partitions)) + _NO_TAGS
        for topic, share in sorted(shares.items())
    )


def _read_shares(fields: Fields) -> Shares:
    shares: dict[UUID, TopicShare] = {}
    for _ in range(fields.count(flexible=True)):
        topic = UUID(bytes=fields.take(16))
        shares[topic] = TopicShare(fields.string(flexible=True), frozenset(fields.int32s()))
        fields.tags()
    return shares


def _value(data: bytes) -> Fields:
    fields = Fields(data)
    version = fields.int16()
    if version != 0:
        raise Corrupt(f"a record of a share group has version {version}, 0 is known")
    return fields
