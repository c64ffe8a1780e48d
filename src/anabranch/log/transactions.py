"""Aborted transactions of a segment, in Kafka's `.txnindex` format.

    version 2 bytes (0) · producer id 8 · first offset 8 · last offset 8 · last stable offset 8

A transaction is listed in the segment that holds its abort marker.  A `read_committed` reader gets
those that overlap what it fetched and leaves their records out.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Disk
from anabranch.log.paths import TXN_INDEX, segment_file

_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def append(disk: Disk, folder: Path, base_offset: int, aborted: AbortedTransaction) -> None:
    file = disk.open(segment_file(folder, base_offset, TXN_INDEX))
    try:
        file.append(_ENTRY.pack(0, *aborted))
    finally:
        file.close()


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    """The content of an index that lists `entries`."""
    return b"".join([_ENTRY.pack(0, *entry) for entry in entries])


def write(disk: Disk, folder: Path, base_offset: int, entries: Iterable[AbortedTransaction]) -> None:
    """Replace the index of a segment."""
    disk.write_whole(segment_file(folder, base_offset, TXN_INDEX), encode(entries), sync=False)


def read(disk: Disk, folder: Path, base_offset: int) -> list[AbortedTransaction]:
    data = disk.read_whole(segment_file(folder, base_offset, TXN_INDEX))
    whole = len(data) - len(data) % _ENTRY.size
    return [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(data[:whole])]
