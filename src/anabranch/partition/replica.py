"""A replica: this broker's copy of a partition, its files and how far they are known to be safe.

    Replica ─── log             segments, indexes, epochs, producers
            ├── high_watermark  of the role while this broker leads, else what the leader last told
            └── leader          the role (`Partition`) while this broker leads, None while it does not

A replica outlives leadership.  Retention, compaction, flushing and checkpoints belong to it and go on
whoever leads; whatever exists only while this broker leads belongs to the role, and goes with it.

A role is never revived: `lead` takes a new one each time, `resign` drops the one there is.
"""

from typing import TYPE_CHECKING

from anabranch.base.disk import Disk
from anabranch.base.ids import TopicName
from anabranch.base.waiters import Waiters
from anabranch.log.checkpoints import TopicPartition
from anabranch.log.config import LogConfig
from anabranch.log.local_log import LocalLog
from anabranch.log.segment import Segment
from anabranch.log.truncation import finish_cut

if TYPE_CHECKING:
    from anabranch.partition.partition import Partition


class Replica:
    __slots__ = (
        "_high_watermark",
        "index",
        "is_closed",
        "is_cut",
        "key",
        "leader",
        "log",
        "readers",
        "topic",
    )

    def __init__(
        self, topic: TopicName, index: int, key: TopicPartition, log: LocalLog, high_watermark: int
    ) -> None:
        """`key` is what checkpoints know it by, `high_watermark` what they have of it."""
        self.topic = topic
        self.index = index
        self.key = key
        self.log = log
        self.leader: Partition | None = None
        self.is_closed = False
        self.is_cut = False
        """Its log was cut, and that is not written down yet."""
        self.readers = Waiters()
        """Who reads it while this broker follows (`Followed`)."""
        self._high_watermark = max(log.log_start, min(high_watermark, log.log_end))

    def __lt__(self, other: "Replica") -> bool:
        return self.key < other.key  # so that a set of them can be gone through in the same order each time

    def __str__(self) -> str:
        return f"{self.topic.kafka}-{self.index}"

    @property
    def is_settled(self) -> bool:
        """Whether something may be appended: no cut is to be finished or written down first."""
        return not self.is_cut and self.log.cut_due is None

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def high_watermark(self) -> int:
        return self._high_watermark if self.leader is None else self.leader.high_watermark

    @property
    def last_stable(self) -> int:
        """Every transaction below is decided, and safe."""
        return self.log.stable_below(self.high_watermark)

    def lead(self, leader: "Partition") -> None:
        assert self.leader is None, f"{self} is led already"
        self.leader = leader
        self.readers.wake()

    def resign(self) -> None:
        """Another broker leads, or nobody: what is known to be safe stays known."""
        self._high_watermark = self.high_watermark
        self.leader = None

    def follow_to(self, high_watermark: int) -> None:
        """The leader says that everything below is safe, of what this replica has."""
        before = self._high_watermark
        self._high_watermark = max(before, min(high_watermark, self.log.log_end))
        self.log.producers.safe_below(self._high_watermark)
        if self._high_watermark > before:
            self.readers.wake()

    def truncated(self) -> None:
        """The log was cut: nothing is safe that is not there."""
        self.is_cut = True
        self._high_watermark = max(self.log.log_start, min(self._high_watermark, self.log.log_end))

    def finish_cut(self, disk: Disk) -> list[Segment]:
        """Cut the log again, if the disk refused that midway.  The segments that went."""
        if self.log.cut_due is None:
            return []
        dropped = finish_cut(disk, self.log)
        self.truncated()
        return dropped

    def close(self) -> None:
        """The partition is gone from this broker: its files are closed and may be removed."""
        self.is_closed = True
        self.readers.wake()
        for segment in self.log.segments:
            segment.close()
        if self.log.view is not None:
            self.log.view.close()
