"""Acknowledgements inside a batch as Pulsar writes them: words of 64 bits, a bit set for each *not* acked.

    ack_set [0b101] of an entry of 3 messages at offset 40   ->   (41, 42)

Words that are missing at the end are zero: everything they stand for is acknowledged.  Clients send words as
signed numbers, and may send more of them than the entry has messages.
"""

from collections.abc import Iterator, Sequence
from struct import unpack

from pyroaring import BitMap

from anabranch.subscriptions.bitmaps import bits_of

_WORD = (1 << 64) - 1


def acked_ranges(offset: int, count: int, words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs of offsets that an ack_set acknowledges of the entry at `offset`.

    Word by word: an entry may claim a million messages, and every other of them be acknowledged.  Words that
    are missing are none, or a few bytes would be work for a million messages.
    """
    start = -1  # of the run that is not over
    said = min(len(words), (count + 63) // 64)
    for index in range(said):
        base = 64 * index
        size = min(64, count - base)
        mask = (1 << size) - 1
        wanted = words[index] & mask
        at = 0
        while True:
            if start < 0:
                acked = ~wanted & mask & -(1 << at)
                if not acked:
                    break
                at = (acked & -acked).bit_length() - 1
                start = base + at
            left = wanted & -(1 << at)
            if not left:
                break
            at = (left & -left).bit_length() - 1
            yield offset + start, offset + base + at
            start = -1
    if start < 0 and 64 * said < count:
        start = 64 * said
    if start >= 0:
        yield offset + start, offset + count


def unacked_in(words: Sequence[int]) -> int:
    """How many messages an ack_set leaves unacknowledged."""
    return sum((word & _WORD).bit_count() for word in words)


def words_without(settled: BitMap, count: int) -> list[int]:
    """The ack_set of an entry of `count` messages of which those in `settled` are not left: signed words, a
    zero word at the end left out."""
    left = ((1 << count) - 1) & ~bits_of(settled)
    words = (left.bit_length() + 63) // 64
    return list(unpack(f"<{words}q", left.to_bytes(8 * words, "little")))
