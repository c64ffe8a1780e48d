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

from anabranch.groups.consumer_member import JOINING, MemberState, Partitions
from anabranch.groups.effects import KeyValue
from anabranch.groups.epoch_records import (
    NO_TAGS,
    V0,
    EpochRecords,
    GroupEpoch,
    read_topic_partitions,
    topic_partitions,
)
from anabranch.groups.fields import INT32, INT64, Fields, compact_array, compact_string, int32s

MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, TOPICS = range(10, 16)
KEY_VERSIONS = frozenset((MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, TOPICS))

RECORDS = EpochRecords(
    "share group",
    target_epoch=TARGET_EPOCH,
    target=TARGET,
    of_a_member=frozenset((MEMBER, TARGET, CURRENT)),
)

key, read_key, tombstone = RECORDS.key, RECORDS.read_key, RECORDS.tombstone
target_epoch_record, read_target_epoch = RECORDS.target_epoch_record, RECORDS.read_target_epoch
target_record, read_target = RECORDS.target_record, RECORDS.read_target


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


def member_record(group_id: str, member: ShareMember) -> KeyValue:
    value = b"".join(
        (
            V0,
            compact_string(member.rack_id),
            compact_string(member.client_id),
            compact_string(member.client_host),
            compact_array(compact_string(name) for name in sorted(member.topic_names)),
            NO_TAGS,
        )
    )
    return KeyValue(key(MEMBER, group_id, member.member_id), value)


def read_member(member_id: str, data: bytes) -> ShareMember:
    """What it asked for; what it has is another record."""
    fields = RECORDS.value(data)
    return ShareMember(
        member_id=member_id,
        rack_id=fields.optional_string(flexible=True),
        client_id=fields.string(flexible=True),
        client_host=fields.string(flexible=True),
        topic_names=frozenset(fields.string(flexible=True) for _ in range(fields.count(flexible=True))),
    )


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> KeyValue:
    return KeyValue(key(EPOCH, group_id), V0 + INT32.pack(epoch) + INT64.pack(topics_hash) + NO_TAGS)


def read_epoch(data: bytes) -> GroupEpoch:
    fields = RECORDS.value(data)
    return GroupEpoch(fields.int32(), fields.int64())


def current_record(group_id: str, member: ShareMember) -> KeyValue:
    value = b"".join(
        (
            V0,
            INT32.pack(member.epoch),
            INT32.pack(member.previous_epoch),
            MemberState.STABLE.to_bytes(),
            topic_partitions(member.assigned),
            NO_TAGS,
        )
    )
    return KeyValue(key(CURRENT, group_id, member.member_id), value)


def read_current(asked: ShareMember, data: bytes) -> ShareMember:
    """`asked`, having what the record says."""
    fields = RECORDS.value(data)
    epoch, previous_epoch, _ = fields.int32(), fields.int32(), fields.int8()
    return msgspec.structs.replace(
        asked, epoch=epoch, previous_epoch=previous_epoch, assigned=read_topic_partitions(fields)
    )


def topics_record(group_id: str, topics: ShareTopics) -> KeyValue:
    deleting = compact_array(
        topic.bytes + compact_string(name) + NO_TAGS for topic, name in sorted(topics.deleting.items())
    )
    value = V0 + _shares(topics.initialising) + _shares(topics.initialised) + deleting + NO_TAGS
    return KeyValue(key(TOPICS, group_id), value)


def read_topics(data: bytes) -> ShareTopics:
    fields = RECORDS.value(data)
    initialising, initialised = _read_shares(fields), _read_shares(fields)
    deleting: dict[UUID, str] = {}
    for _ in range(fields.count(flexible=True)):
        topic = UUID(bytes=fields.take(16))
        deleting[topic] = fields.string(flexible=True)
        fields.tags()
    return ShareTopics(initialising, initialised, deleting)


def _shares(shares: Shares) -> bytes:
    return compact_array(
        topic.bytes + compact_string(share.name) + int32s(sorted(share.partitions)) + NO_TAGS
        for topic, share in sorted(shares.items())
    )


def _read_shares(fields: Fields) -> Shares:
    shares: dict[UUID, TopicShare] = {}
    for _ in range(fields.count(flexible=True)):
        topic = UUID(bytes=fields.take(16))
        shares[topic] = TopicShare(fields.string(flexible=True), frozenset(fields.int32s()))
        fields.tags()
    return shares
