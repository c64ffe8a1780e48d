"""The records of consumer groups (KIP-848), as Kafka 4.3 writes them to `__consumer_offsets`.

    key                    value (version 0, flexible)
     3  group              the group's epoch; tag 0: a hash of the topics it is subscribed to
     4  group              (before 4.0: those topics; read past, and removed with the group)
     5  group, member      what the member asked for; tag 0: its classic protocols
     6  group              the epoch of the target assignment; tag 0: when it was computed
     7  group, member      the member's target
     8  group, member      what the member holds; tag 0 of each topic: the epochs of its partitions
    16  group, regex       the topics that it matched, and when

The hash is our own, not Kafka's: nobody but the coordinator compares it, and only with its own.  Topics
and partitions are written in order, so that equal states are equal bytes.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import msgspec

from anabranch.groups.consumer_member import (
    ClassicMember,
    ClassicProtocol,
    Held,
    Member,
    MemberState,
)
from anabranch.groups.effects import KeyValue
from anabranch.groups.epoch_records import (
    NO_TAGS,
    TAG,
    V0,
    EpochRecords,
    GroupEpoch,
    read_tagged_int64,
    tagged_int64,
)
from anabranch.groups.fields import (
    INT32,
    INT64,
    Fields,
    compact_array,
    compact_blob,
    compact_string,
    int32s,
    tagged,
)

EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, HELD, REGEX = 3, 4, 5, 6, 7, 8, 16
KEY_VERSIONS = frozenset((EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, HELD, REGEX))

RECORDS = EpochRecords(
    "consumer group",
    target_epoch=TARGET_EPOCH,
    target=TARGET,
    of_a_member=frozenset((MEMBER, TARGET, HELD, REGEX)),
)

key, read_key, tombstone = RECORDS.key, RECORDS.read_key, RECORDS.tombstone
target_epoch_record, read_target_epoch = RECORDS.target_epoch_record, RECORDS.read_target_epoch
target_record, read_target = RECORDS.target_record, RECORDS.read_target


class Resolved(NamedTuple):
    """What a regular expression stood for."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> KeyValue:
    return KeyValue(key(EPOCH, group_id), V0 + INT32.pack(epoch) + tagged_int64(topics_hash))


def read_epoch(data: bytes) -> GroupEpoch:
    fields = RECORDS.value(data)
    return GroupEpoch(fields.int32(), read_tagged_int64(fields))


def member_record(group_id: str, member: Member) -> KeyValue:
    value = b"".join(
        (
            V0,
            compact_string(member.instance_id),
            compact_string(member.rack_id),
            compact_string(member.client_id),
            compact_string(member.client_host),
            compact_array(compact_string(name) for name in sorted(member.topic_names)),
            compact_string(member.topic_regex),
            INT32.pack(member.rebalance_timeout_ms),
            compact_string(member.assignor),
            tagged({TAG: _classic(member.classic)}),
        )
    )
    return KeyValue(key(MEMBER, group_id, member.member_id), value)


def read_member(member_id: str, data: bytes) -> Member:
    """What it asked for; what it holds is another record."""
    fields = RECORDS.value(data)
    return Member(
        member_id=member_id,
        instance_id=fields.optional_string(flexible=True),
        rack_id=fields.optional_string(flexible=True),
        client_id=fields.string(flexible=True),
        client_host=fields.string(flexible=True),
        topic_names=frozenset(fields.string(flexible=True) for _ in range(fields.count(flexible=True))),
        topic_regex=fields.optional_string(flexible=True) or "",
        rebalance_timeout_ms=fields.int32(),
        assignor=fields.optional_string(flexible=True),
        classic=_read_classic(fields.tags().get(TAG)),
    )


def held_record(group_id: str, member: Member) -> KeyValue:
    value = b"".join(
        (
            V0,
            INT32.pack(member.epoch),
            INT32.pack(member.previous_epoch),
            member.state.to_bytes(),
            _held(member.assigned),
            _held(member.revoking),
            NO_TAGS,
        )
    )
    return KeyValue(key(HELD, group_id, member.member_id), value)


def read_held(asked: Member, data: bytes) -> Member:
    """`asked`, holding what the record says."""
    fields = RECORDS.value(data)
    epoch, previous_epoch, state = fields.int32(), fields.int32(), fields.int8()
    known = state in (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)
    held = asked.holding(
        MemberState(state) if known else MemberState.UNKNOWN,
        epoch,
        _read_held(fields),
        _read_held(fields),
    )
    return msgspec.structs.replace(held, previous_epoch=previous_epoch)


def regex_record(group_id: str, regex: str, resolved: Resolved) -> KeyValue:
    topics = compact_array(compact_string(name) for name in sorted(resolved.topics))
    value = V0 + topics + INT64.pack(resolved.version) + INT64.pack(resolved.resolved_ms) + NO_TAGS
    return KeyValue(key(REGEX, group_id, regex), value)


def read_regex(data: bytes) -> Resolved:
    fields = RECORDS.value(data)
    topics = frozenset(fields.string(flexible=True) for _ in range(fields.count(flexible=True)))
    return Resolved(topics, fields.int64(), fields.int64())


# Parts


def _held(held: Held) -> bytes:
    return compact_array(_held_topic(topic, epochs) for topic, epochs in sorted(held.items()))


def _held_topic(topic: UUID, epochs: Mapping[int, int]) -> bytes:
    partitions = sorted(epochs)
    at = int32s(epochs[partition] for partition in partitions)
    return topic.bytes + int32s(partitions) + tagged({TAG: at})


def _read_held(fields: Fields) -> Held:
    held: dict[UUID, dict[int, int]] = {}
    for _ in range(fields.count(flexible=True)):
        topic = UUID(bytes=fields.take(16))
        partitions = fields.int32s()
        content = fields.tags().get(TAG)
        epochs = Fields(content).int32s() if content is not None else []
        # Before 4.3 there were no such epochs; 0 lets any epoch of the member's commit.
        epochs += [0] * (len(partitions) - len(epochs))
        held[topic] = dict(zip(partitions, epochs, strict=False))
    return held


def _classic(classic: ClassicMember | None) -> bytes:
    # A tagged structure that may be null is written even then: a byte says whether it follows.
    if classic is None:
        return b"\x00"
    protocols = compact_array(
        compact_string(protocol.name) + compact_blob(protocol.metadata) + NO_TAGS
        for protocol in classic.protocols
    )
    return b"\x01" + INT32.pack(classic.session_timeout_ms) + protocols + NO_TAGS


def _read_classic(content: bytes | None) -> ClassicMember | None:
    if content is None:
        return None
    fields = Fields(content)
    if fields.varint() == 0:
        return None
    session_timeout_ms = fields.int32()
    protocols = []
    for _ in range(fields.count(flexible=True)):
        protocols.append(ClassicProtocol(fields.string(flexible=True), fields.blob(flexible=True)))
        fields.tags()
    return ClassicMember(session_timeout_ms, tuple(protocols))
