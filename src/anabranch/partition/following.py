"""Following: one replica brought in step with its leader, from the leader's answers to its fetches.

    asked     the log's end, and the epoch of what is before it
    answered  records     appended as they are; the high watermark, the log's start
              diverging   the leader's history parted from ours there: cut, and ask again
              out of range   too far behind, or ahead: `begin_within` what the leader has

One lasts as long as an epoch.  What is answered after the next leader was elected is not for this one.
"""

from typing import Any

from anabranch.base.disk import Disk
from anabranch.log.append_fetched import append_fetched
from anabranch.log.segment import Segment
from anabranch.log.truncation import truncate_fully_and_start_at, truncate_to
from anabranch.partition.replica import Replica

_NO_EPOCH = -1


class Following:
    __slots__ = (
        "_disk",
        "_leaders_high_watermark",
        "_written_before",
        "is_in_step",
        "leader_epoch",
        "replica",
    )

    def __init__(self, replica: Replica, leader_epoch: int, disk: Disk) -> None:
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.is_in_step = False
        """It has what the leader has told that it is safe."""
        self._leaders_high_watermark = 0
        self._written_before = replica.log.written_bytes
        self._disk = disk

    @property
    def lag(self) -> int:
        """How many messages it lacks of those that the leader has told are safe."""
        return max(0, self._leaders_high_watermark - self.replica.log.log_end)

    @property
    def fetched_bytes(self) -> int:
        return self.replica.log.written_bytes - self._written_before

    @property
    def point(self) -> tuple[int, int, int, int]:
        """All that may change of what is `asked`."""
        opened = self.replica.log
        return opened.log_end, opened.log_start, opened.epochs.latest, self.leader_epoch

    def asked(self, max_bytes: int) -> dict[str, Any]:
        opened = self.replica.log
        return {
            "partition": self.replica.index,
            "current_leader_epoch": self.leader_epoch,
            "fetch_offset": opened.log_end,
            "last_fetched_epoch": opened.epochs.latest,
            "log_start_offset": opened.log_start,
            "partition_max_bytes": max_bytes,
        }

    def answered(self, part: Any) -> list[Segment] | None:
        """Take what the leader gave.  None, or if the log was cut the segments that went, maybe none.

        The caller has it written down that the log was cut, and removes their files later.
        Corrupt if it is nothing that could follow what is there.
        """
        if self.replica.log.cut_due is not None:
            return self.replica.finish_cut(self._disk)
        if part.diverging_epoch is not None and part.diverging_epoch.end_offset >= 0:
            return self._part_ways(part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
        opened = self.replica.log
        if part.records:
            append_fetched(self._disk, opened, part.records, self.leader_epoch)
        self.replica.follow_to(part.high_watermark)
        self._leaders_high_watermark = part.high_watermark
        self.is_in_step = opened.log_end >= part.high_watermark
        if opened.log_start < part.log_start_offset <= opened.log_end:
            opened.advance_start(part.log_start_offset)
        return None

    def _part_ways(self, epoch: int, end: int) -> list[Segment] | None:
        """The leader's `epoch`, the last that both may have, ended at `end` there."""
        opened = self.replica.log
        ours, our_end = opened.epochs.end_of(epoch, opened.log_end)
        return self._cut(end if ours == _NO_EPOCH else min(end, our_end))

    def begin_within(self, start: int, end: int) -> list[Segment] | None:
        """The leader's log is from `start` to `end`, and ours ends elsewhere.  As `answered`."""
        opened = self.replica.log
        if opened.cut_due is not None:
            return self.replica.finish_cut(self._disk)
        if opened.log_end < start or end < opened.log_start:
            start = min(max(start, opened.log_start), end)
            dropped = truncate_fully_and_start_at(self._disk, opened, start)
            self.replica.truncated()
            return dropped
        return self._cut(end)

    def _cut(self, offset: int) -> list[Segment] | None:
        opened = self.replica.log
        offset = max(offset, opened.log_start)
        if offset >= opened.log_end:
            opened.epochs.truncate_end(offset)  # an empty log may know of one that began at its end
            return None
        dropped = truncate_to(self._disk, opened, offset)
        self.replica.truncated()
        return dropped
