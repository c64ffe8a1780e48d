"""The compacted view of a log that is there: which one counts, and reading it.

    PARTITION/compacted/current            JSON: which folder, and the horizon; written whole, or not at all
    PARTITION/compacted/<random>/          the view's segments (`compaction_view`)

A view counts from the moment that `current` names it; by then it is durable.  A crash before that leaves a
folder that nobody names, which goes when the log is next opened.  A view whose files are not what they were,
or that goes further than its log (somebody took the log's end away), is given up.

Who reads a view goes on in it when there is a newer one, up to its horizon: a deletion between the two
horizons is in the log and not in the new view.  So a view that was replaced stays until its last reader has
left; `on_unused` is called then.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.network import FileRange
from anabranch.log.compaction_view import ViewSummary
from anabranch.log.config import LogConfig
from anabranch.log.epochs import LeaderEpochs
from anabranch.log.local_log import LocalLog, LogState
from anabranch.log.paths import COMPACTED, LOG, partition_name, segment_file
from anabranch.log.producers import Producers
from anabranch.log.segment import Segment
from anabranch.records.batch import BatchHeader

log = logging.getLogger(__name__)

_CURRENT = "current"


class Current(msgspec.Struct, frozen=True):
    """What `current` says."""

    folder: str
    horizon: int
    entries: int
    last_offset: int
    """Of the last message in it, -1 if it has none."""
    sizes: dict[int, int]
    """Of the segments' files, by base offset."""


class CompactedLog:
    __slots__ = (
        "_is_replaced",
        "_readers",
        "bases",
        "entries",
        "folder",
        "horizon",
        "last_offset",
        "log",
        "on_unused",
    )

    def __init__(self, disk: Disk, clock: Clock, folder: Path, current: Current, config: LogConfig) -> None:
        self._readers = 0
        self._is_replaced = False
        self.on_unused: Callable[[], None] = lambda: None
        self.folder = folder
        self.horizon = current.horizon
        self.entries = current.entries
        self.last_offset = current.last_offset
        self.bases = sorted(current.sizes)
        segments = [Segment(disk, folder, base, config) for base in self.bases]
        for segment, end in zip(segments, [*self.bases[1:], current.horizon], strict=True):
            segment.end_offset = end
        state = LogState(
            segments, 0, current.horizon, current.horizon, LeaderEpochs(disk, folder), Producers()
        )
        self.log = LocalLog(disk, clock, folder, config, state)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    def last_batch(self) -> tuple[BatchHeader, bytes] | None:
        """The batch with the message at `last_offset`; None if there are no messages."""
        segment = self.log.segments[-1]
        found = None if self.last_offset < 0 else segment.find(self.last_offset)
        if found is None:
            return None
        return found.header, segment.file.pread(found.header.size_bytes, found.position)

    # --- readers

    def read(self, offset: int, max_bytes: int, *, whole_first: bool) -> FileRange | None:
        """As `LocalLog.read`, up to the horizon."""
        return self.log.read(offset, max_bytes, self.horizon, whole_first=whole_first)

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """Where the first batch begins that reaches a time by its header; None if none does."""
        found = self.log.batch_at_time(timestamp_ms)
        return None if found is None else found[1].header.base_offset

    def hold(self) -> None:
        """Somebody begins to read it."""
        self._readers += 1

    def release(self) -> None:
        self._readers -= 1
        if self._is_replaced and not self._readers:
            self.on_unused()

    def replaced(self) -> None:
        """There is a newer one: this one goes with its last reader."""
        self._is_replaced = True
        if not self._readers:
            self.on_unused()

    def close(self) -> None:
        for segment in self.log.segments:
            segment.close()


def new_folder(disk: Disk, partition: Path) -> Path:
    """Where the next view is to be written."""
    disk.make_dirs(partition / COMPACTED)
    return partition / COMPACTED / disk.unused_name()


def let_count(disk: Disk, folder: Path, made: ViewSummary) -> Current:
    """From now on the view in `folder` is the one that counts.  Blocks on the disk: made for a thread."""
    sizes = {base: disk.size(segment_file(folder, base, LOG)) for base in made.bases}
    current = Current(folder.name, made.horizon, made.entries, made.last_offset, sizes)
    for above in (folder.parent, folder.parent.parent):  # the names on the way to it
        disk.sync_dir(above)
    disk.write_whole(folder.parent / _CURRENT, msgspec.json.encode(current))
    return current


def give_up(disk: Disk, partition: Path) -> None:
    """No view counts any more, for good.  Its files go when the log is next opened."""
    place = partition / COMPACTED
    disk.remove(place / _CURRENT)
    disk.sync_dir(place)


def open_view(
    disk: Disk, clock: Clock, partition: Path, config: LogConfig, log_end: int
) -> CompactedLog | None:
    """The view of the log in the folder `partition`, None if there is none."""
    place = partition / COMPACTED
    if not disk.exists(place):
        return None
    current = _read(disk, place, log_end)
    for name in disk.list(place):
        if name != _CURRENT and (current is None or name != current.folder):
            remove = disk.remove if "." in name else disk.remove_tree  # what `write_whole` left, or a view
            remove(place / name)
    if current is None:
        disk.remove(place / _CURRENT)
        return None
    return CompactedLog(disk, clock, place / current.folder, current, config)


def _read(disk: Disk, place: Path, log_end: int) -> Current | None:
    data = disk.read_whole(place / _CURRENT)
    if not data:
        return None
    try:
        current = msgspec.json.decode(data, type=Current)
    except msgspec.MsgspecError as error:
        log.warning(
            "%s: its compacted view is unreadable, compact the topic again: %s", partition_name(place), error
        )
        return None
    if current.horizon > log_end:
        log.warning(
            "%s: its compacted view goes up to offset %d and the log to %d, compact the topic again",
            partition_name(place),
            current.horizon,
            log_end,
        )
        return None
    for base, size in current.sizes.items():
        path = segment_file(place / current.folder, base, LOG)
        if not disk.exists(path) or disk.size(path) != size:
            log.warning(
                "%s: %s of its compacted view has another size, compact the topic again",
                partition_name(place),
                path.name,
            )
            return None
    return current
