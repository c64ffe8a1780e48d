"""The records that consumer groups and share groups write alike, each under kinds of its own.

    key            the kind, the group, and for some kinds a member
    target epoch   the epoch that the target assignment was computed for; tag 0: when
    target         of a member: topics and their partitions

Both protocols number their groups' states by epochs, and keep the same of them.  Topics and partitions are
written in order, so that equal states are equal bytes.  Values are flexible, and of version 0.
"""

from typing import NamedTuple
from uuid import UUID

from anabranch.base.errors import Corrupt
from anabranch.groups.consumer_member import Partitions
from anabranch.groups.effects import KeyValue
from anabranch.groups.fields import INT16, INT32, INT64, Fields, compact_array, int32s, string, tagged

V0 = INT16.pack(0)
NO_TAGS = b"\x00"
TAG = 0


class Key(NamedTuple):
    kind: int
    group_id: str
    of: str = ""
    """The member, or the regular expression."""


class GroupEpoch(NamedTuple):
    epoch: int
    topics_hash: int


class TargetEpoch(NamedTuple):
    epoch: int
    computed_ms: int


class EpochRecords:
    def __init__(self, whose: str, *, target_epoch: int, target: int, of_a_member: frozenset[int]) -> None:
        """Of groups called `whose`; the keys of the kinds `of_a_member` name one."""
        self._whose = whose
        self._target_epoch = target_epoch
        self._target = target
        self._of_a_member = of_a_member

    # --- keys

    def key(self, kind: int, group_id: str, of: str = "") -> bytes:
        return INT16.pack(kind) + string(group_id) + (string(of) if kind in self._of_a_member else b"")

    def read_key(self, data: bytes) -> Key:
        fields = Fields(data)
        kind = fields.int16()
        return Key(kind, fields.string(), fields.string() if kind in self._of_a_member else "")

    def tombstone(self, kind: int, group_id: str, of: str = "") -> KeyValue:
        return KeyValue(self.key(kind, group_id, of), None)

    # --- values

    def value(self, data: bytes) -> Fields:
        """What stands behind the version.  Corrupt if it is not the one that is known."""
        fields = Fields(data)
        version = fields.int16()
        if version != 0:
            raise Corrupt(f"a record of a {self._whose} has version {version}, 0 is known")
        return fields

    def target_epoch_record(self, group_id: str, epoch: int, computed_ms: int) -> KeyValue:
        value = V0 + INT32.pack(epoch) + tagged_int64(computed_ms)
        return KeyValue(self.key(self._target_epoch, group_id), value)

    def read_target_epoch(self, data: bytes) -> TargetEpoch:
        fields = self.value(data)
        return TargetEpoch(fields.int32(), read_tagged_int64(fields))

    def target_record(self, group_id: str, member_id: str, target: Partitions) -> KeyValue:
        return KeyValue(self.key(self._target, group_id, member_id), V0 + topic_partitions(target) + NO_TAGS)

    def read_target(self, data: bytes) -> Partitions:
        return read_topic_partitions(self.value(data))


# Parts


def topic_partitions(partitions: Partitions) -> bytes:
    return compact_array(
        topic.bytes + int32s(sorted(indexes)) + NO_TAGS for topic, indexes in sorted(partitions.items())
    )


def read_topic_partitions(fields: Fields) -> Partitions:
    partitions: dict[UUID, frozenset[int]] = {}
    for _ in range(fields.count(flexible=True)):
        topic = UUID(bytes=fields.take(16))
        partitions[topic] = frozenset(fields.int32s())
        fields.tags()
    return partitions


def tagged_int64(number: int) -> bytes:
    """The tags of a record that has nothing else in them; 0 is left out."""
    return tagged({TAG: INT64.pack(number)} if number else {})


def read_tagged_int64(fields: Fields) -> int:
    content = fields.tags().get(TAG)
    return Fields(content).int64() if content is not None else 0
