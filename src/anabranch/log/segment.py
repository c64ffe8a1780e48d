"""A segment: one file of record batches and its indexes.

    0                                                                size
    ├──────────┬──────┬───────────────┬────────┬─── … ───┬────────────┤
    │ batch    │batch │ batch         │ batch  │         │ batch      │
    └──────────┴──────┴───────────────┴────────┴─── … ───┴────────────┘
               ^ index entry: (last offset of this batch, position)

Batches are appended and never changed.  Positions and sizes given out always fall on batch
boundaries, so whoever sends a range of this file sends whole batches.

An index only saves reading.  What it says is held against the batch it points at, and an index that
turns out to be wrong is rewritten from the batches.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Buffer, Disk, File
from anabranch.base.errors import Corrupt, DiskFull
from anabranch.log.config import LogConfig
from anabranch.log.index import OffsetIndex, TimeIndex
from anabranch.log.paths import (
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    TIME_INDEX,
    TXN_INDEX,
    partition_name,
    segment_file,
)
from anabranch.log.transactions import AbortedTransactions
from anabranch.records.batch import HEADER_SIZE, MAGIC, OVERHEAD, BatchHeader, Part, part_of, read_header

log = logging.getLogger(__name__)

_SCAN_BYTES = 16 * 1024
_PIECE_BYTES = 4 << 20
NO_TIMESTAMP = -1


class Place(NamedTuple):
    """A batch in a segment."""

    position: int
    header: BatchHeader


class Segment:
    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_interval_bytes",
        "_max_timestamp",
        "_reserved",
        "_suffix",
        "aborted",
        "base_offset",
        "end_offset",
        "file",
        "first_timestamp",
        "folder",
        "offset_index",
        "time_index",
    )

    def __init__(
        self, disk: Disk, folder: Path, base_offset: int, config: LogConfig, suffix: str = ""
    ) -> None:
        """`suffix` is added to the names of the files, for a segment that is not part of the log yet."""
        self._disk = disk
        self._suffix = suffix
        self.folder = folder
        self.base_offset = base_offset
        self.end_offset = base_offset  # set by whoever loads a segment that has batches
        self.file: File = disk.open(segment_file(folder, base_offset, LOG + suffix))
        self.offset_index = OffsetIndex(
            disk, segment_file(folder, base_offset, OFFSET_INDEX + suffix), config.segment_index_bytes
        )
        self.time_index = TimeIndex(
            disk, segment_file(folder, base_offset, TIME_INDEX + suffix), config.segment_index_bytes
        )
        self.first_timestamp: int | None = None
        self._interval_bytes = config.index_interval_bytes
        self._bytes_since_index = 0
        self._max_timestamp: tuple[int, int] | None = None  # (timestamp, last offset of its batch)
        if not self.file.size:
            self._max_timestamp = (NO_TIMESTAMP, base_offset)
        self.aborted = AbortedTransactions(disk, folder, base_offset)  # those whose marker is in here
        self._reserved = False  # room was taken that `seal` gives back

    @classmethod
    def create(cls, disk: Disk, folder: Path, base_offset: int, config: LogConfig) -> "Segment":
        """A segment to write to.  Its file is there at once: the last one in a folder is the active one."""
        segment = cls(disk, folder, base_offset, config)
        segment.file.create()
        if config.preallocate:
            try:
                segment.file.reserve(config.segment_bytes)
            except BaseException:  # or the log would end here when it is next opened, whatever is before
                segment.remove()
                raise
            segment._reserved = True
        return segment

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp in here, -1 if there is none."""
        return self._latest()[0]

    @property
    def offset_of_max_timestamp(self) -> int:
        return self._latest()[1]

    def _latest(self) -> tuple[int, int]:
        if self._max_timestamp is None:
            self._max_timestamp = self._find_latest()
        return self._max_timestamp

    def _find_latest(self) -> tuple[int, int]:
        """The last entry of the time index, written when a segment is sealed, if the batch agrees.

        Retention deletes by this time, so an index that was damaged is not taken at its word.
        """
        last = self.time_index.last
        if last is None:
            return self._scan_latest()
        if self._batch_of_time(*last) is None:
            self._reindex("the last entry of the time index is wrong")
            assert self._max_timestamp is not None, "each batch was noted"
            return self._max_timestamp
        return last[0], last[1] + self.base_offset

    def _scan_latest(self) -> tuple[int, int]:
        """By the batches from the last entry of the time index on: nothing before its batch is later."""
        latest, start = (NO_TIMESTAMP, self.base_offset), 0
        last = self.time_index.last
        found = None if last is None else self._batch_of_time(*last)
        if found is not None:
            latest, start = (found.header.max_timestamp, found.header.last_offset), found.position
        for _, header in self.batches(start):
            if header.max_timestamp > latest[0]:
                latest = (header.max_timestamp, header.last_offset)
        return latest

    def _batch_of_time(self, timestamp: int, relative_offset: int) -> Place | None:
        """The batch of an entry of the time index, None if there is none that it could mean."""
        offset = relative_offset + self.base_offset
        found = self.find(offset)
        if found is None or found.header.last_offset != offset or found.header.max_timestamp != timestamp:
            return None
        return found

    def _reindex(self, why: str) -> None:
        """Write both indexes again.  The end stays: compaction may have left less than it stands for."""
        path = self.file.path
        log.warning("%s: indexes of %s are written anew: %s", partition_name(path), path.name, why)
        end = self.end_offset
        self.forget()
        for position, header in self.batches():
            self.note(position, (part_of(header),))
        self.end_offset = end

    # --- writing

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Add one batch, as `write`."""
        self.write(batch, ((len(batch), last_offset, max_timestamp, None),))

    def write(self, buffer: Buffer, parts: Sequence[Part]) -> None:
        """Add the batches of `buffer`.  DiskFull, and nothing changed, if they do not fit."""
        if self._max_timestamp is None:
            self._latest()
        offsets, times = self.offset_index.entries, self.time_index.entries
        position = self.file.append(buffer)
        try:
            self.note(position, parts)
        except BaseException:  # or the next batch would lie behind some that nobody knows of
            self.file.truncate(position)
            self.offset_index.truncate(offsets)
            self.time_index.truncate(times)
            raise

    def note(self, position: int, parts: Sequence[Part]) -> None:
        """Account for batches in the file from `position` on.  If it raises, only indexes have changed."""
        latest = self._max_timestamp
        if latest is None:
            latest = self._latest()
        since_index, interval = self._bytes_since_index, self._interval_bytes
        for size, last_offset, max_timestamp, _ in parts:
            if max_timestamp > latest[0]:
                latest = (max_timestamp, last_offset)
            if since_index > interval:
                self._add_index_entries(last_offset, position, latest)
                since_index = 0
            since_index += size
            position += size
        if self.first_timestamp is None:
            self.first_timestamp = parts[0][2]
        self._max_timestamp = latest
        self._bytes_since_index = since_index
        self.end_offset = last_offset + 1

    def _add_index_entries(self, last_offset: int, position: int, latest: tuple[int, int]) -> None:
        try:
            self.offset_index.append(last_offset - self.base_offset, position)
            if latest[0] >= 0:
                self.time_index.maybe_append(latest[0], latest[1] - self.base_offset)
        except DiskFull:
            return  # a sparser index is still a right one

    def forget(self) -> None:
        """Empty both indexes and forget what was noted, before the batches are noted again."""
        self.offset_index.truncate(0)
        self.time_index.truncate(0)
        self.end_offset = self.base_offset
        self.first_timestamp = None
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._bytes_since_index = 0

    def has_room(self, size: int, last_offset: int, config: LogConfig) -> bool:
        """Whether a batch of `size` bytes that ends at `last_offset` may be added."""
        offsets, times = self.offset_index, self.time_index
        return (
            self.file.size + size <= config.segment_bytes
            and last_offset - self.base_offset <= 0x7FFFFFFF
            and offsets.entries < offsets.max_entries
            and times.entries < times.max_entries
        )

    def seal(self) -> None:
        """Nothing will be appended any more: complete the time index."""
        self.aborted.settle()
        if self._reserved:
            self.file.truncate(self.size)
            self._reserved = False
        latest = self._latest()
        if latest[0] >= 0:
            self.time_index.maybe_append(latest[0], latest[1] - self.base_offset)
        self.offset_index.create()
        self.time_index.create()

    def truncate(self, position: int, end_offset: int) -> None:
        """Keep only what lies before `position`, a batch boundary."""
        self.file.truncate(position)
        self.offset_index.truncate_to(end_offset - self.base_offset)
        self.time_index.truncate_to(end_offset - self.base_offset)
        self.end_offset = end_offset
        if self._max_timestamp is None or self._max_timestamp[1] >= end_offset:
            self._max_timestamp = self._scan_latest()
        self.aborted.truncate(end_offset)

    # --- reading

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[Place]:
        """Every batch header from `position`, a batch boundary, to `end`."""
        end = self.size if end is None else end
        chunk, chunk_at = b"", position
        while position < end:
            inside = position - chunk_at
            if inside + HEADER_SIZE > len(chunk):
                chunk, chunk_at, inside = self.file.pread(_SCAN_BYTES, position), position, 0
                if len(chunk) < HEADER_SIZE:
                    raise Corrupt(f"{self.file.path} ends inside a batch header at {position}")
            header = read_header(chunk, inside)
            if header.length < HEADER_SIZE - OVERHEAD:
                raise Corrupt(f"{self.file.path} has a batch of {header.length} bytes at {position}")
            yield Place(position, header)
            position += header.size_bytes

    def whole_batches(self, position: int = 0) -> Iterator[tuple[Place, memoryview]]:
        """Every complete batch from `position`, with its bytes, read in large pieces.

        It ends at the first that is cut short or has a length that cannot be.
        """
        size = self.size
        while position + HEADER_SIZE <= size:
            piece = memoryview(self.file.pread(_PIECE_BYTES, position))
            at = 0
            while at + HEADER_SIZE <= len(piece):
                header = read_header(piece, at)
                end = at + header.size_bytes
                if header.length < HEADER_SIZE - OVERHEAD or position + end > size:
                    return
                if end > len(piece):
                    break
                yield Place(position + at, header), piece[at:end]
                at = end
            if at == 0:  # a batch larger than a piece
                header = read_header(piece)
                piece = memoryview(self.file.pread(header.size_bytes, position))
                yield Place(position, header), piece
                at = len(piece)
            position += at

    def find(self, offset: int) -> Place | None:
        """The first batch that ends at `offset` or beyond, None if there is none."""
        start = self.offset_index.position_before(offset - self.base_offset)
        if start and not self._begins_batch(start, offset):
            self._reindex("the offset index points to no batch")
            start = self.offset_index.position_before(offset - self.base_offset)
        for place in self.batches(start):
            if place.header.last_offset >= offset:
                return place
        return None

    def _begins_batch(self, position: int, most: int) -> bool:
        """Whether a batch that starts at `most` or before could lie at `position`."""
        if not 0 <= position <= self.size - HEADER_SIZE:
            return False
        header = read_header(self.file.pread(HEADER_SIZE, position))
        return (
            header.magic == MAGIC
            and self.base_offset <= header.base_offset <= most
            and HEADER_SIZE <= header.size_bytes <= self.size - position
        )

    def boundary(self, position: int, max_bytes: int, end: int) -> int:
        """The end of as many whole batches from `position` as fit in `max_bytes`; `position` if none does."""
        limit = position + max_bytes
        if limit >= end:
            return end
        indexed = self.offset_index.boundary_before(limit)
        if indexed > position:
            if self._begins_batch(indexed, self.end_offset):
                return indexed
            self._reindex("the offset index points to no batch")
        for place in self.batches(position, end):
            if place.position + place.header.size_bytes > limit:
                return place.position
        return end

    def find_time(self, timestamp: int, from_offset: int) -> Place | None:
        """The first batch at or after `from_offset` with a record at or after `timestamp`."""
        entry = self.time_index.entry_before(timestamp)
        if entry is not None and self._batch_of_time(*entry) is None:
            self._reindex("an entry of the time index is wrong")
            entry = self.time_index.entry_before(timestamp)
        start = from_offset if entry is None else max(entry[1] + self.base_offset, from_offset)
        first = self.find(start)
        for place in () if first is None else self.batches(first.position):
            if place.header.max_timestamp >= timestamp and place.header.last_offset >= from_offset:
                return place
        return None

    # --- files

    def syncers(self, *, indexes: bool) -> Iterator[Callable[[], None]]:
        """Calls for a thread that make the segment durable, with its indexes or without (`File.syncer`).

        One by one: each holds a descriptor, also when there is none for the next.
        """
        yield self.file.syncer()
        if indexes:
            yield self.offset_index.syncer()
            yield self.time_index.syncer()
            aborted = segment_file(self.folder, self.base_offset, TXN_INDEX)
            if self._disk.exists(aborted):
                file = self._disk.open(aborted)
                try:
                    sync = file.syncer()
                finally:
                    file.close()
                yield sync

    def rename(self, suffix: str) -> None:
        """Add `suffix` to the names of all files; once some have another one, that to those that lack it.

        So it may be tried again as often as the disk refuses.
        """
        suffix = self._suffix or suffix
        path = segment_file(self.folder, self.base_offset, LOG + suffix)
        if self.file.path != path:
            self.file.rename(path)
        self._suffix = suffix
        for index, kind in ((self.offset_index, OFFSET_INDEX), (self.time_index, TIME_INDEX)):
            index.rename(segment_file(self.folder, self.base_offset, kind + self._suffix))
        aborted = segment_file(self.folder, self.base_offset, TXN_INDEX)
        if self._disk.exists(aborted):
            self._disk.rename(aborted, aborted.with_name(aborted.name + self._suffix))

    def files(self) -> list[Path]:
        """All that may be there, by the names that they have now."""
        return [segment_file(self.folder, self.base_offset, kind + self._suffix) for kind in SEGMENT_FILES]

    def close(self) -> None:
        self.file.close()
        self.offset_index.close()
        self.time_index.close()

    def remove(self) -> None:
        """Delete all files."""
        self.close()
        for path in self.files():
            self._disk.remove(path)
