"""Read position of a subscription in its log, and the entries it gets from there.

    fresh    what was never delivered, from `offset` on
    again    entries by their offsets, for those that are to be delivered once more

Gaps (control batches, what compaction or retention took) are passed over in the cursor, since nobody will
acknowledge them; entries that are acknowledged as a whole are left out, by transactions that are open too
(`pending`).  Neither needs a look at the cursor for entries that lie beyond everything that was ever
acknowledged (`_acked_below`), which is the usual case.

When the disk must be asked first, nothing is returned and `disk` says when to come back.
"""

from collections.abc import Sequence

from anabranch.records.entries import Entry
from anabranch.subscriptions.ack_sets import unacked_in
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.pending_acks import PendingAcks
from anabranch.subscriptions.surroundings import CompactedSource, EntrySource, Pending


class Reading:
    __slots__ = ("_acked_below", "_compacted", "_plain", "_source", "cursor", "disk", "offset", "pending")

    def __init__(self, source: EntrySource, cursor: Cursor, compacted: CompactedSource | None = None) -> None:
        self._source = self._plain = source
        self._compacted = compacted
        self.cursor = cursor
        self.pending = PendingAcks(cursor)
        self.offset = cursor.mark_delete
        self.disk: Pending | None = None
        self._acked_below = source.end if cursor.acked_ahead() else cursor.mark_delete

    @property
    def start(self) -> int:
        """The oldest offset that whoever reads can be given."""
        return self._source.start

    @property
    def is_at_end(self) -> bool:
        return self.offset >= self._source.end

    def choose(self, *, compacted: bool) -> None:
        """Whoever reads from now on wants all messages, or the last one of every key."""
        if self._compacted is not None:
            self._compacted.begin()
        self._source = self._compacted if compacted and self._compacted is not None else self._plain

    def rewind(self) -> None:
        """Go back to the first message that is not acknowledged."""
        mark = self.offset = self.cursor.mark_delete
        self._acked_below = max(self._acked_below, mark) if self.cursor.acked_ahead() else mark
        if self.pending:
            self.acked(self.pending.end)

    def acked(self, end: int) -> None:
        """Something below `end` was acknowledged."""
        if end > self._acked_below:
            self._acked_below = end

    def fresh(self, max_bytes: int) -> list[Entry]:
        """Entries from `offset` on, which moves behind them."""
        if self.offset < self.cursor.mark_delete:
            self.offset = self.cursor.mark_delete
        offset = self.offset
        entries, next_offset, self.disk = self._source.read(offset, max_bytes)
        if self.disk is not None:
            return []
        at = offset
        for entry in entries:
            if entry.offset > at:
                self._pass_over(at, entry.offset)
            for gap in entry.gaps:
                self._pass_over(*gap)
            at = entry.offset + entry.count
        if next_offset > at:
            self._pass_over(at, next_offset)
        self.offset = max(next_offset, offset)
        if entries and entries[0].offset < self._acked_below:
            entries = [entry for entry in entries if not self._is_done(entry)]
        return entries

    def again(self, offsets: Sequence[int], max_bytes: int) -> tuple[list[Entry], int]:
        """The entries at `offsets`, which ascend, and how many of the offsets that has settled.

        Those that are gone or acknowledged are settled without an entry.
        """
        entries: list[Entry] = []
        settled = 0
        size = 1  # of a read: one entry; more, if what follows turns out to be wanted too
        while settled < len(offsets) and max_bytes > 0:
            wanted = offsets[settled]
            found, next_offset, self.disk = self._source.read(wanted, min(size, max_bytes))
            if self.disk is not None:
                break
            used = 0
            for entry in found:
                settled = self._gone(offsets, settled, entry.offset)
                if settled < len(offsets) and offsets[settled] < entry.offset + entry.count:
                    settled += 1
                    used += 1
                    max_bytes -= len(entry.payload)
                    if not self._is_done(entry):
                        entries.append(entry)
            settled = self._gone(offsets, settled, next_offset)
            if settled < len(offsets) and offsets[settled] == wanted:
                break  # beyond what readers may see
            size = size * 4 + 1024 if used == len(found) else 1
        return entries, settled

    def _gone(self, offsets: Sequence[int], settled: int, end: int) -> int:
        """Pass over those offsets below `end` that no entry was found for."""
        while settled < len(offsets) and offsets[settled] < end:
            self._pass_over(offsets[settled], offsets[settled] + 1)
            settled += 1
        return settled

    def ack_set(self, entry: Entry) -> list[int] | None:
        """Which messages of an entry are left, None if all are."""
        return self._left(entry.offset, entry.count)

    def unacked(self, offset: int, count: int) -> int:
        """How many messages of an entry are not acknowledged."""
        words = self._left(offset, count)
        return count if words is None else unacked_in(words)

    def _left(self, offset: int, count: int) -> list[int] | None:
        if offset >= self._acked_below:
            return None
        return self.pending.left(offset, count) if self.pending else self.cursor.unacked_words(offset, count)

    def is_settled(self, start: int, end: int) -> bool:
        """Whether nothing from `start` up to `end` is left to acknowledge, unless a transaction aborts."""
        return self.pending.all_settled(start, end) if self.pending else self.cursor.all_acked(start, end)

    def _is_done(self, entry: Entry) -> bool:
        return entry.offset < self._acked_below and self.is_settled(entry.offset, entry.offset + entry.count)

    def _pass_over(self, start: int, end: int) -> None:
        self.cursor.pass_over(start, end)
        self.acked(end)
