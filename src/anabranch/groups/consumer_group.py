"""A consumer group (KIP-848): what the log says about it.

    epoch          goes up when the subscriptions or their topics change
    target_epoch   the epoch that `targets`, who should hold what, was computed for
    members        each on its way from what it holds to its target

    Empty        no members
    Assigning    target_epoch < epoch
    Reconciling  some member has not arrived at its target
    Stable       all have

All of this changes by replaying records only.  `owners` is made from what members hold: a partition has
one owner, who reads it or was told to stop and has not said that it did.
"""

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import msgspec

from anabranch.groups.consumer_member import LEFT, Held, Member, MemberState
from anabranch.groups.consumer_records import (
    EPOCH,
    HELD,
    MEMBER,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    Resolved,
    read_epoch,
    read_held,
    read_member,
    read_regex,
    read_target,
    read_target_epoch,
    tombstone,
)
from anabranch.groups.effects import KeyValue
from anabranch.groups.epoch_group import EpochGroup
from anabranch.groups.epoch_records import Key
from anabranch.groups.group import GroupKind
from anabranch.wire.kafka.schema import ErrorCode

_COMMITS_OF_CONSUMERS = 9
"""The version of OffsetCommit and OffsetFetch that knows member epochs."""
_NOT_TOLD = -1
"""The epoch of a transactional commit that does not say who commits."""


class ConsumerGroup(EpochGroup[Member]):
    kind = GroupKind.CONSUMER
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.resolved: dict[str, Resolved] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        self.static: dict[str, str] = {}
        """The member by its instance id."""
        # What a restart may forget.
        self.names_seen: frozenset[str] | None = None
        self.told_to_rejoin: set[str] = set()
        """Members of the classic protocol whose time to join again runs."""

    # --- what others ask

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.target_epoch < self.epoch:
            return "Assigning"
        return (
            "Stable" if all(self.has_arrived(member) for member in self.members.values()) else "Reconciling"
        )

    def has_arrived(self, member: Member) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.target_epoch

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in topics_of(member, self.resolved) for member in self.members.values())

    def validate_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool, version: int
    ) -> ErrorCode:
        if epoch < 0 and not self.members:
            return ErrorCode.none
        if transactional and epoch == _NOT_TOLD and not member_id and instance_id is None:
            return ErrorCode.none  # a producer knows the name of the group only
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not transactional and not member.is_classic and version < _COMMITS_OF_CONSUMERS:
            return ErrorCode.unsupported_version
        return _check_epoch(member, epoch)

    def may_commit_late(self, member_id: str, epoch: int, topic_id: UUID, partition: int) -> bool:
        """Whether `epoch`, though not the member's last, is one at which it held what it still holds.

        A commit that was under way while the epoch went up is no zombie's.
        """
        member = self.members.get(member_id)
        if member is None or epoch >= member.epoch:
            return False
        for held in (member.assigned, member.revoking):
            since = held.get(topic_id, {}).get(partition)
            if since is not None:
                return epoch >= since
        return False

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.none
        member = self.members.get(member_id or "")
        return ErrorCode.unknown_member_id if member is None else _check_epoch(member, epoch)

    def tombstones(self) -> list[KeyValue]:
        """Held before asked for, so that whoever replays half of them has no owner without a member."""
        return [
            *(tombstone(HELD, self.group_id, member_id) for member_id in self.members),
            *(tombstone(TARGET, self.group_id, member_id) for member_id in self.targets),
            tombstone(TARGET_EPOCH, self.group_id),
            *(tombstone(MEMBER, self.group_id, member_id) for member_id in self.members),
            *(tombstone(REGEX, self.group_id, regex) for regex in self.resolved),
            tombstone(EPOCH, self.group_id),
        ]

    def static_member(self, instance_id: str) -> Member | None:
        return self.members.get(self.static.get(instance_id, ""))

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        return (topic_id, partition) not in self.owners

    # --- replay

    def replay(self, key: Key, value: bytes | None) -> None:
        """Apply a record that is not the end of the group."""
        apply = _APPLY[key.kind] if value is not None else _FORGET[key.kind]
        apply(self, key.of, value or b"")

    def _set_epoch(self, _: str, value: bytes) -> None:
        self.epoch, self.topics_hash = read_epoch(value)

    def _set_target_epoch(self, _: str, value: bytes) -> None:
        self.target_epoch, self.target_computed_ms = read_target_epoch(value)

    def _clear_target_epoch(self, _: str, __: bytes) -> None:
        self.target_epoch = self.target_computed_ms = 0

    def _set_member(self, member_id: str, value: bytes) -> None:
        asked = read_member(member_id, value)
        known = self.members.get(member_id)
        if known is not None:
            asked = msgspec.structs.replace(
                asked,
                epoch=known.epoch,
                previous_epoch=known.previous_epoch,
                state=known.state,
                assigned=known.assigned,
                revoking=known.revoking,
            )
        self.members[member_id] = asked
        if asked.instance_id is not None:
            self.static[asked.instance_id] = member_id

    def _drop_member(self, member_id: str, _: bytes) -> None:
        self.told_to_rejoin.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._own(member_id, member.assigned, None)
        self._own(member_id, member.revoking, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]

    def _set_held(self, member_id: str, value: bytes) -> None:
        before = self.members.get(member_id) or Member(member_id=member_id)
        after = read_held(before, value)
        for held in (before.assigned, before.revoking):
            self._own(member_id, held, None)
        for held in (after.assigned, after.revoking):
            self._own(member_id, held, member_id)
        self.members[member_id] = after

    def _clear_held(self, member_id: str, _: bytes) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._own(member_id, member.assigned, None)
            self._own(member_id, member.revoking, None)
            nothing = member.holding(MemberState.STABLE, LEFT, {}, {})
            self.members[member_id] = msgspec.structs.replace(nothing, previous_epoch=LEFT)

    def _own(self, member_id: str, held: Held, owner: str | None) -> None:
        for topic_id, partitions in held.items():
            for partition in partitions:
                if owner is not None:
                    self.owners[topic_id, partition] = owner
                elif self.owners.get((topic_id, partition)) == member_id:
                    del self.owners[topic_id, partition]

    def _set_target(self, member_id: str, value: bytes) -> None:
        self.targets[member_id] = read_target(value)

    def _drop_target(self, member_id: str, _: bytes) -> None:
        self.targets.pop(member_id, None)

    def _set_regex(self, regex: str, value: bytes) -> None:
        self.resolved[regex] = read_regex(value)

    def _drop_regex(self, regex: str, _: bytes) -> None:
        self.resolved.pop(regex, None)


_APPLY = {
    EPOCH: ConsumerGroup._set_epoch,
    TARGET_EPOCH: ConsumerGroup._set_target_epoch,
    MEMBER: ConsumerGroup._set_member,
    TARGET: ConsumerGroup._set_target,
    HELD: ConsumerGroup._set_held,
    REGEX: ConsumerGroup._set_regex,
}
_FORGET = {
    TARGET_EPOCH: ConsumerGroup._clear_target_epoch,
    MEMBER: ConsumerGroup._drop_member,
    TARGET: ConsumerGroup._drop_target,
    HELD: ConsumerGroup._clear_held,
    REGEX: ConsumerGroup._drop_regex,
}


def topics_of(member: Member, resolved: dict[str, Resolved]) -> frozenset[str]:
    """What it is subscribed to, by name or by expression; an expression not resolved yet matches nothing."""
    if not member.topic_regex or member.topic_regex not in resolved:
        return member.topic_names
    return member.topic_names | resolved[member.topic_regex].topics


def preferred_assignor(members: Iterable[Member], default: str) -> str:
    """What most of those ask for who ask for any."""
    asked = Counter(member.assignor for member in members if member.assignor)
    return asked.most_common(1)[0][0] if asked else default


def _check_epoch(member: Member, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.none
    return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch
