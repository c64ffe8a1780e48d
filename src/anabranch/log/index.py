"""Sparse indexes of a segment, in Kafka's file formats.

    OffsetIndex   offset relative to the segment (4 bytes), position in the log file (4 bytes)
    TimeIndex     timestamp (8 bytes), relative offset (4 bytes)

An entry is added at most once per `index.interval.bytes` of log and names the *last* offset of the
batch at that position, as Kafka's tools check.  A look-up is a binary search for the last entry not
beyond what is sought; the caller scans on from there.

Entries are appended with a plain write and read through a memory map.  Kafka maps for writing too,
into a file stretched to its full size beforehand; on a full disk such a store kills the process,
while a failed write is an error like any other.  An entry that could not be written is simply not
there: an index may be sparser than asked for, never wrong.
"""

import mmap
import struct
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from anabranch.base.disk import Disk, File

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class MappedIndex:
    """An append-only file of fixed-size entries, mapped for reading on demand."""

    __slots__ = ("_disk", "_entry", "_file", "_key", "_map", "_mapped", "_path", "entries", "max_entries")

    def __init__(self, disk: Disk, path: Path, entry: struct.Struct, max_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self._entry = entry
        self._file: File | None = None
        self._map: mmap.mmap | None = None
        self._mapped = 0
        self.max_entries = max_bytes // entry.size
        self.entries = disk.size(path) // entry.size

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._path)
        return self._file

    @property
    def is_whole(self) -> bool:
        """Whether the file ends where an entry does."""
        return self._open().size == self.entries * self._entry.size

    def _append(self, *values: int) -> None:
        file = self._open()
        if file.size != self.entries * self._entry.size:
            file.truncate(self.entries * self._entry.size)  # a torn entry would put all others out of place
        file.append(self._entry.pack(*values))
        self.entries += 1

    def _view(self) -> mmap.mmap:
        """The entries, mapped.  Only for an index that has some."""
        if self._map is None or self._mapped < self.entries:
            self.release()
            size = self.entries * self._entry.size
            self._map = self._open().map(size)
            self._mapped = self.entries
            self._disk.handles.opened(self)
        else:
            self._disk.handles.used(self)
        return self._map

    def entry(self, i: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(self._view(), i * self._entry.size)
        return first, second

    def _floor(self, value: int, field: int) -> int:
        """The last entry whose `field` is at most `value`, -1 if none is."""
        if not self.entries:
            return -1
        view, unpack, size = self._view(), self._entry.unpack_from, self._entry.size
        return bisect_right(range(self.entries), value, key=lambda i: unpack(view, i * size)[field]) - 1

    def truncate(self, entries: int) -> None:
        if entries < self.entries or not self.is_whole:
            self._unmap()
            self.entries = entries
            self._open().truncate(entries * self._entry.size)

    def rename(self, path: Path) -> None:
        if path != self._path and self._disk.exists(self._path):
            self._disk.rename(self._path, path)
        self._path = path
        if self._file is not None:
            self._file.path = path

    def create(self) -> None:
        """Make sure that the file exists, for tools that expect it."""
        self._open().create()

    def syncer(self) -> Callable[[], None]:
        """As `File.syncer`."""
        return self._open().syncer()

    def release(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def _unmap(self) -> None:
        self._disk.handles.closed(self)
        self.release()

    def close(self) -> None:
        self._unmap()
        if self._file is not None:
            self._file.close()
            self._file = None


class OffsetIndex(MappedIndex):
    """From an offset to a position at or before it."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: Path, max_bytes: int) -> None:
        super().__init__(disk, path, _OFFSET_ENTRY, max_bytes)

    def append(self, relative_offset: int, position: int) -> None:
        self._append(relative_offset, position)

    def position_before(self, relative_offset: int) -> int:
        """Where to start scanning for `relative_offset`."""
        i = self._floor(relative_offset, 0)
        return 0 if i < 0 else self.entry(i)[1]

    def boundary_before(self, position: int) -> int:
        """The last indexed batch start at or before `position`, 0 if there is none."""
        i = self._floor(position, 1)
        return 0 if i < 0 else self.entry(i)[1]

    def truncate_to(self, relative_offset: int) -> None:
        """Drop every entry of `relative_offset` and beyond."""
        self.truncate(self._floor(relative_offset - 1, 0) + 1)


class TimeIndex(MappedIndex):
    """From a timestamp to an offset before which nothing is as late."""

    __slots__ = ("_last",)

    def __init__(self, disk: Disk, path: Path, max_bytes: int) -> None:
        super().__init__(disk, path, _TIME_ENTRY, max_bytes)
        self._last: tuple[int, int] | None = None

    @property
    def last(self) -> tuple[int, int] | None:
        """The newest (timestamp, relative offset), None if there is none."""
        if self._last is None and self.entries:
            self._last = self.entry(self.entries - 1)
        return self._last

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry unless time has not moved on since the last one."""
        last = self.last
        if last is None or timestamp > last[0]:
            self._append(timestamp, relative_offset)
            self._last = (timestamp, relative_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int] | None:
        """The last (timestamp, relative offset) up to which every record is earlier than `timestamp`."""
        i = self._floor(timestamp - 1, 0)
        return None if i < 0 else self.entry(i)

    def truncate_to(self, relative_offset: int) -> None:
        """Drop every entry of `relative_offset` and beyond."""
        self.truncate(self._floor(relative_offset - 1, 1) + 1)

    def truncate(self, entries: int) -> None:
        self._last = None
        super().truncate(entries)
