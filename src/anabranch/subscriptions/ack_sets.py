"""Acknowledgements inside a batch as Pulsar writes them: words of 64 bits, a bit set for each *not* acked.

    ack_set [0b101] of an entry of 3 messages at offset 40   ->   (41, 42)

Words that are missing at the end are zero: everything they stand for is acknowledged.  Clients send words as
signed numbers, and may send more of them than the entry has messages.
"""

from collections.abc import Iterator, Sequence

_WORD = (1 << 64) - 1


def acked_ranges(offset: int, count: int, words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs of offsets that an ack_set acknowledges of the entry at `offset`."""
    left = 0
    for index, word in enumerate(words[: (count + 63) // 64]):
        left |= (word & _WORD) << (64 * index)
    acked = ~left & ((1 << count) - 1)
    at = 0
    while acked:
        skipped = (acked & -acked).bit_length() - 1
        acked >>= skipped
        at += skipped
        run = (~acked & (acked + 1)).bit_length() - 1
        yield offset + at, offset + at + run
        acked >>= run
        at += run


def unacked_in(words: Sequence[int]) -> int:
    """How many messages an ack_set leaves unacknowledged."""
    return sum((word & _WORD).bit_count() for word in words)
