"""Acknowledgements inside a batch as Pulsar writes them: words of 64 bits, a bit set for each *not* acked.

    ack_set [0b101] of an entry of 3 messages at offset 40   ->   (41, 42)

Words that are missing at the end are zero: everything they stand for is acknowledged.  Clients send words as
signed numbers, and may send more of them than the entry has messages.
"""

from collections.abc import Iterable, Iterator, Sequence

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


def without(words: Sequence[int] | None, count: int, indexes: Iterable[int]) -> list[int]:
    """The ack_set of an entry of `count` messages, less those at `indexes`; None is an ack_set of all."""
    left = [word & _WORD for word in words] if words is not None else _all(count)
    for index in indexes:
        if index // 64 < len(left):
            left[index // 64] &= ~(1 << index % 64)
    while left and not left[-1]:
        left.pop()
    return [word - (1 << 64) if word >> 63 else word for word in left]


def _all(count: int) -> list[int]:
    words = [_WORD] * (count // 64)
    return [*words, (1 << count % 64) - 1] if count % 64 else words
