"""The groups of one partition of `__consumer_offsets`.

    replay(key, value) ─> the part that owns the key's version
    timeout(timer)     ─> the part whose name the timer begins with

A record of a kind that nobody here knows (streams groups, kinds to come) is passed over:
it stays in the log for whoever does.
"""

from collections.abc import Hashable

from anabranch.groups.classic import ClassicGroups
from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.consumer import ConsumerGroups
from anabranch.groups.consumer_classic import ClassicMembersOfConsumerGroups
from anabranch.groups.effects import Effects
from anabranch.groups.fields import INT16
from anabranch.groups.group import Group, GroupKind
from anabranch.groups.offsets import CommittedOffsets
from anabranch.groups.parts import Part, Surroundings
from anabranch.groups.share import ShareGroups


class GroupShard:
    def __init__(self, around: Surroundings) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets(around, self.groups, ClassicGroup)
        self.classic = ClassicGroups(around, self.groups, ClassicMembersOfConsumerGroups(around, self.groups))
        self.consumer = ConsumerGroups(around, self.groups)
        self.share = ShareGroups(around, self.groups)
        parts: tuple[Part, ...] = (self.offsets, self.classic, self.consumer, self.share)
        self._by_name = {part.name: part for part in parts}
        self._by_version = {version: part for part in parts for version in part.key_versions}

    def has_share_group(self, group_id: str) -> bool:
        group = self.groups.get(group_id)
        return group is not None and group.kind is GroupKind.SHARE

    def replay(self, key: bytes, value: bytes | None) -> None:
        part = self._by_version.get(_version(key))
        if part is not None:
            part.replay(key, value)

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        if _version(key) in self.offsets.key_versions:  # nothing else is done in transactions
            self.offsets.replay_pending(producer_id, key, value)

    def transaction_ended(self, producer_id: int, *, commit: bool) -> None:
        self.offsets.transaction_ended(producer_id, commit=commit)

    def loaded(self, now_ms: int) -> Effects:
        effects = Effects()
        for part in self._by_name.values():
            part.loaded(effects, now_ms)
        return effects

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        assert isinstance(timer, tuple)
        return self._by_name[timer[0]].timeout(timer, now_ms)


def _version(key: bytes) -> int:
    """What every key begins with; -1, which is none, of one that is too short."""
    return INT16.unpack_from(key)[0] if len(key) >= INT16.size else -1
