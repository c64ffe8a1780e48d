"""Checkpoint points: recovery point, log start and high watermark per replica, as saved and to be saved.

A replica that is not open is as the last checkpoint had it.
"""

from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from anabranch.base.disk import Disk
from anabranch.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TopicPartition,
    read_offsets,
)
from anabranch.partition.replica import Replica


class Points:
    __slots__ = ("_by_file", "high_watermarks", "log_starts", "recovery_points")

    def __init__(self, disk: Disk, data: Path) -> None:
        self.recovery_points = read_offsets(disk, data / RECOVERY_POINTS)
        self.log_starts = read_offsets(disk, data / LOG_STARTS)
        self.high_watermarks = read_offsets(disk, data / HIGH_WATERMARKS)
        self._by_file = {
            RECOVERY_POINTS: self.recovery_points,
            LOG_STARTS: self.log_starts,
            HIGH_WATERMARKS: self.high_watermarks,
        }

    def forget(self, key: TopicPartition) -> None:
        for points in self._by_file.values():
            points.pop(key, None)

    def collected(
        self, topics: Container[str], opened: Iterable[Replica]
    ) -> Mapping[str, Mapping[TopicPartition, int]]:
        """By file, of the topics that are served."""
        for points in self._by_file.values():
            for key in [key for key in points if key[0] not in topics]:
                del points[key]
        for replica in opened:
            key, log = replica.key, replica.log
            # Of the active segment the indexes are not synced; it is read whole anyway, while it is the last.
            self.recovery_points[key] = min(log.recovery_point, log.active.base_offset)
            self.high_watermarks[key] = replica.high_watermark
            if log.log_start > log.segments[0].base_offset:
                self.log_starts[key] = log.log_start
            else:
                self.log_starts.pop(key, None)
        return self._by_file
