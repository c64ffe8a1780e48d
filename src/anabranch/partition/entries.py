"""A partition as Pulsar consumers read it: entry by entry, decided transactions only.

    read      entries from an offset on, below what readers may see
    bounds    which entry an offset belongs to

Reads go to the page cache and are copied from there, since a frame's head stands before each entry.  What
is not in the cache is read by a thread first: `pending` says when to ask again, and the loop goes on.

What a Kafka producer wrote and nobody can read is passed over: the broker does not look into batches.
"""

import asyncio
import logging
from typing import NamedTuple

from anabranch.base.errors import Corrupt, OffsetOutOfRange, TooLarge, UnsupportedForFormat
from anabranch.base.network import FileRange
from anabranch.base.page_cache import is_cached, read_through
from anabranch.base.seldom import Seldom
from anabranch.base.waiters import Waiter
from anabranch.log.transactions import AbortedTransaction
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, read_header, split_batches
from anabranch.records.entries import Entry, as_entry

_unreadable = Seldom(logging.getLogger(__name__), 10.0)


class Entries(NamedTuple):
    """What a read brought; `pending` is set if the disk must be asked first, and nothing else is then."""

    entries: list[Entry]
    next_offset: int
    """Where to go on: everything below it is in `entries`, is no message, or was asked for not to be."""
    pending: "asyncio.Future[None] | None" = None


class EntryReader:
    __slots__ = ("_is_own_only", "_isolation", "_partition", "_warmed")

    def __init__(self, partition: Partition, *, is_own_only: bool = False) -> None:
        """`is_own_only`: what Pulsar producers sent and nothing else, decided as soon as it is stored."""
        self._partition = partition
        self._is_own_only = is_own_only
        self._isolation = Isolation.UNCOMMITTED if is_own_only else Isolation.COMMITTED
        self._warmed: FileRange | None = None  # once is enough: some file systems always say they would wait

    @property
    def start(self) -> int:
        """The oldest offset there is."""
        return self._partition.log_start

    @property
    def end(self) -> int:
        """The offset that readers may see up to."""
        return self._partition.high_watermark if self._is_own_only else self._partition.last_stable

    def read(self, offset: int, max_bytes: int) -> Entries:
        """Entries from the one that holds `offset`; the first one whatever its size.

        An offset that is no more (retention has taken it) means the oldest there is.
        """
        partition = self._partition
        offset = max(offset, partition.log_start)
        if offset >= self.end:
            return Entries([], offset)
        part = partition.read(offset, max_bytes, self._isolation, whole_first=True)
        if part is None:
            return Entries([], self.end)
        if not is_cached(part) and part != self._warmed:
            self._warmed = part
            loop = asyncio.get_running_loop()
            return Entries([], offset, loop.run_in_executor(None, read_through, part))
        data = part.file.pread(part.size, part.position)
        if self._is_own_only:
            return _own_entries(data, offset)
        return _entries(data, offset, partition.aborted(offset, self._isolation, part) or [])

    def wait(self, waiter: Waiter) -> None:
        """Call `waiter` whenever there is more to read, until `stop_waiting`."""
        self._partition.wait(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._partition.stop_waiting(waiter)

    def bounds(self, offset: int) -> tuple[int, int]:
        """The first offset of the entry that holds `offset`, and the one after its last.

        OffsetOutOfRange if nothing is there or ever was.
        """
        part = self._partition.read(offset, HEADER_SIZE, Isolation.UNCOMMITTED, whole_first=True)
        if part is None:
            raise OffsetOutOfRange(f"there is no message at offset {offset}")
        header = read_header(part.file.pread(HEADER_SIZE, part.position))
        if header.base_offset > offset:  # compaction left a gap there
            return offset, header.base_offset
        return header.base_offset, header.last_offset + 1


def _entries(data: bytes, offset: int, aborted: list[AbortedTransaction]) -> Entries:
    """The messages in `data` from `offset` on, without those of aborted transactions."""
    entries: list[Entry] = []
    next_offset = offset
    for header, batch in split_batches(data):
        next_offset = header.last_offset + 1
        if header.is_control or (
            header.is_transactional and _is_aborted(header.producer_id, header.base_offset, aborted)
        ):
            continue
        try:
            entries.append(as_entry(header, batch))
        except (Corrupt, TooLarge, UnsupportedForFormat) as error:  # or nobody would ever get past it
            _unreadable.warning(
                "offset %d is passed over, Pulsar cannot have it: %s", header.base_offset, error
            )
    return Entries(entries, next_offset)


def _own_entries(data: bytes, offset: int) -> Entries:
    """What Pulsar producers sent of `data`."""
    entries: list[Entry] = []
    next_offset = offset
    for header, batch in split_batches(data):
        next_offset = header.last_offset + 1
        if header.attributes & PULSAR_ENTRY:
            entries.append(as_entry(header, batch))
    return Entries(entries, next_offset)


def _is_aborted(producer_id: int, offset: int, aborted: list[AbortedTransaction]) -> bool:
    return any(
        ended.producer_id == producer_id and ended.first_offset <= offset <= ended.last_offset
        for ended in aborted
    )
