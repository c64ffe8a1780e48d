"""A partition's log on this disk: segments in a row, one of them being written.

    log_start                                              log_end
       │   00000000000000000000   00000000000000051200       │
       ▼  ┌─────────────────────┐┌─────────────────────────┐ ▼
          │ sealed              ││ active                  │
          └─────────────────────┘└─────────────────────────┘
                                  ▲ recovery_point: below it everything is on the disk for certain

The log gives batches their offsets, rolls segments and finds batches again.  It does not validate
(`validation`), wait, or know about replicas; opening one is `recovery`, taking its end away `truncation`.

A reader usually goes on where it left off, so the place where a read ended is remembered under the
offset that comes next: sequential readers need neither index nor scan.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from anabranch.base.clock import Clock
from anabranch.base.disk import Buffer, Disk
from anabranch.base.errors import Corrupt, DiskFull, OffsetOutOfRange
from anabranch.base.network import FileRange
from anabranch.log import producer_snapshot
from anabranch.log.config import LogConfig
from anabranch.log.epochs import LeaderEpochs
from anabranch.log.paths import DELETED, ENTRIES, GAPS, SNAPSHOT, partition_name, segment_file
from anabranch.log.producers import Producers
from anabranch.log.roll_age import RollAge
from anabranch.log.segment import Place, Segment
from anabranch.log.transactions import AbortedTransaction
from anabranch.records.batch import HEADER_SIZE, BatchHeader, Part, place, read_header
from anabranch.records.control import read_marker
from anabranch.records.record import iter_records

if TYPE_CHECKING:
    from anabranch.log.compacted import CompactedLog

log = logging.getLogger(__name__)

_MAX_MARKS = 64
_marker_of = attrgetter("last_offset")


class LogState(NamedTuple):
    """What recovery found out about a log."""

    segments: list[Segment]
    log_start: int
    log_end: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: Producers


class LocalLog:
    __slots__ = (
        "_age",
        "_bases",
        "_disk",
        "_marks",
        "config",
        "cut_due",
        "cuts",
        "departed",
        "epochs",
        "folder",
        "has_entries",
        "has_gaps",
        "log_end",
        "log_start",
        "producers",
        "recovery_point",
        "segments",
        "view",
        "written_bytes",
    )

    def __init__(self, disk: Disk, clock: Clock, folder: Path, config: LogConfig, state: LogState) -> None:
        self._disk = disk
        self.folder = folder
        self.config = config
        self.segments = state.segments
        self._bases = [segment.base_offset for segment in state.segments]
        assert all(base < following for base, following in pairwise(self._bases)), "one file, two segments"
        self.log_start = state.log_start
        self.log_end = state.log_end
        self.recovery_point = state.recovery_point
        self.epochs = state.epochs
        self.producers = state.producers
        self.has_entries = disk.exists(folder / ENTRIES)  # of Pulsar producers, once there were any
        self.has_gaps = disk.exists(folder / GAPS)
        self.view: CompactedLog | None = None  # the compacted one, if there is any
        self.departed = 0  # segments that left the log, or were replaced
        self.cuts = 0  # what was begun before the last one may not be true of the log any more
        self.cut_due: tuple[int, bool] | None = None
        """Of a cut that the disk refused midway: where it is to end, and whether all of it goes."""
        self.written_bytes = 0  # since it was opened
        self._marks: dict[int, tuple[Segment, int]] = {}
        self._age = RollAge(clock, folder)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def name(self) -> str:
        return partition_name(self.folder)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def stable_below(self, high_watermark: int) -> int:
        """The last stable offset: every transaction below is decided, by a marker that is safe."""
        undecided = self.producers.first_undecided
        return high_watermark if undecided is None else min(undecided, high_watermark)

    # --- writing

    def mark_entries(self) -> None:
        """Pulsar producers write here: readers that know Kafka's records only must look out."""
        if not self.has_entries:
            self._disk.write_whole(self.folder / ENTRIES, b"", sync=False)
            self.has_entries = True

    def mark_gaps(self) -> None:
        """Offsets will be missing in the active segment: recovery must not take that for damage."""
        if not self.has_gaps:
            self._disk.write_whole(self.folder / GAPS, b"")
            self.has_gaps = True

    def append(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int) -> int:
        """Give a leader's `batch` the next offsets and write it.  Its base offset."""
        base = self.log_end
        place(batch, base, leader_epoch)
        named = header if header.producer_id >= 0 else None
        part = (len(batch), base + header.last_offset_delta, header.max_timestamp, named)
        self.write(batch, (part,), leader_epoch)
        return base

    def write(self, buffer: Buffer, parts: Sequence[Part], leader_epoch: int) -> None:
        """Append the batches of `buffer`, which have their offsets and are of `leader_epoch`, to one segment.

        If it raises, nothing was written: what follows the write only notes what the batches say anyway.
        """
        if self.cut_due is not None:
            raise self._half_cut()
        _, last, newest, named = parts[-1]
        segment = self.segments[-1]
        try:
            if segment.file.size and (
                not segment.has_room(len(buffer), last, self.config)
                or self._age.is_reached(segment, self.config, newest)
            ):
                segment = self.roll(read_header(buffer).base_offset)
            segment.write(buffer, parts)
        except (DiskFull, OSError) as error:
            self._disk.handles.on_refusal(error)
            raise
        self.log_end = last + 1
        self.written_bytes += len(buffer)
        if named is not None or len(parts) > 1:
            at = 0
            for size, last, _, header in parts:
                if header is not None:
                    self.note_producer(segment, buffer, at, header, last - header.last_offset_delta)
                at += size
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, read_header(buffer).base_offset)

    def note_producer(
        self,
        segment: Segment,
        buffer: Buffer,
        at: int,
        header: BatchHeader,
        base: int,
        *,
        list_aborted: bool = True,
    ) -> None:
        """Record what a batch, in the log and in `buffer` at `at`, says about its producer.

        Without `list_aborted` the segment lists its aborted transactions already.
        """
        if not header.is_control:
            self.producers.update(header, base)
            return
        try:
            payload = memoryview(buffer)[at + HEADER_SIZE : at + header.size_bytes]
            record = next(iter_records(header, payload), None)
            marker = None if record is None else read_marker(record)
        except Corrupt as error:
            log.warning("%s: the marker at offset %d is unreadable, passed over: %s", self.name, base, error)
            return
        if record is None:  # compaction took the marker away, the producer's epoch still counts
            self.producers.fence(header, base)
            return
        if marker is None:
            return
        ended = self.producers.complete(header, base, marker.coordinator_epoch, aborted=not marker.commit)
        if list_aborted and ended is not None and ended.aborted:
            open_from = self.producers.first_open_transaction
            stable = base + header.last_offset_delta + 1 if open_from is None else open_from
            segment.aborted.add(
                AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)
            )

    def roll(self, base: int | None = None) -> Segment:
        """Seal the active segment and start the next one, at the log's end or at `base` beyond it."""
        if self.cut_due is not None:
            raise self._half_cut()
        sealed = self.segments[-1]
        base = self.log_end if base is None else base
        assert base > sealed.base_offset, "an empty segment is not sealed: the next has its name"
        sealed.seal()
        producer_snapshot.write(self._disk, self.folder, base, self.producers)
        segment = Segment.create(self._disk, self.folder, base, self.config)
        self._marks.pop(self.log_end, None)  # a reader at the end goes on in the new segment
        self.log_end = base
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        # What is synced of it is so without its indexes: once more, with them, before it counts as durable.
        self.recovery_point = min(self.recovery_point, sealed.base_offset)
        self._age.began()
        return segment

    # --- reading

    def read(self, offset: int, max_bytes: int, limit: int, *, whole_first: bool) -> FileRange | None:
        """Whole batches from the one that holds `offset`, below `limit`; None if there are none.

        At most `max_bytes`, except that `whole_first` gives the first batch whatever its size.
        """
        if offset < self.log_start or offset > self.log_end:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.log_start}..{self.log_end}")
        if offset >= limit:
            return None
        found = self._marks.get(offset) or self._locate(offset)
        if found is None:
            return None
        segment, position = found
        end = segment.size if limit >= segment.end_offset else self._position_of(segment, limit)
        stop = segment.boundary(position, max_bytes, end)
        if stop == position:
            if not whole_first or position >= end:
                return None
            stop = position + read_header(segment.file.pread(HEADER_SIZE, position)).size_bytes
        self._mark(segment, stop)
        return FileRange(segment.file, position, stop - position)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """The batch that holds `offset`, or the first one after it (compaction leaves gaps)."""
        i = max(0, bisect_right(self._bases, offset) - 1)
        for segment in self.segments[i:]:
            found = segment.find(offset)
            if found is not None:
                return segment, found.position
        return None

    def _position_of(self, segment: Segment, limit: int) -> int:
        """Where in `segment` the batches below `limit` end."""
        mark = self._marks.get(limit)
        if mark is not None and mark[0] is segment:
            return mark[1]
        found = segment.find(limit)
        return segment.size if found is None else found.position

    def _mark(self, segment: Segment, position: int) -> None:
        """Remember where the batch after a read begins."""
        if position < segment.size:
            offset = read_header(segment.file.pread(HEADER_SIZE, position)).base_offset
        elif segment is self.segments[-1]:
            offset = segment.end_offset
        else:
            return
        marks = self._marks
        if offset not in marks and len(marks) >= _MAX_MARKS:
            del marks[next(iter(marks))]
        marks[offset] = (segment, position)

    def batch_at_time(self, timestamp: int, from_offset: int = 0) -> tuple[Segment, Place] | None:
        """The first batch that reaches `from_offset` and, by its header, `timestamp`."""
        start = max(from_offset, self.log_start)
        for segment in self.segments:
            if segment.max_timestamp >= timestamp and segment.end_offset > start:
                found = segment.find_time(timestamp, start)
                if found is not None:
                    return segment, found
        return None

    def batch_of_max_timestamp(self) -> tuple[Segment, Place] | None:
        """The batch with the latest record."""
        stamped = [s for s in self.segments if s.max_timestamp >= 0 and s.end_offset > self.log_start]
        if not stamped:
            return None
        segment = max(stamped, key=lambda s: (s.max_timestamp, -s.base_offset))
        found = segment.find(segment.offset_of_max_timestamp)
        return None if found is None else (segment, found)

    def end_of(self, part: FileRange) -> int:
        """The offset after the batches of `part`, which was just read; the log's end if that is not known."""
        stop = part.position + part.size
        for offset, (segment, position) in reversed(self._marks.items()):
            if position == stop and segment.file is part.file:
                return offset
        return self.log_end

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in `start`..`end`."""
        i = max(0, bisect_right(self._bases, start) - 1)
        found: list[AbortedTransaction] = []
        for segment in self.segments[i:]:
            entries = segment.aborted.entries()  # in the order of their markers
            for entry in islice(entries, bisect_left(entries, start, key=_marker_of), None):
                if entry.first_offset < end:
                    found.append(entry)
                if entry.last_stable_offset >= end:
                    return found
        return found

    # --- history

    def advance_start(self, offset: int) -> None:
        """Readers see nothing below `offset` any more."""
        if offset > self.log_start:
            self.log_start = offset
            self.epochs.truncate_start(offset)

    def drop(self, dropped: list[Segment]) -> None:
        """Take segments out of the log and mark their files; the caller removes them later.

        OSError if the disk refuses; those whose files are not marked yet are still in the log then.
        """
        if any(segment is self.segments[-1] for segment in dropped):
            self.roll()
        gone: set[int] = set()
        try:
            for segment in dropped:
                self.mark_deleted(segment)
                gone.add(id(segment))
                self._disk.remove(segment_file(self.folder, segment.base_offset, SNAPSHOT))
        finally:
            self.segments = [segment for segment in self.segments if id(segment) not in gone]
            self._bases = [segment.base_offset for segment in self.segments]
            self._marks.clear()

    def mark_deleted(self, segment: Segment) -> None:
        """Rename the files of a segment that leaves the log.

        Numbered, since compaction replaces a segment by one of the same name: readers may be in several.
        """
        segment.rename(f".{self.departed}{DELETED}")
        self.departed += 1

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Put `new`, whose files are in place, where `old` were."""
        gone = {id(segment) for segment in old}
        kept = [segment for segment in self.segments if id(segment) not in gone]
        self.segments = sorted(kept + new, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self.segments]
        self._marks.clear()
        for base_offset in {segment.base_offset for segment in old} - set(self._bases):
            self._disk.remove(segment_file(self.folder, base_offset, SNAPSHOT))

    def cut(self, segments: list[Segment], end: int) -> None:
        """The log is `segments` now, the last of them a new one, and goes on at `end` (`truncation`)."""
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._marks.clear()
        self._age.began()
        self.log_start = min(self.log_start, end) if len(segments) > 1 else end
        self.log_end = end
        # What was cut is synced once more, with its indexes, before it counts as durable.
        self.recovery_point = min(self.recovery_point, segments[-2:][0].base_offset)
        self.departed += 1
        self.cuts += 1
        self.cut_due = None

    def _half_cut(self) -> DiskFull:
        return DiskFull(f"{self.name}: the disk refused to cut the log, nothing is appended until it is cut")

    # --- leaving

    def close(self) -> None:
        """A clean stop: everything a quick start needs is written, and nothing is synced."""
        active = self.segments[-1]
        self.epochs.settle()
        if active.size:
            active.seal()
            producer_snapshot.write(self._disk, self.folder, self.log_end, self.producers)
        for segment in self.segments:
            segment.close()
        if self.view is not None:
            self.view.close()
