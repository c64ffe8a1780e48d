"""Cursor: what a subscription has acknowledged in a partition, in whatever order it came in.

    offsets        0 . . . . . . 7 . . . . . . . . .
    acknowledged   # # # # # # # _ # # _ _ # _ _ _ _
                                 ^mark_delete
                                   ^^^     ^  acked ahead

Everything below `mark_delete` is acknowledged, the offset at it is not.  What was acknowledged ahead of it
is kept in roaring bitmaps, one per chunk of 2^16 offsets, so that a million holes take hundreds of kilobytes
and an acknowledgement costs the same whatever their number.  A chunk that the mark has passed goes.  In the
chunk that the mark stands in, what is below it does not count.

Offsets of messages and of gaps (control batches, what compaction took) are alike here: nobody acknowledges
a gap, so whoever reads over one passes it over.

A store that keeps the chunks asks for those that changed since it last took them (`take_changed`).

It is pure: no I/O, no clock.  Checked against a plain set by tests/model/test_cursor.py.
"""

from collections.abc import Iterable

from pyroaring import BitMap

from anabranch.base.errors import Corrupt
from anabranch.subscriptions.ack_sets import words_without

CHUNK_BITS = 16
CHUNK = 1 << CHUNK_BITS
_LOW = CHUNK - 1
_WORTH_RUNS = 1024  # below, a chunk takes 2 KB at most
_FEW = 8


class Cursor:
    __slots__ = ("_ahead", "_changed", "_chunks", "mark_delete")

    def __init__(self, mark_delete: int) -> None:
        self.mark_delete = mark_delete
        self._chunks: dict[int, BitMap] = {}
        self._ahead = 0
        self._changed: set[int] = set()

    @classmethod
    def restore(cls, mark_delete: int, chunks: Iterable[tuple[int, bytes]]) -> "Cursor":
        """A cursor as it was kept.  Chunks below the mark do not matter; Corrupt if another is not whole."""
        cursor = cls(mark_delete)
        for chunk, data in chunks:
            if (chunk + 1) << CHUNK_BITS <= mark_delete:
                continue
            try:
                bitmap = BitMap.deserialize(data)
            except ValueError as error:
                raise Corrupt(f"chunk {chunk} of a cursor is no bitmap: {error}") from error
            if chunk < 0 or not bitmap or bitmap.max() > _LOW:
                raise Corrupt(f"chunk {chunk} of a cursor is not a bitmap of {CHUNK} offsets")
            cursor._chunks[chunk] = bitmap
        for chunk, bitmap in cursor._chunks.items():
            below = max(0, mark_delete - (chunk << CHUNK_BITS))
            cursor._ahead += bitmap.range_cardinality(below, CHUNK)
        cursor._move_to(mark_delete)
        return cursor

    # --- acknowledging

    def ack(self, start: int, end: int) -> int:
        """Offsets from `start` up to `end` are acknowledged; how many of them were not before."""
        mark = self.mark_delete
        if start <= mark:
            return self.ack_up_to(end) if end > mark else 0
        if start >> CHUNK_BITS == (end - 1) >> CHUNK_BITS:
            return self._set(start >> CHUNK_BITS, start & _LOW, ((end - 1) & _LOW) + 1)
        newly = 0
        while start < end:
            chunk = start >> CHUNK_BITS
            part_end = min(end, (chunk + 1) << CHUNK_BITS)
            newly += self._set(chunk, start & _LOW, ((part_end - 1) & _LOW) + 1)
            start = part_end
        return newly

    def ack_up_to(self, end: int) -> int:
        """Every offset below `end` is acknowledged; how many were not before."""
        newly = end - self.mark_delete
        if newly <= 0:
            return 0
        if self._ahead and newly > 1:  # the one at the mark is not acknowledged
            passed = self._count(self.mark_delete, end)
            newly -= passed
            self._ahead -= passed
        self._move_to(end)
        return newly

    def pass_over(self, start: int, end: int) -> None:
        """There are no messages from `start` up to `end`."""
        self.ack(start, end)

    def reset(self, offset: int) -> None:
        """Begin again at `offset`: nothing from there on is acknowledged."""
        self._chunks.clear()
        self._changed.clear()
        self._ahead = 0
        self.mark_delete = offset

    def cut(self, end: int) -> bool:
        """The log ends at `end`: nothing beyond is acknowledged.  True if something was."""
        if end <= self.mark_delete:
            was_beyond = end < self.mark_delete or self._ahead > 0
            self.reset(end)
            return was_beyond
        last, before = end >> CHUNK_BITS, self._ahead
        for chunk in [chunk for chunk in self._chunks if chunk >= last]:
            bitmap = self._chunks[chunk]
            self._ahead -= len(bitmap)
            bitmap.remove_range(end & _LOW if chunk == last else 0, CHUNK)
            self._ahead += len(bitmap)
            if not bitmap:
                del self._chunks[chunk]
        if not self._ahead:
            self._chunks.clear()
        return self._ahead != before

    # --- asking

    def is_acked(self, offset: int) -> bool:
        if offset < self.mark_delete:
            return True
        bitmap = self._chunks.get(offset >> CHUNK_BITS)
        return bitmap is not None and offset & _LOW in bitmap

    def is_acked_ahead(self, offset: int) -> bool:
        """Whether it is acknowledged, beyond `mark_delete`."""
        return offset > self.mark_delete and self.is_acked(offset)

    def acked_between(self, start: int, end: int) -> int:
        """How many offsets from `start` up to `end` are acknowledged beyond `mark_delete`."""
        start = max(start, self.mark_delete)
        return self._count(start, end) if self._ahead and start < end else 0

    def acked_end(self) -> int:
        """Where the last offset ends that is acknowledged."""
        if not self._ahead:
            return self.mark_delete
        last = max(self._chunks)
        return (last << CHUNK_BITS) + int(self._chunks[last].max()) + 1

    def all_acked(self, start: int, end: int) -> bool:
        """Whether nothing from `start` up to `end` is left to acknowledge."""
        return self.next_unacked(start) >= end

    def acked_in(self, start: int, end: int) -> int:
        """How many offsets from `start` up to `end` are acknowledged."""
        return min(max(self.mark_delete, start), end) - start + self.acked_between(start, end)

    def acked_of(self, start: int, end: int) -> BitMap:
        """Which offsets from `start` up to `end` are acknowledged, counted from `start`."""
        acked = BitMap()
        if self.mark_delete > start:
            acked.add_range(0, min(self.mark_delete, end) - start)
        for chunk in self._chunks_of(start, end) if self._ahead else ():
            base = chunk << CHUNK_BITS
            asked = BitMap()
            asked.add_range(max(0, start - base), min(CHUNK, end - base))
            asked &= self._chunks[chunk]
            acked |= asked.shift(base - start)
        return acked

    def next_unacked(self, offset: int) -> int:
        """The first offset at or after `offset` that is not acknowledged."""
        return self._end_of_run(max(offset, self.mark_delete))

    def unacked_words(self, start: int, count: int) -> list[int] | None:
        """Which of an entry's messages are left, as Pulsar's ack_set says it: signed 64-bit words, a bit set
        for each message that is not acknowledged, no zero words at the end.  None if none is acknowledged."""
        end = start + count
        if start >= self.mark_delete and (not self._ahead or not self._count(start, end)):
            return None
        return words_without(self.acked_of(start, end), count)

    def acked_ahead(self) -> int:
        """How many offsets beyond `mark_delete` are acknowledged."""
        return self._ahead

    def backlog(self, end: int) -> int:
        """How many offsets below `end` are not acknowledged."""
        return max(0, end - self.mark_delete - self._ahead)

    def backlog_in(self, start: int, end: int) -> int:
        """How many offsets from `start` up to `end` are not acknowledged."""
        start = max(start, self.mark_delete)
        return 0 if start >= end else end - start - (self._count(start, end) if self._ahead else 0)

    def ranges_ahead(self) -> int:
        """How many runs of acknowledged offsets stand ahead of the mark."""
        count, last = 0, -2
        for chunk in sorted(self._chunks):
            bitmap = self._chunks[chunk]
            below = self.mark_delete - (chunk << CHUNK_BITS)
            if below > 0:
                bitmap = bitmap.copy()
                bitmap.remove_range(0, below)
            if bitmap:
                count += len(bitmap - bitmap.shift(1)) - ((chunk << CHUNK_BITS) + bitmap.min() == last + 1)
                last = (chunk << CHUNK_BITS) + bitmap.max()
        return count

    # --- keeping

    def has_changed(self) -> bool:
        """Whether there is something to take."""
        return bool(self._changed)

    def take_changed(self) -> dict[int, bytes]:
        """The chunks that changed since this was last asked, to be kept."""
        taken = {}
        for chunk in self._changed:
            bitmap = self._chunks.get(chunk)
            if bitmap is not None:
                if len(bitmap) > _WORTH_RUNS:
                    bitmap.run_optimize()
                taken[chunk] = bitmap.serialize()
        self._changed.clear()
        return taken

    def not_kept(self, chunks: Iterable[int]) -> None:
        """What was taken could not be kept; it is to be taken again."""
        self._changed.update(chunk for chunk in chunks if chunk in self._chunks)

    def has_chunk(self, chunk: int) -> bool:
        """Whether the chunk has to be kept; one that was kept and has not may go once the mark is kept."""
        return chunk in self._chunks

    # --- how it is done

    def _set(self, chunk: int, low: int, high: int) -> int:
        """Set a range of a chunk that lies ahead of the mark."""
        bitmap = self._chunks.get(chunk)
        if bitmap is None:
            bitmap = self._chunks[chunk] = BitMap()
        if high - low == 1:
            if low in bitmap:
                return 0
            bitmap.add(low)
            newly = 1
        else:
            newly = -len(bitmap)
            bitmap.add_range(low, high)
            newly += len(bitmap)
        if newly:
            self._ahead += newly
            self._changed.add(chunk)
        return newly

    def _move_to(self, mark: int) -> None:
        """Move the mark to `mark`, and on over what is acknowledged from there; forget what it passed."""
        first = self.mark_delete >> CHUNK_BITS
        if self._ahead:
            end = self._end_of_run(mark)
            self._ahead -= end - mark
            mark = end
        self.mark_delete = mark
        if self._chunks and mark >> CHUNK_BITS > first:
            self._forget(first, mark >> CHUNK_BITS)
        if self._chunks and not self._ahead:
            self._chunks.clear()

    def _forget(self, start: int, end: int) -> None:
        """Forget the chunks from `start` up to `end`."""
        if end - start < len(self._chunks):
            for chunk in range(start, end):
                self._chunks.pop(chunk, None)
        else:
            for chunk in [chunk for chunk in self._chunks if chunk < end]:
                del self._chunks[chunk]

    def _end_of_run(self, offset: int) -> int:
        """The first offset at or after `offset` that no chunk has."""
        bitmap = self._chunks.get(offset >> CHUNK_BITS)
        while bitmap is not None and offset & _LOW in bitmap:
            offset += _run(bitmap, offset & _LOW)
            if offset & _LOW:
                break
            bitmap = self._chunks.get(offset >> CHUNK_BITS)
        return offset

    def _count(self, start: int, end: int) -> int:
        """How many offsets from `start` up to `end` the chunks have; none of them is below the mark."""
        first, last = start >> CHUNK_BITS, (end - 1) >> CHUNK_BITS
        if first == last:
            bitmap = self._chunks.get(first)
            return 0 if bitmap is None else bitmap.range_cardinality(start & _LOW, ((end - 1) & _LOW) + 1)
        total = 0
        for chunk in self._chunks_of(start, end):
            base = chunk << CHUNK_BITS
            total += self._chunks[chunk].range_cardinality(max(0, start - base), min(CHUNK, end - base))
        return total

    def _chunks_of(self, start: int, end: int) -> list[int]:
        """The chunks there are that have offsets from `start` up to `end`."""
        first, last = start >> CHUNK_BITS, (end - 1) >> CHUNK_BITS
        if last - first >= len(self._chunks):
            return [chunk for chunk in self._chunks if first <= chunk <= last]
        return [chunk for chunk in range(first, last + 1) if chunk in self._chunks]


def _run(bitmap: BitMap, at: int) -> int:
    """How many bits from `at` on, which is set, are set without a gap."""
    for length in range(1, _FEW):  # the usual; a flipped copy of a chunk takes 1.5 us
        if at + length not in bitmap:
            return length
    bitmap = bitmap.flip(at, CHUNK)
    return int(bitmap.next_set_bit(at)) - at if bitmap and bitmap.max() > at else CHUNK - at
