"""Delayed messages on disk: extents of (deliver at, offset), each in the order of time.

    delays.0 │ extent │ extent │ … │        delays.1 │ extent │ …

    extent   offset  size  field
                  0     4  magic
                  4     4  number of pairs
                  8     4  CRC-32C of the pairs
                 12     4  zero
                 16    16  a pair, and so on: u64 time in ms, u64 offset, little endian

Extents are written once and read from the front as time goes by; what of them is in memory is the time of
their next pair.  A file goes when all of its extents are used up.  Nothing is synced: what a crash takes is
found again by reading the log, and so an extent that is not whole is left out.
"""

import logging
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from crc32c import crc32c

from anabranch.base.disk import Disk, File
from anabranch.log.paths import partition_name

log = logging.getLogger(__name__)

PAIR_BYTES = 16
_HEADER = struct.Struct("<IIII")
_MAGIC = 0x64656C61
_BLOCK_PAIRS = 512
_FILE_BYTES = 64 << 20
_PREFIX = "delays."

Pair = tuple[int, int]


class Extent:
    """Pairs in a file, from the first whose time has not come."""

    __slots__ = ("_end", "_file", "_position", "next_ms", "number")

    def __init__(self, number: int, file: File, position: int, pairs: int) -> None:
        """`number` is the file's."""
        self.number = number
        self._file = file
        self._position = position
        self._end = position + pairs * PAIR_BYTES
        self.next_ms = 0
        self._look()

    def __len__(self) -> int:
        return (self._end - self._position) // PAIR_BYTES

    def take(self, now_ms: int, limit: int) -> list[int]:
        """Offsets of at most `limit` pairs whose time has come, which are gone from here then.

        OSError, and none is gone, if the file cannot be read.
        """
        before = self._position, self.next_ms
        taken: list[int] = []
        try:
            while len(taken) < limit and self._position < self._end and self.next_ms <= now_ms:
                block = self._read(min(_BLOCK_PAIRS, limit - len(taken)))
                times = block[::2]
                due = bisect_right(times, now_ms)
                taken += block[1 : 2 * due : 2]
                self._position += due * PAIR_BYTES
                self._look()
        except OSError:
            self._position, self.next_ms = before
            raise
        return taken

    def skip(self, now_ms: int) -> None:
        """Leave out what is due by now."""
        while self._position < self._end and self.next_ms <= now_ms:
            self.take(now_ms, _BLOCK_PAIRS)

    def offsets(self) -> Iterator[Sequence[int]]:
        """The offsets that are left, a block at a time."""
        position = self._position
        while position < self._end:
            block = _decode(self._file.pread(min(1 << 16, self._end - position), position))
            yield block[1::2]
            position += len(block) * 8

    def _read(self, pairs: int) -> "array[int]":
        size = min(pairs * PAIR_BYTES, self._end - self._position)
        return _decode(self._file.pread(size, self._position))

    def _look(self) -> None:
        if self._position < self._end:
            self.next_ms = self._read(1)[0]


class DelayFiles:
    """The extents of one partition's folder."""

    __slots__ = ("_disk", "_files", "_folder", "_live", "_next")

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._files: dict[int, File] = {}
        self._live: dict[int, int] = {}  # extents of each file that are not used up
        self._next = 0

    def load(self, now_ms: int) -> list[Extent]:
        """What is there and not due yet."""
        extents: list[Extent] = []
        if not self._disk.exists(self._folder):
            return extents
        for name in self._disk.list(self._folder):
            if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdigit():
                number = int(name[len(_PREFIX) :])
                self._next = max(self._next, number + 1)
                extents += self._load(number, now_ms)
        return extents

    def write(self, pairs: Sequence[Pair]) -> Extent:
        """Add an extent of `pairs`, which are in order."""
        flat = array("Q", [number for pair in pairs for number in pair])
        body = _encode(flat)
        number = max(self._files, default=-1)
        if number < 0 or self._files[number].size > _FILE_BYTES:
            number, self._next = self._next, self._next + 1
            self._files[number] = self._disk.open(self._folder / f"{_PREFIX}{number}")
        file = self._files[number]
        position = file.append(_HEADER.pack(_MAGIC, len(pairs), crc32c(body), 0) + body)
        self._live[number] = self._live.get(number, 0) + 1
        return Extent(number, file, position + _HEADER.size, len(pairs))

    def used_up(self, extent: Extent) -> None:
        self._live[extent.number] -= 1
        if not self._live[extent.number]:
            self._remove(extent.number)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _load(self, number: int, now_ms: int) -> list[Extent]:
        file = self._files[number] = self._disk.open(self._folder / f"{_PREFIX}{number}")
        extents: list[Extent] = []
        position = 0
        while position + _HEADER.size <= file.size:
            magic, pairs, crc, _ = _HEADER.unpack(file.pread(_HEADER.size, position))
            start = position + _HEADER.size
            end = start + pairs * PAIR_BYTES
            if magic != _MAGIC or end > file.size or _crc(file, start, end - start) != crc:
                log.warning(
                    "%s: %s is damaged at %d; the log is read for what is missing",
                    partition_name(file.path),
                    file.path.name,
                    position,
                )
                break
            extent = Extent(number, file, start, pairs)
            extent.skip(now_ms)
            if len(extent):
                extents.append(extent)
            position = end
        if position < file.size:
            file.truncate(position)  # or what is written next would not be found behind it
        self._live[number] = len(extents)
        if not extents:
            self._remove(number)
        return extents

    def _remove(self, number: int) -> None:
        self._live.pop(number, None)
        self._files.pop(number).close()
        path = self._folder / f"{_PREFIX}{number}"
        try:
            self._disk.remove(path)
        except OSError as error:  # all in it is past, so the next start finds nothing there and removes it
            log.warning(
                "%s: %s could not be removed, goes at the next start: %s",
                partition_name(path),
                path.name,
                error,
            )


def _crc(file: File, position: int, size: int) -> int:
    crc = 0
    for at in range(0, size, 1 << 16):
        crc = crc32c(file.pread(min(1 << 16, size - at), position + at), crc)
    return crc


def _encode(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _decode(data: bytes) -> "array[int]":
    numbers = array("Q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
