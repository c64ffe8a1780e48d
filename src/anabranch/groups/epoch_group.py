"""Group epochs: epochs, members and targets, as consumer groups and share groups both have them.

    epoch          goes up when what the group reads changes
    target_epoch   the epoch that `targets`, who should have what, was computed for

All of it changes only by replaying records, except for the time when topics were last looked at.
"""

from typing import Generic, TypeVar

from anabranch.groups.consumer_member import Partitions

M = TypeVar("M")


class EpochGroup(Generic[M]):
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.topics_hash = 0
        self.target_epoch = 0
        self.target_computed_ms = 0
        self.members: dict[str, M] = {}
        self.targets: dict[str, Partitions] = {}
        # What a restart may forget.
        self.looked_at_topics_ms = 0

    @property
    def is_empty(self) -> bool:
        return not self.members

    def heard_of(self, member_id: str, now_ms: int) -> None:
        """Only heartbeats keep a member of these protocols in its group."""

    def ages_from(self, committed_ms: int) -> int | None:
        return committed_ms
