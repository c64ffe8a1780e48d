"""A topic as who asks for the last message of every key reads it: its compacted view, then its log.

    view   │ last of every key below the horizon │
    log    ·······································│ everything from there on │

A reader stays with the view that it began in until it has passed its horizon, and with the log from then on,
though there may be a newer view (`log/compacted.py` says why); unless the log is gone where it goes on.

    start    0, if there is a view: it has what retention took from the log
"""

from anabranch.base.errors import OffsetOutOfRange
from anabranch.base.network import FileRange
from anabranch.base.waiters import Waiter
from anabranch.log.compacted import CompactedLog
from anabranch.log.transactions import AbortedTransaction
from anabranch.partition.entries import Entries, EntryReader
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.partition.translations import Translations


class _ViewPartition:
    """A view, as `EntryReader` wants a partition to be.

    Those of one partition are equal: what was translated for one reader is there for the next.
    """

    __slots__ = ("_partition", "_view")

    def __init__(self, view: CompactedLog, partition: Partition) -> None:
        self._view = view
        self._partition = partition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ViewPartition) and other._partition is self._partition

    def __hash__(self) -> int:
        return hash((_ViewPartition, id(self._partition)))

    @property
    def translations(self) -> Translations:
        return self._partition.translations

    @property
    def log_start(self) -> int:
        return 0

    @property
    def last_stable(self) -> int:
        return self._view.horizon

    @property
    def log_end(self) -> int:
        return self._view.horizon

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool
    ) -> FileRange | None:
        return self._view.read(offset, max_bytes, whole_first=whole_first)

    def aborted(
        self, offset: int, isolation: Isolation, records: FileRange | None
    ) -> list[AbortedTransaction]:
        return []  # compaction left them out

    def wait(self, waiter: Waiter) -> None:
        """It does not grow."""

    def stop_waiting(self, waiter: Waiter) -> None:
        """Nobody waits."""


class CompactedEntries:
    """An `EntrySource` (`subscriptions/surroundings.py`)."""

    __slots__ = ("_has_begun", "_log", "_partition", "_reader", "_view")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._log = EntryReader(partition)
        self._view: CompactedLog | None = None  # the one that is being read
        self._reader: EntryReader | None = None
        self._has_begun = False

    @property
    def start(self) -> int:
        return self._log.start if self._partition.view is None else 0

    @property
    def end(self) -> int:
        return self._log.end

    def begin(self) -> None:
        """Somebody begins to read, or nobody reads any more."""
        self._leave_view()
        self._has_begun = False

    def _leave_view(self) -> None:
        if self._view is not None:
            self._view.release()
        self._view = self._reader = None

    def read(self, offset: int, max_bytes: int) -> Entries:
        return self._reader_at(offset).read(offset, max_bytes)

    def _reader_at(self, offset: int) -> EntryReader:
        """Of whatever has what comes at `offset`."""
        if self._view is not None and self._reader is not None:
            if offset < self._view.horizon:
                return self._reader
            self._leave_view()
        newest = self._partition.view
        stays = self._has_begun and offset >= self._log.start
        self._has_begun = True
        if newest is None or stays or offset >= newest.horizon:
            return self._log
        newest.hold()
        self._view, self._reader = newest, self._reader_of(newest)
        return self._reader

    def bounds(self, offset: int) -> tuple[int, int]:
        if offset >= self._log.start:
            return self._log.bounds(offset)
        view = self._view or self._partition.view
        if view is None:
            raise OffsetOutOfRange(f"there is no message at offset {offset}")
        return self._reader_of(view).bounds(offset)

    def _reader_of(self, view: CompactedLog) -> EntryReader:
        return EntryReader(_ViewPartition(view, self._partition))

    def wait(self, waiter: Waiter) -> None:
        self._log.wait(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._log.stop_waiting(waiter)
