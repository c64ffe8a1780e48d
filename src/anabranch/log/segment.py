"""A segment: one file of record batches and its indexes.

    0                                                                size
    ├──────────┬──────┬───────────────┬────────┬─── … ───┬────────────┤
    │ batch    │batch │ batch         │ batch  │         │ batch      │
    └──────────┴──────┴───────────────┴────────┴─── … ───┴────────────┘
               ^ index entry: (last offset of this batch, position)

Batches are appended and never changed.  Positions and sizes given out always fall on batch
boundaries, so whoever sends a range of this file sends whole batches.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Disk, File
from anabranch.base.errors import Corrupt, DiskFull
from anabranch.log.config import LogConfig
from anabranch.log.index import OffsetIndex, TimeIndex
from anabranch.log.paths import LOG, OFFSET_INDEX, SEGMENT_FILES, TIME_INDEX, TXN_INDEX, segment_file
from anabranch.records.batch import HEADER_SIZE, OVERHEAD, BatchHeader, read_header

_SCAN_BYTES = 16 * 1024
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
        "base_offset",
        "end_offset",
        "file",
        "first_timestamp",
        "folder",
        "offset_index",
        "time_index",
    )

    def __init__(self, disk: Disk, folder: Path, base_offset: int, config: LogConfig) -> None:
        self._disk = disk
        self.folder = folder
        self.base_offset = base_offset
        self.end_offset = base_offset  # set by whoever loads a segment that has batches
        self.file: File = disk.open(segment_file(folder, base_offset, LOG))
        self.offset_index = OffsetIndex(
            disk, segment_file(folder, base_offset, OFFSET_INDEX), config.segment_index_bytes
        )
        self.time_index = TimeIndex(
            disk, segment_file(folder, base_offset, TIME_INDEX), config.segment_index_bytes
        )
        self.first_timestamp: int | None = None
        self._interval_bytes = config.index_interval_bytes
        self._bytes_since_index = 0
        self._max_timestamp: tuple[int, int] | None = None  # (timestamp, last offset of its batch)

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
        """From the time index, whose last entry is written when a segment is closed."""
        if self._max_timestamp is None:
            last = self.time_index.last
            self._max_timestamp = (
                (last[0], last[1] + self.base_offset) if last else (NO_TIMESTAMP, self.base_offset)
            )
        return self._max_timestamp

    # --- writing

    def append(self, batch: bytes | bytearray | memoryview, last_offset: int, max_timestamp: int) -> None:
        """Add one batch.  DiskFull, and nothing changed, if it does not fit."""
        position = self.file.append(batch)
        self.note(position, len(batch), last_offset, max_timestamp)

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Account for a batch that lies in the file at `position`."""
        latest = self._max_timestamp
        if latest is None:
            latest = self._latest()
        if max_timestamp > latest[0]:
            latest = self._max_timestamp = (max_timestamp, last_offset)
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if self._bytes_since_index > self._interval_bytes:
            self._add_index_entries(last_offset, position, latest)
            self._bytes_since_index = 0
        self._bytes_since_index += size
        self.end_offset = last_offset + 1

    def _add_index_entries(self, last_offset: int, position: int, latest: tuple[int, int]) -> None:
        try:
            self.offset_index.append(last_offset - self.base_offset, position)
            if latest[0] >= 0:
                self.time_index.maybe_append(latest[0], latest[1] - self.base_offset)
        except DiskFull:
            return  # a sparser index is still a right one

    def has_room(self, size: int, last_offset: int, config: LogConfig) -> bool:
        """Whether a batch of `size` bytes that ends at `last_offset` may be added."""
        return (
            self.size + size <= config.segment_bytes
            and last_offset - self.base_offset <= 0x7FFFFFFF
            and not self.offset_index.is_full
            and not self.time_index.is_full
        )

    def seal(self) -> None:
        """Nothing will be appended any more: complete the time index."""
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
        self._max_timestamp = None

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

    def find(self, offset: int) -> Place | None:
        """The first batch that ends at `offset` or beyond, None if there is none."""
        start = self.offset_index.position_before(offset - self.base_offset)
        for place in self.batches(start):
            if place.header.last_offset >= offset:
                return place
        return None

    def boundary(self, position: int, max_bytes: int, end: int) -> int:
        """The end of as many whole batches from `position` as fit in `max_bytes`; `position` if none does."""
        limit = position + max_bytes
        if limit >= end:
            return end
        indexed = self.offset_index.boundary_before(limit)
        if indexed > position:
            return indexed
        for place in self.batches(position, end):
            if place.position + place.header.size_bytes > limit:
                return place.position
        return end

    def find_time(self, timestamp: int, from_offset: int) -> Place | None:
        """The first batch at or after `from_offset` with a record at or after `timestamp`."""
        start = max(self.time_index.offset_before(timestamp) + self.base_offset, from_offset)
        position = self.offset_index.position_before(start - self.base_offset)
        for place in self.batches(position):
            if place.header.max_timestamp >= timestamp and place.header.last_offset >= from_offset:
                return place
        return None

    # --- files

    def sync(self) -> None:
        self.file.sync()
        self.offset_index.sync()
        self.time_index.sync()

    def rename(self, suffix: str) -> None:
        """Add `suffix` to the names of all files."""
        self.file.rename(self.file.path.with_name(self.file.path.name + suffix))
        for index, kind in ((self.offset_index, OFFSET_INDEX), (self.time_index, TIME_INDEX)):
            index.rename(segment_file(self.folder, self.base_offset, kind + suffix))
        transactions = segment_file(self.folder, self.base_offset, TXN_INDEX)
        if self._disk.exists(transactions):
            self._disk.rename(transactions, transactions.with_name(transactions.name + suffix))

    def close(self) -> None:
        self.file.close()
        self.offset_index.close()
        self.time_index.close()

    def remove(self, suffix: str = "") -> None:
        """Delete all files; `suffix` is what `rename` added."""
        self.close()
        for kind in SEGMENT_FILES:
            self._disk.remove(segment_file(self.folder, self.base_offset, kind + suffix))
