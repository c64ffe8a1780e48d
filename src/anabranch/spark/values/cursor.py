"""Value cursor: a place in every value at once, from where all of them are read together.

    values     |7 o r d e r - 1 …|9 o r d e r - 1 0 …|…      pieces of one buffer
    cursor      ^                 ^                          a place in each
    number()   7, 9, …                                        and the places move on

A value that turns out not to be one (it ends too early, a length is negative) is marked with the reason and
its place moved to zeros behind the buffer, where everything reads as empty; so the others go on undisturbed,
and nobody has to look at one value at a time.

`only` gives a cursor at some of the places, for what not all values have: a branch of a union, the next item
of an array; `back` takes over how far it got.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.spark.decode import cut
from anabranch.spark.varints import Bytes, Ints, unzigzag

_GAP = 32  # between the last value and where bad ones are put: more than the longest number
_ZEROS = 64
_LONGEST_BITS = 63  # the shift of a long's tenth byte


def padded(data: Bytes) -> Bytes:
    """A buffer, and zeros behind it."""
    return np.concatenate((data, np.zeros(_GAP + _ZEROS, np.uint8)))


class Pieces:
    """The values: where each lies in a buffer that is `padded`, and what is wrong with it."""

    __slots__ = ("claimed", "data", "limits", "nowhere", "reasons", "starts")

    def __init__(self, data: Bytes, starts: Ints, limits: Ints) -> None:
        self.nowhere = len(data) - _ZEROS
        self.data = data
        self.starts = starts
        self.limits = limits
        self.reasons: dict[int, str] = {}
        self.claimed: Ints = np.zeros(len(starts), np.int64)
        """How many items its arrays have claimed so far, by value."""

    def __len__(self) -> int:
        return len(self.starts)


class Cursor:
    __slots__ = ("_pieces", "at", "rows")

    def __init__(self, pieces: Pieces, rows: Ints, at: Ints) -> None:
        self._pieces = pieces
        self.rows = rows
        """Which value each place is in."""
        self.at = at

    def __len__(self) -> int:
        return len(self.at)

    @property
    def data(self) -> Bytes:
        return self._pieces.data

    def left(self) -> Ints:
        """How many bytes of the value come after each place."""
        left: Ints = np.maximum(self._pieces.limits[self.rows] - self.at, 0)
        return left

    def good(self) -> NDArray[np.bool_]:
        """Whether nothing is wrong so far, by place."""
        return self.at < self._pieces.nowhere if self._pieces.reasons else np.ones(len(self), np.bool_)

    def fail(self, where: NDArray[np.bool_], reason: str) -> None:
        """The values of these places are none."""
        if not where.any():
            return
        for row in self.rows[where].tolist():
            self._pieces.reasons.setdefault(row, reason)
        self.at = np.where(where, self._pieces.nowhere, self.at)

    def only(self, chosen: Ints) -> "Cursor":
        return Cursor(self._pieces, self.rows[chosen], self.at[chosen])

    def spread(self, chosen: Ints, at: Ints) -> "Cursor":
        """One at other places in the values of `chosen`."""
        return Cursor(self._pieces, self.rows[chosen], at)

    def back(self, chosen: Ints, part: "Cursor") -> None:
        self.at[chosen] = part.at

    def claim(self, counts: Ints, reason: str) -> None:
        """So many items are to come at each place.

        An item has a byte of its own at least, be it the end of an array in it, or is of no use to anybody: a
        value that claims more items than it has bytes is none.  So nothing of a few bytes becomes large.
        """
        pieces = self._pieces
        impossible = (counts < 0) | (counts > self.left())
        np.add.at(pieces.claimed, self.rows, np.where(impossible, 0, counts))
        impossible |= pieces.claimed[self.rows] > pieces.limits[self.rows] - pieces.starts[self.rows]
        self.fail(impossible & self.good(), reason)

    def claimable(self, place: int) -> int:
        """How many items more the value of a place may claim."""
        row, pieces = self.rows[place], self._pieces
        return int(pieces.limits[row] - pieces.starts[row] - pieces.claimed[row])

    def has_claimed(self, place: int, count: int) -> None:
        """The value of a place has claimed so many more."""
        self._pieces.claimed[self.rows[place]] += count

    # --- what is read

    def number(self) -> Ints:
        """A zigzag varint."""
        return unzigzag(self.unsigned())

    def unsigned(self) -> NDArray[np.uint64]:
        """A varint."""
        data, begin = self.data, self.at
        first = data[begin]
        value = (first & 127).astype(np.uint64)
        end = begin + 1
        going_on = np.flatnonzero(first > 127)
        shift = 7
        while len(going_on) and shift <= _LONGEST_BITS:
            byte = data[end[going_on]]
            value[going_on] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            end[going_on] += 1
            going_on = going_on[byte > 127]
            shift += 7
        self.at = end
        if len(going_on):
            self.fail(_mask(len(self), going_on), "a number is longer than ten bytes")
        self._moved()
        return value

    def take(self, sizes: Ints) -> tuple[Ints, Ints]:
        """So many bytes of each: where they lie and how many they are, none where there are too few."""
        missing = (sizes < 0) | (sizes > self.left())
        if missing.any():
            missing &= self.good()
            self.fail(missing & (sizes < 0), "a length is negative")
            self.fail(missing & (sizes > 0), "it ends too early")
            sizes = np.where(self.good(), sizes, 0)
        starts = self.at
        self.at = starts + sizes
        self._moved()
        return starts, sizes

    def fixed(self, size: int) -> NDArray[np.uint8]:
        """`size` bytes of each, as rows of a table."""
        starts, sizes = self.take(np.full(len(self), size, np.int64))
        if not sizes.all():  # of those that had too few: zeros
            starts = np.where(sizes > 0, starts, self._pieces.nowhere)
        table: NDArray[np.uint8] = self.data[starts[:, None] + np.arange(size)]
        return table

    def pieces(self, sizes: Ints) -> pa.BinaryArray:
        """So many bytes of each, as a column."""
        starts, sizes = self.take(sizes)
        if self._pieces.reasons:  # Arrow wants them in order of place
            starts = np.maximum.accumulate(np.where(starts < self._pieces.nowhere, starts, 0))
        return cut(self.data, starts, sizes)

    def text(self, sizes: Ints) -> pa.StringArray:
        found = self.pieces(sizes)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [_text(one) for one in found.to_pylist()]
            self.fail(np.array([one is None for one in texts]), "text is not UTF-8")
            return pa.array([one or "" for one in texts], pa.string())

    def _moved(self) -> None:
        """Who is behind the end of its value has read what is not there."""
        over = self.at > self._pieces.limits[self.rows]
        if over.any():
            self.fail(over & (self.at < self._pieces.nowhere), "it ends too early")
            self.at = np.minimum(self.at, self._pieces.nowhere)


def cursor_of(pieces: Pieces) -> Cursor:
    return Cursor(pieces, np.arange(len(pieces)), pieces.starts.copy())


def check_ends(pieces: Pieces, cursor: Cursor) -> None:
    """What is read must have been all of the value."""
    over = (cursor.at != pieces.limits) & (cursor.at < pieces.nowhere)
    cursor.fail(over, "there is more after its end")


def _mask(size: int, chosen: Ints) -> NDArray[np.bool_]:
    mask = np.zeros(size, np.bool_)
    mask[chosen] = True
    return mask


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
