"""Numbers of records, many at a time: columns of zigzag varints read and written with numpy.

    read(data, at)       the number at each place of `at`, and where each ends
    sizes(numbers)       how many bytes each number takes
    write(out, at, …)    each number at its place

A varint has seven bits per byte, the lowest first; the highest bit says that more follow.  Almost all
numbers of records are short, so a pass over the few that go on is made for every further byte, and numbers
that are all of one byte cost one look-up.
"""

import numpy as np
from numpy.typing import NDArray

from anabranch.base.errors import Corrupt

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

_MOST_BITS = 63  # the shift of a long's tenth byte


def read(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The numbers at `at`, and where they end.  Corrupt if one does not end in `data`."""
    try:
        first = data[at]
        value = (first & 127).astype(np.uint64)
        end = at + 1
        going_on = np.flatnonzero(first > 127)
        shift = 7
        while len(going_on):
            if shift > _MOST_BITS:
                raise Corrupt("a number of a record is longer than ten bytes")
            byte = data[end[going_on]]
            value[going_on] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            end[going_on] += 1
            going_on = going_on[byte > 127]
            shift += 7
    except IndexError:
        raise Corrupt("a batch ends inside a record") from None
    return unzigzag(value), end


def unzigzag(value: "NDArray[np.uint64]") -> Ints:
    """0, -1, 1, -2 … of 0, 1, 2, 3 …"""
    half = (value >> np.uint64(1)).view(np.int64)
    return half ^ -(value & np.uint64(1)).view(np.int64)


def zigzag(numbers: Ints) -> "NDArray[np.uint64]":
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def sizes(numbers: Ints) -> Ints:
    """How many bytes each number takes."""
    return plain_sizes(zigzag(numbers))


def plain_sizes(numbers: "NDArray[np.uint64]") -> Ints:
    """How many bytes each takes, as Protobuf has numbers without a sign."""
    size = np.ones(len(numbers), np.int64)
    rest = numbers >> np.uint64(7)
    while rest.any():
        size += rest > 0
        rest >>= np.uint64(7)
    return size


def write(out: Bytes, at: Ints, numbers: Ints) -> Ints:
    """Put each number at its place in `out`, which has room.  Where each ends."""
    return write_plain(out, at, zigzag(numbers))


def write_plain(out: Bytes, at: Ints, numbers: "NDArray[np.uint64]") -> Ints:
    rest, end = numbers.copy(), at.copy()
    going_on = np.arange(len(rest))
    while len(going_on):
        low = (rest[going_on] & np.uint64(127)).astype(np.uint8)
        rest[going_on] >>= np.uint64(7)
        more = rest[going_on] > 0
        out[end[going_on]] = low | (more.astype(np.uint8) << 7)
        end[going_on] += 1
        going_on = going_on[more]
    return end
