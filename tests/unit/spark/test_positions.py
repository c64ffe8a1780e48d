"""Positions from options, selections of topics, and how ranges are cut: all without a cluster."""

import random

import pytest

from anabranch.base.errors import Invalid
from anabranch.client.cluster import EARLIEST, LATEST
from anabranch.client.destinations import Address, TopicPartition, addresses
from anabranch.spark.options import BATCH_READ, Options
from anabranch.spark.planning import behind, divided, limited, ranges_between
from anabranch.spark.positions import Position, ending, from_json, starting, to_json
from anabranch.spark.ranges import Range
from anabranch.spark.selection import Selection, selection_of

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


def given(**options: str) -> Options:
    return Options(options, BATCH_READ, "a batch read")


def test_where_queries_begin_and_end_by_default() -> None:
    assert starting(given(), streaming=False).everywhere == EARLIEST
    assert starting(given(), streaming=True).everywhere == LATEST
    assert ending(given()).everywhere == LATEST


def test_offsets_by_partition() -> None:
    found = starting(given(startingOffsets='{"orders": {"0": 23, "1": -2}}'), streaming=False)
    assert found.by_partition == {P0: 23, P1: EARLIEST}
    assert to_json({P1: 5, P0: 3}) == {"orders": {"0": 3, "1": 5}}
    assert from_json({"orders": {"0": 3}}) == {P0: 3}


def test_times_win_over_offsets() -> None:
    both = given(startingOffsets="earliest", startingOffsetsByTimestamp='{"orders": {"0": 1000}}')
    assert starting(both, streaming=False).by_partition == {P0: 1000}
    all_three = given(startingOffsetsByTimestamp='{"orders": {"0": 1000}}', startingTimestamp="77")
    assert starting(all_three, streaming=False) == Position("startingTimestamp", 77, None, True, False)


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "[]",
        '{"orders": 3}',
        '{"orders": {"x": 3}}',
        '{"orders": {"0": "3"}}',
        '{"orders": {"0": -3}}',
        "{",
    ],
)
def test_what_is_no_position_is_named(text: str) -> None:
    with pytest.raises(Invalid, match=r"startingOffsets is .* not earliest, latest or JSON"):
        starting(given(startingOffsets=text), streaming=False)


def test_batches_do_not_begin_at_the_end_nor_end_at_the_beginning() -> None:
    with pytest.raises(Invalid, match="cannot be latest"):
        starting(given(startingOffsets="latest"), streaming=False)
    with pytest.raises(Invalid, match=r"cannot be latest \(-1\)"):
        starting(given(startingOffsets='{"orders": {"0": -1}}'), streaming=False)
    with pytest.raises(Invalid, match="cannot be earliest"):
        ending(given(endingOffsets="earliest"))


def test_selections() -> None:
    assert selection_of(given(subscribe="a, b")) == Selection(topics=("a", "b"))
    assert selection_of(given(subscribePattern="a.*")) == Selection(pattern="a.*")
    assert selection_of(given(assign='{"orders": [1, 0]}')) == Selection(assigned=(P0, P1))
    with pytest.raises(Invalid, match="one of these options is needed"):
        selection_of(given())
    with pytest.raises(Invalid, match="only one of these"):
        selection_of(given(subscribe="a", assign='{"a": [0]}'))
    for wrong in ({"assign": "[]"}, {"assign": '{"a": [-1]}'}, {"subscribePattern": "("}, {"subscribe": ","}):
        with pytest.raises(Invalid):
            selection_of(given(**wrong))


def test_a_micro_batch_takes_from_each_by_how_far_it_is_behind() -> None:
    start, latest = {P0: 0, P1: 100, P2: 5}, {P0: 1000, P1: 200, P2: 5}
    assert limited(start, latest, 5000) == latest
    assert limited(start, latest, 110) == {P0: 100, P1: 110, P2: 5}
    assert limited({P0: 0, P1: 0}, {P0: 10**6, P1: 1}, 100) == {P0: 99, P1: 1}
    assert behind(start, latest) == 1100


def test_everything_is_reached_in_steps_of_any_size() -> None:
    rng = random.Random(3)
    for _ in range(50):
        latest = {one: rng.randrange(0, 300) for one in (P0, P1, P2)}
        at = {P0: 0}
        steps = 0
        while at != latest:
            previous, at = at, limited(at, latest, rng.randrange(1, 40))
            assert all(at[one] >= previous.get(one, 0) for one in at)
            steps += 1
            assert steps < 2000


def test_ranges_are_divided_without_gap_or_overlap() -> None:
    whole = ranges_between({P0: 10}, {P0: 1010, P1: 100, P2: 0})
    assert whole == [Range(P0, 10, 1010), Range(P1, 0, 100)]
    assert divided(whole, None, None) == whole
    assert divided(whole, 2, None) == whole
    parts = divided(whole, 11, None)
    assert len(parts) == 11
    assert len(divided(whole, 12, None)) == 13
    assert len(divided(whole, None, 100)) == 11
    for made in (parts, divided(whole, None, 7), divided(whole, 5000, None), divided(whole, 40, 90)):
        covered = [(one.partition, offset) for one in made for offset in range(one.start, one.end)]
        assert covered == [(one.partition, offset) for one in whole for offset in range(one.start, one.end)]


def test_addresses() -> None:
    assert addresses("a:1, [::1]:2") == [Address("a", 1), Address("::1", 2)]
    for wrong in ("a", "a:", ":1", "a:x", "a:0", "a:70000", ""):
        with pytest.raises(Invalid, match="not HOST:PORT"):
            addresses(wrong)
