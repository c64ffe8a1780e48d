"""A partition as Pulsar consumers read it: entry by entry, decided transactions only.

    read      entries from an offset on, below what readers may see
    bounds    which entry an offset belongs to

Reads go to the page cache and are copied from there, since a frame's head stands before each entry.  What
is not in the cache is read by a thread first: `pending` says when to ask again, and the loop goes on.

Batches of Kafka's producers are translated (`pulsar_part`), for which a reader may have to wait as for the
disk.  What nobody can read is passed over: the broker does not look into batches when it takes them.
"""

import asyncio
from typing import NamedTuple, Protocol

from anabranch.base.errors import OffsetOutOfRange
from anabranch.base.network import FileRange
from anabranch.base.waiters import Waiter
from anabranch.log.transactions import AbortedTransaction
from anabranch.partition.partition_log import Isolation
from anabranch.partition.pulsar_part import pulsar_part
from anabranch.partition.translations import Translations
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, BatchHeader, read_header, split_batches
from anabranch.records.entries import Entry, as_entry, read_metadata


class Entries(NamedTuple):
    """What a read brought; `pending` is set if something must be done first, and nothing else is then."""

    entries: list[Entry]
    next_offset: int
    """Where to go on: everything below it is in `entries`, is no message, or was asked for not to be."""
    pending: "asyncio.Future[None] | None" = None


class Readable(Protocol):
    """What is read: a partition, or a compacted view of one."""

    @property
    def log_start(self) -> int: ...

    @property
    def last_stable(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def translations(self) -> Translations: ...

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool
    ) -> FileRange | None: ...

    def aborted(
        self, offset: int, isolation: Isolation, records: FileRange | None
    ) -> list[AbortedTransaction] | None: ...

    def wait(self, waiter: Waiter) -> None: ...

    def stop_waiting(self, waiter: Waiter) -> None: ...


class EntryReader:
    __slots__ = ("_is_own_only", "_isolation", "_partition", "_warmed", "splits")

    def __init__(self, partition: Readable, *, is_own_only: bool = False) -> None:
        """`is_own_only`: what Pulsar producers sent and nothing else, decided as soon as it is stored."""
        self._partition = partition
        self._is_own_only = is_own_only
        self._isolation = Isolation.UNCOMMITTED if is_own_only else Isolation.COMMITTED
        self.splits = False
        """Whether batches of Kafka's producers come message by message, each an entry of its own."""
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
        if not part.is_cached() and part != self._warmed:
            self._warmed = part
            return Entries([], offset, part.read_ahead())
        data = part.file.pread(part.size, part.position)
        if self._is_own_only:
            return _own_entries(data, offset)
        return self._entries(data, offset, partition.aborted(offset, self._isolation, part) or [])

    def _entries(self, data: bytes, offset: int, aborted: list[AbortedTransaction]) -> Entries:
        """The messages in `data` from `offset` on, without those of aborted transactions."""
        entries: list[Entry] = []
        next_offset = offset
        for header, batch in split_batches(data):
            if not header.is_control and not (header.is_transactional and _is_aborted(header, aborted)):
                if header.attributes & PULSAR_ENTRY:
                    payload = batch[HEADER_SIZE:]
                    gaps = _gaps(header, payload) if header.count <= header.last_offset_delta else ()
                    entries.append(as_entry(header, payload, gaps))
                else:
                    made = pulsar_part(
                        self._partition, self._partition.translations, header, batch, splits=self.splits
                    )
                    if isinstance(made, asyncio.Future):
                        return Entries(entries, next_offset) if entries else Entries([], offset, made)
                    if made.data:
                        entries.append(as_entry(header, memoryview(made.data), made.gaps))
                    entries += [
                        Entry(at, 1, header.leader_epoch, header.max_timestamp, memoryview(message))
                        for at, message in made.messages
                        if at >= offset
                    ]
            next_offset = header.last_offset + 1
        return Entries(entries, next_offset)

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
        if self.splits and not header.attributes & PULSAR_ENTRY:
            return offset, offset + 1
        return header.base_offset, header.last_offset + 1


def _gaps(header: BatchHeader, payload: memoryview) -> tuple[tuple[int, int], ...]:
    """What compaction took out of a Pulsar entry, which says who is left."""
    gaps: list[tuple[int, int]] = []
    at = header.base_offset
    for index in read_metadata(payload).compacted_batch_indexes:
        if header.base_offset + index > at:
            gaps.append((at, header.base_offset + index))
        at = header.base_offset + index + 1
    if at <= header.last_offset:
        gaps.append((at, header.last_offset + 1))
    return tuple(gaps)


def _own_entries(data: bytes, offset: int) -> Entries:
    """What Pulsar producers sent of `data`."""
    entries: list[Entry] = []
    next_offset = offset
    for header, batch in split_batches(data):
        next_offset = header.last_offset + 1
        if header.attributes & PULSAR_ENTRY:
            entries.append(as_entry(header, batch[HEADER_SIZE:]))
    return Entries(entries, next_offset)


def _is_aborted(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    return any(
        ended.producer_id == header.producer_id
        and ended.first_offset <= header.base_offset <= ended.last_offset
        for ended in aborted
    )
