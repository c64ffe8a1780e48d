"""Retention of unopened logs: whether it has something to do, from file names, sizes and time indexes.

A broker opens a log when it is first used, and retention holds for logs that nobody uses, too.  Names,
sizes and the last entry of a time index say when the oldest segment will be too old.  Nothing is checked
and nothing is kept: if there is something to delete the log is opened and looked at again.

It works on paths alone and may run in a thread.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Disk
from anabranch.log.config import LogConfig
from anabranch.log.paths import DELETED, LOG, TIME_INDEX, base_offset_of, segment_file
from anabranch.log.retention import Verdict, judge

_TIME_ENTRY = struct.Struct(">qi")
_ALL = 1 << 63


class Glance(NamedTuple):
    bases: list[int]
    """Where the segments begin, the active one last."""
    verdict: Verdict
    leftovers: list[Path]
    """Files that were out of the log when the broker stopped; opening it would remove them."""


class _Seen(NamedTuple):
    disk: Disk
    folder: Path
    base_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.disk.size(segment_file(self.folder, self.base_offset, LOG))

    @property
    def max_timestamp(self) -> int:
        path = segment_file(self.folder, self.base_offset, TIME_INDEX)
        last = self.disk.read_tail(path, _TIME_ENTRY.size)
        return int(_TIME_ENTRY.unpack(last)[0]) if len(last) == _TIME_ENTRY.size else -1


def glance(
    disk: Disk, folder: Path, config: LogConfig, log_start: int, now_ms: int, hold: int | None = None
) -> Glance | None:
    """What retention would do to the log in `folder`, None if there is no log."""
    try:
        names = disk.list(folder)
    except FileNotFoundError:
        return None
    bases = [base for name in names if name.endswith(LOG) and (base := base_offset_of(name)) is not None]
    if not bases:
        return None
    ends = [*bases[1:], bases[-1] + 1]  # what the last one holds does not matter: nobody writes to it
    segments = [_Seen(disk, folder, base, end) for base, end in zip(bases, ends, strict=True)]
    verdict = judge(
        segments,
        config,
        log_start=log_start,
        high_watermark=_ALL,
        now_ms=now_ms,
        modified_ms=lambda i: disk.modified_ms(segment_file(folder, bases[i], LOG)),
        hold=hold,
    )
    return Glance(bases, verdict, [folder / name for name in names if name.endswith(DELETED)])
