"""Group epoch change: the records and targets that consumer groups and share groups have in common.

A decision looks at the change, not at the group, which follows when the records are in the log.

The target is computed at once when the epoch goes up, whoever's request that was, so that members lose no
time.  It is put off only when epochs follow each other quickly (many members starting together), by at most
the protocol's assignment interval, and by less in a small group, where computing it costs little.
"""

from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from anabranch.groups.consumer_member import Partitions
from anabranch.groups.consumer_pace import assignment_interval_ms
from anabranch.groups.effects import Effects, KeyValue
from anabranch.groups.epoch_group import EpochGroup
from anabranch.groups.epoch_records import EpochRecords
from anabranch.groups.parts import Surroundings
from anabranch.groups.subscribed_topics import LOOK_AT_TOPICS_MS

ASSIGN = "assign"

M = TypeVar("M")


class EpochChange(Generic[M]):
    name: ClassVar[str]
    """The protocol's, which its timers begin with."""
    records: ClassVar[EpochRecords]

    def __init__(self, group: EpochGroup[M], around: Surroundings, effects: Effects, now_ms: int) -> None:
        self.members = dict(group.members)
        self.targets = dict(group.targets)
        self.target_epoch = group.target_epoch
        self.epoch = group.epoch
        self._before = group
        self._around = around
        self._effects = effects
        self._now_ms = now_ms

    def _write(self, record: KeyValue) -> None:
        self._effects.write(record.key, record.value)

    def _forget(self, member_id: str, kinds: tuple[int, ...]) -> None:
        """`member_id` is no member any more; its records are of these kinds."""
        for kind in kinds:
            self._write(self.records.tombstone(kind, self._before.group_id, member_id))
        del self.members[member_id]
        self.targets.pop(member_id, None)

    def _is_time_to_look_at_topics(self) -> bool:
        """Not at every heartbeat; from now on it is a while until it is time again."""
        if self._now_ms - self._before.looked_at_topics_ms < LOOK_AT_TOPICS_MS:
            return False
        self._effects.after(self._looked_at_topics)
        return True

    def _looked_at_topics(self) -> None:
        self._before.looked_at_topics_ms = self._now_ms

    def _is_time_to_assign(self, configured_ms: int) -> bool:
        """Whether the target may be computed now, at such an interval; if not, a timer is set for it."""
        interval_ms = assignment_interval_ms(configured_ms, len(self.members))
        due_ms = self._before.target_computed_ms + interval_ms
        timer = (self.name, ASSIGN, self._before.group_id)
        if self._now_ms < due_ms <= self._now_ms + interval_ms:  # a clock set back delays nothing
            self._effects.at(timer, due_ms)
            return False
        self._effects.cancel(timer)
        return True

    def _set_targets(self, targets: Mapping[str, Partitions]) -> None:
        """`targets` are what members should have at this epoch."""
        group_id = self._before.group_id
        for member_id, target in targets.items():
            if target != self.targets.get(member_id):
                self._write(self.records.target_record(group_id, member_id, target))
            self.targets[member_id] = target
        self.target_epoch = self.epoch
        self._write(self.records.target_epoch_record(group_id, self.epoch, self._now_ms))
