"""A share group (KIP-932): what the log says about it.

    epoch          goes up when the subscriptions, their topics or its share partitions change
    target_epoch   the epoch that `targets`, who should have what, was computed for
    members        each with what it was told last
    topics         the group's share partitions: an assignment names only those that are initialised

    Empty     no members
    Stable    some: a partition may have several readers, so nobody has to wait for anybody

All of this changes by replaying records only.  A share group has no committed offsets: what it is done with
is kept by `share_states`.
"""

from uuid import UUID

import msgspec

from anabranch.groups.consumer_member import LEFT
from anabranch.groups.effects import KeyValue
from anabranch.groups.epoch_group import EpochGroup
from anabranch.groups.epoch_records import Key
from anabranch.groups.group import GroupKind
from anabranch.groups.share_records import (
    CURRENT,
    EPOCH,
    MEMBER,
    TARGET,
    TARGET_EPOCH,
    TOPICS,
    ShareMember,
    Shares,
    ShareTopics,
    read_current,
    read_epoch,
    read_member,
    read_target,
    read_target_epoch,
    read_topics,
    tombstone,
)
from anabranch.groups.share_state import ShareKey
from anabranch.wire.kafka.schema import ErrorCode


class ShareGroup(EpochGroup[ShareMember]):
    kind = GroupKind.SHARE
    protocol_type = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics = ShareTopics()

    # --- what others ask

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values())

    def validate_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool, version: int
    ) -> ErrorCode:
        """Share groups commit nothing: to whoever tries, there is no group to commit for."""
        return ErrorCode.group_id_not_found

    def may_commit_late(self, member_id: str, epoch: int, topic_id: UUID, partition: int) -> bool:
        return False

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.group_id_not_found

    def tombstones(self) -> list[KeyValue]:
        return [
            *(tombstone(CURRENT, self.group_id, member_id) for member_id in self.members),
            *(tombstone(TARGET, self.group_id, member_id) for member_id in self.targets),
            tombstone(TARGET_EPOCH, self.group_id),
            *(tombstone(MEMBER, self.group_id, member_id) for member_id in self.members),
            tombstone(TOPICS, self.group_id),
            tombstone(EPOCH, self.group_id),
        ]

    def share_keys(self, shares: Shares) -> list[ShareKey]:
        return [
            ShareKey(self.group_id, topic_id, partition)
            for topic_id, share in shares.items()
            for partition in sorted(share.partitions)
        ]

    # --- as the log has it

    def replay(self, what: Key, value: bytes | None) -> None:
        """Apply a record; the end of the group is not one of those."""
        if value is not None:
            _APPLY[what.kind](self, what.of, value)
        elif what.kind in _FORGET:
            _FORGET[what.kind](self, what.of)

    def _set_epoch(self, _: str, value: bytes) -> None:
        self.epoch, self.topics_hash = read_epoch(value)

    def _set_target_epoch(self, _: str, value: bytes) -> None:
        self.target_epoch, self.target_computed_ms = read_target_epoch(value)

    def _set_member(self, member_id: str, value: bytes) -> None:
        asked = read_member(member_id, value)
        known = self.members.get(member_id)
        if known is not None:
            asked = msgspec.structs.replace(
                asked, epoch=known.epoch, previous_epoch=known.previous_epoch, assigned=known.assigned
            )
        self.members[member_id] = asked

    def _set_current(self, member_id: str, value: bytes) -> None:
        before = self.members.get(member_id) or ShareMember(member_id=member_id)
        self.members[member_id] = read_current(before, value)

    def _set_target(self, member_id: str, value: bytes) -> None:
        self.targets[member_id] = read_target(value)

    def _set_topics(self, _: str, value: bytes) -> None:
        self.topics = read_topics(value)

    def _drop_member(self, member_id: str) -> None:
        self.members.pop(member_id, None)

    def _drop_current(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self.members[member_id] = msgspec.structs.replace(
                member, epoch=LEFT, previous_epoch=LEFT, assigned={}
            )

    def _drop_target(self, member_id: str) -> None:
        self.targets.pop(member_id, None)

    def _drop_target_epoch(self, _: str) -> None:
        self.target_epoch = self.target_computed_ms = 0

    def _drop_topics(self, _: str) -> None:
        self.topics = ShareTopics()


_APPLY = {
    EPOCH: ShareGroup._set_epoch,
    TARGET_EPOCH: ShareGroup._set_target_epoch,
    MEMBER: ShareGroup._set_member,
    TARGET: ShareGroup._set_target,
    CURRENT: ShareGroup._set_current,
    TOPICS: ShareGroup._set_topics,
}
_FORGET = {
    TARGET_EPOCH: ShareGroup._drop_target_epoch,
    MEMBER: ShareGroup._drop_member,
    TARGET: ShareGroup._drop_target,
    CURRENT: ShareGroup._drop_current,
    TOPICS: ShareGroup._drop_topics,
}
