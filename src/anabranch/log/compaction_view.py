"""A compacted view: a second log, made from a partition's own, that has the last message of every key.

    log      0 ──────────────── horizon ─────────── end
    view     │ last of every key │
    reader   └──── the view ─────┘└─── the log ────┘

Pulsar's readers may ask for the view and the log behind it, while others still see everything.  It does not
depend on retention: what the log has dropped is in the view, if it is the last of its key.  What the view
does not have is superseded by something in it or behind the horizon, or was deleted.

It lies in a folder beside the log, in segments like the log's; each compaction writes a new one from the old
view and what the log has behind its horizon:

    1. read the log from the old horizon to the end, and note the last offset of every key
    2. copy the old view, then the log up to there, without what is superseded, deleted or aborted

The log is synced up to the new horizon before the view counts, so that no crash leaves the view ahead of it.
When the table of keys is full the horizon is where that happened, and the caller goes on from there.

`write_view` is given a job and a disk.  It runs in a process of its own (`compaction_worker`), may be killed
at any time, and writes to a folder that counts for nothing until it is done (`compacted`).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Buffer, Disk
from anabranch.base.errors import NotFound, TooLarge
from anabranch.log import transactions
from anabranch.log.compaction_entries import last_offset_in
from anabranch.log.compaction_fates import Fates
from anabranch.log.compaction_filter import BatchFilter, Rules
from anabranch.log.compaction_keys import LastOffsets
from anabranch.log.compaction_walk import KeyWalk, Tally, batches, note_keys
from anabranch.log.config import LogConfig
from anabranch.log.paths import LOG, segment_file
from anabranch.log.segment import Segment
from anabranch.records.batch import BatchHeader, read_header

VIEW = "view"
"""What a worker is told whose job is a view."""


class ViewJob(NamedTuple):
    """What a view is made from, and where.  It travels as JSON."""

    folder: str
    """The partition's."""
    bases: list[int]
    """Segments of the log that have something between `first_dirty` and `end`, in order."""
    later_bases: list[int]
    """The rest of the log, where markers of transactions may be."""
    view: str
    """The folder of the view there is, empty if there is none."""
    view_bases: list[int]
    target: str
    first_dirty: int
    """Where the old view ends."""
    end: int
    """Every transaction below is decided."""
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    unpacked_limit_bytes: int
    dedupe_bytes: int
    io_bytes_per_second: float
    keeps_keyless: bool


class ViewSummary(NamedTuple):
    """What came of a job."""

    horizon: int
    bases: list[int]
    entries: int
    last_offset: int
    """Of the last message in the view, -1 if there is none."""
    removed: int
    """Messages that are in the old view or the log before the horizon, and not in the new view."""
    unreadable: int


def write_view(disk: Disk, job: ViewJob, spend: Callable[[int], None]) -> ViewSummary:
    """Do a job.  `spend(n)` before n more bytes."""
    config = LogConfig(
        segment_bytes=job.segment_bytes,
        segment_index_bytes=job.segment_index_bytes,
        index_interval_bytes=job.index_interval_bytes,
    )
    tally = Tally(spend)
    log = _open(disk, Path(job.folder), job.bases, job.end, config)
    view = _open(disk, Path(job.view), job.view_bases, job.first_dirty, config) if job.view else []
    aborted = [
        entry
        for base in (*job.bases, *job.later_bases)
        for entry in transactions.read(disk, Path(job.folder), base)
    ]
    keys = LastOffsets(job.dedupe_bytes, job.end - job.first_dirty)
    walk = KeyWalk(job.first_dirty, Fates(aborted, job.first_dirty), job.unpacked_limit_bytes)
    horizon = job.end
    for header, batch in _dirty(log, job.first_dirty, job.end, tally):
        if note_keys(keys, header, batch, walk) is not None:
            horizon = header.base_offset
            break
    if horizon <= job.first_dirty < job.end:
        raise TooLarge("the keys of one batch fill log.cleaner.dedupe.buffer.size; make it larger")
    rules = Rules(
        now_ms=0,
        delete_retention_ms=0,
        end=horizon,
        round_end=-1,
        producers={},
        unpacked_limit_bytes=job.unpacked_limit_bytes,
        drops_deletions=True,
        keeps_keyless=job.keeps_keyless,
    )
    batch_filter = BatchFilter(keys, Fates(aborted, job.first_dirty), rules)
    new = _NewView(disk, Path(job.target), config, job.unpacked_limit_bytes, tally)
    for segment in view:
        for header, batch in batches(segment, 0, tally):
            new.append(batch_filter.rest_of(header, batch))
    for header, batch in _dirty(log, job.first_dirty, horizon, tally):
        rest = batch_filter.rest_of(header, batch)
        if not header.is_control:  # who reads the view has no use for markers
            new.append(rest)
    for segment in log:
        segment.file.sync()
    new.finish(horizon)
    for segment in (*log, *view):
        segment.close()
    return ViewSummary(
        horizon, new.bases, new.entries, new.last_offset, batch_filter.removed, batch_filter.unreadable
    )


def _open(disk: Disk, folder: Path, bases: list[int], end: int, config: LogConfig) -> list[Segment]:
    for base in bases:
        if not disk.exists(segment_file(folder, base, LOG)):
            raise NotFound(f"the segment {base} of {folder} is gone")
    segments = [Segment(disk, folder, base, config) for base in bases]
    for segment, segment_end in zip(segments, [*bases, end][1:], strict=True):
        segment.end_offset = segment_end
    return segments


def _dirty(
    log: list[Segment], start: int, end: int, tally: Tally
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of the log from `start` up to `end`, whose last segment may be one that is written to."""
    for segment in log:
        first = segment.find(start)
        if first is None:
            continue
        for place, batch in segment.whole_batches(first.position):
            if place.header.base_offset >= end:
                return
            tally.read(len(batch))
            yield place.header, batch


class _NewView:
    """The segments of a view that is being written."""

    def __init__(
        self, disk: Disk, folder: Path, config: LogConfig, unpacked_limit_bytes: int, tally: Tally
    ) -> None:
        disk.make_dirs(folder)
        self._disk = disk
        self._folder = folder
        self._config = config
        self._unpacked_limit_bytes = unpacked_limit_bytes
        self._tally = tally
        self._last: Buffer | None = None
        self._current: Segment | None = None
        self.bases: list[int] = []
        self.entries = 0

    def append(self, batch: Buffer | None) -> None:
        """Add what is left of a batch, if anything is."""
        if batch is None:
            return
        header = read_header(batch)
        if not header.count:
            return
        current = self._current
        if current is not None and not current.has_room(len(batch), header.last_offset, self._config):
            self._seal(current)
            current = None
        if current is None:
            current = self._begin(header.base_offset)
        current.append(batch, header.last_offset, header.max_timestamp)
        self._tally.wrote(len(batch))
        self.entries += 1
        self._last = batch

    def _begin(self, base: int) -> Segment:
        self._current = Segment.create(self._disk, self._folder, base, self._config)
        self.bases.append(base)
        return self._current

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        for sync in segment.syncers(indexes=True):
            sync()
        segment.close()

    def finish(self, horizon: int) -> None:
        """Everything is there; a view without messages has an empty segment."""
        self._seal(self._current or self._begin(horizon))
        self._disk.sync_dir(self._folder)

    @property
    def last_offset(self) -> int:
        """Of the last message, -1 if there is none."""
        return -1 if self._last is None else last_offset_in(self._last, self._unpacked_limit_bytes)
