"""Aborted transactions of a segment, in Kafka's `.txnindex` format.

    version 2 bytes (0) · producer id 8 · first offset 8 · last offset 8 · last stable offset 8

A transaction is listed in the segment that holds its abort marker.  A `read_committed` reader gets
those that overlap what it fetched and leaves their records out.
"""

import logging
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Disk
from anabranch.base.errors import DiskFull
from anabranch.log.paths import TXN_INDEX, partition_name, segment_file

log = logging.getLogger(__name__)

_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    """The content of an index that lists `entries`."""
    return b"".join([_ENTRY.pack(0, *entry) for entry in entries])


def write(
    disk: Disk, folder: Path, base_offset: int, entries: Iterable[AbortedTransaction], *, sync: bool = False
) -> None:
    """Replace the index of a segment."""
    disk.write_whole(segment_file(folder, base_offset, TXN_INDEX), encode(entries), sync=sync)


def read(disk: Disk, folder: Path, base_offset: int) -> list[AbortedTransaction]:
    data = disk.read_whole(segment_file(folder, base_offset, TXN_INDEX))
    whole = len(data) - len(data) % _ENTRY.size
    return [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(data[:whole])]


class AbortedTransactions:
    """The index of one segment.  It is read when first asked for, and in order of the markers."""

    __slots__ = ("_base_offset", "_disk", "_entries", "_folder", "_unsaved")

    def __init__(self, disk: Disk, folder: Path, base_offset: int) -> None:
        self._disk = disk
        self._folder = folder
        self._base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None
        self._unsaved: list[AbortedTransaction] = []  # those of them that are not in the file yet

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = read(self._disk, self._folder, self._base_offset) + self._unsaved
        return self._entries

    def add(self, entry: AbortedTransaction) -> None:
        """List a transaction.  What cannot be written is kept, and written with the next, or by `settle`."""
        if self._entries is not None:
            self._entries.append(entry)
        self._unsaved.append(entry)
        try:
            if len(self._unsaved) > 1:
                self.settle()
            else:
                self._append(entry)
        except (DiskFull, OSError) as error:  # its marker is in the log, which is what counts
            log.warning(
                "%s: aborted transactions could not be listed, tried again with the next: %s",
                partition_name(self._folder),
                error,
            )

    def _append(self, entry: AbortedTransaction) -> None:
        file = self._disk.open(segment_file(self._folder, self._base_offset, TXN_INDEX))
        try:
            file.append(encode([entry]))
        finally:
            file.close()
        self._unsaved.clear()

    def settle(self) -> None:
        """Write what could not be written before.  DiskFull or OSError if it still cannot."""
        if self._unsaved:
            write(self._disk, self._folder, self._base_offset, self.entries())
            self._unsaved.clear()

    def truncate(self, end_offset: int) -> None:
        """Forget transactions whose marker lies at `end_offset` or beyond, for good."""
        kept = [entry for entry in self.entries() if entry.last_offset < end_offset]
        if len(kept) < len(self.entries()):
            write(self._disk, self._folder, self._base_offset, kept, sync=True)
            self._entries = kept
            self._unsaved.clear()

    def clear(self) -> None:
        """Forget all of them, before the markers are read again."""
        self._disk.remove(segment_file(self._folder, self._base_offset, TXN_INDEX))
        self._entries = []
        self._unsaved.clear()
