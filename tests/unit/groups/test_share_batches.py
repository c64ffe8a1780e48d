"""Batches laid over one another: examples, and the same as laying out every offset."""

from itertools import pairwise
from random import Random

import pytest

from anabranch.groups.share_batches import laid_over
from anabranch.groups.share_state import DeliveryState, StateBatch

FREE, DONE, SET_ASIDE = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def test_the_newer_says_what_holds():
    kept = (StateBatch(10, 14, FREE, 1), StateBatch(15, 19, DONE, 1))
    assert laid_over(kept, [StateBatch(13, 16, DONE, 2)], 12) == (
        StateBatch(12, 12, FREE, 1),
        StateBatch(13, 16, DONE, 2),
        StateBatch(17, 19, DONE, 1),
    )


def test_neighbours_that_say_the_same_are_one():
    kept = (StateBatch(0, 4, DONE, 1), StateBatch(6, 9, DONE, 1))
    assert laid_over(kept, [StateBatch(5, 5, DONE, 1)], 0) == (StateBatch(0, 9, DONE, 1),)
    assert laid_over(kept, [], 20) == ()


def laid_out(batches):
    return {
        offset: (batch.delivery_state, batch.delivery_count)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


@pytest.mark.parametrize("seed", range(20))
def test_it_is_as_laying_out_every_offset(seed):
    chance = Random(seed)
    kept, model, start = (), {}, 0
    for _ in range(200):
        new = []
        for _ in range(chance.randint(0, 3)):
            first = start + chance.randint(-5, 40)
            last = first + chance.choice((0, 0, 3, 20))
            new.append(StateBatch(first, last, chance.choice((FREE, DONE, SET_ASIDE)), chance.randint(1, 3)))
        start += chance.choice((0, 0, 0, 1, 7))
        kept = laid_over(kept, new, start)
        model = {offset: said for offset, said in (model | laid_out(new)).items() if offset >= start}
        assert laid_out(kept) == model
        for one, other in pairwise(kept):
            assert one.last_offset < other.first_offset
            assert one.last_offset + 1 < other.first_offset or one[2:] != other[2:]
