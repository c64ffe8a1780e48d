"""Bits of an ack_set, against the obvious reading of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from anabranch.subscriptions.ack_sets import acked_ranges, unacked_in, words_without
from tests.unit.records.strategies import seeded

WORDS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=4)


@seeded(300)
@given(st.integers(0, 1 << 50), st.integers(1, 200), WORDS)
def test_what_is_acked_has_no_bit(offset: int, count: int, words: list[int]) -> None:
    def has_bit(index: int) -> bool:
        return index // 64 < len(words) and bool((words[index // 64] >> (index % 64)) & 1)

    ranges = list(acked_ranges(offset, count, words))
    acked = [each for start, end in ranges for each in range(start, end)]
    assert acked == [offset + index for index in range(count) if not has_bit(index)]
    assert all(end < start for (_, end), (start, _) in pairwise(ranges)), "runs are whole"


def test_the_example_of_the_protocol() -> None:
    assert list(acked_ranges(40, 3, [0b101])) == [(41, 42)]
    assert list(acked_ranges(40, 3, [])) == [(40, 43)]
    assert unacked_in([-1, 0b101]) == 66


def test_a_batch_that_claims_a_million_messages_costs_no_more_than_they_do() -> None:
    count = 1 << 18
    ranges = list(acked_ranges(0, count, [0x5555555555555555] * (count // 64)))
    assert (len(ranges), ranges[-1]) == (count // 2, (count - 1, count))


def test_words_that_are_missing_cost_nothing() -> None:
    count = 1 << 60  # word by word it would take for ever
    assert list(acked_ranges(7, count, [0b101])) == [(8, 9), (10, 7 + count)]
    assert list(acked_ranges(7, count, [-1])) == [(71, 7 + count)]
    assert list(acked_ranges(7, count, [])) == [(7, 7 + count)]


def test_an_ack_set_without_some() -> None:
    assert words_without(BitMap([1]), 3) == [0b101]
    assert words_without(BitMap([0, 1, 2]), 3) == []
    assert words_without(BitMap([0]), 64) == [-2]
    assert words_without(BitMap([5, 129]), 130) == [-1 - (1 << 5), -1, 1]
    assert words_without(BitMap(range(1, 130)), 130) == [1]
