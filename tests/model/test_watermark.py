"""The high watermark against its definition: random replicas, in-sync sets and reports, from a seed.

The definition, without any memory but of what was ever safe: an offset is committed once every replica that
was in sync at some moment held everything below it then, and enough of them were in sync.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.ids import BrokerId
from anabranch.partition.watermark import HighWatermark
from tests.unit.records.strategies import seeded

REPLICAS = [BrokerId(number) for number in range(4)]


class Naive:
    """Everything that was reported, and the largest offset that was ever safe."""

    def __init__(self, offset: int, in_sync: frozenset[BrokerId], min_insync: int) -> None:
        self.offset = offset
        self.ends: dict[BrokerId, int | None] = dict.fromkeys(REPLICAS)
        self.in_sync = in_sync
        self.min_insync = min_insync

    def look(self) -> None:
        held = [self.ends[replica] for replica in self.in_sync]
        if len(held) >= self.min_insync and None not in held:
            self.offset = max(self.offset, min(end for end in held if end is not None))


IN_SYNC = st.sets(st.sampled_from(REPLICAS), min_size=1).map(frozenset)
STEPS = st.lists(
    st.tuples(st.just("reached"), st.sampled_from(REPLICAS), st.integers(0, 30))
    | st.tuples(st.just("in sync"), IN_SYNC, st.just(0)),
    max_size=40,
)


@seeded(400)
@given(st.integers(0, 10), IN_SYNC, st.integers(1, 3), STEPS)
def test_against_its_definition(
    start: int, in_sync: frozenset[BrokerId], min_insync: int, steps: list[tuple[str, Any, int]]
) -> None:
    ours, model = HighWatermark(start, in_sync, min_insync), Naive(start, in_sync, min_insync)
    for kind, what, end in steps:
        before = ours.offset
        if kind == "reached":
            moved = ours.replica_reached(what, end)
            model.ends[what] = end
        else:
            moved = ours.in_sync_changed(what, min_insync)
            model.in_sync = what
        model.look()
        assert ours.offset == model.offset
        assert moved == (ours.offset > before)
        assert ours.offset >= before, "it moved back"


@pytest.mark.parametrize(
    ("in_sync", "min_insync", "offset"),
    [({0, 1, 2}, 1, 4), ({0, 1}, 1, 7), ({0}, 1, 9), ({0}, 2, 4), ({0, 1}, 2, 7)],
)
def test_the_picture_in_its_module(in_sync: set[int], min_insync: int, offset: int) -> None:
    watermark = HighWatermark(0, frozenset(REPLICAS[:3]), min_insync)
    for replica, end in zip(REPLICAS, (9, 7, 4), strict=False):
        watermark.replica_reached(replica, end)
    assert watermark.offset == (4 if min_insync <= 3 else 0)
    watermark.in_sync_changed(frozenset(map(BrokerId, in_sync)), min_insync)
    assert watermark.offset == offset


def test_a_replica_not_heard_from_holds_it() -> None:
    watermark = HighWatermark(5, frozenset(REPLICAS[:2]), 1)
    assert not watermark.replica_reached(REPLICAS[0], 100)
    assert watermark.offset == 5
    assert watermark.replica_reached(REPLICAS[1], 6)
    assert watermark.offset == 6


def test_a_replica_that_is_not_in_sync_does_not_count() -> None:
    watermark = HighWatermark(0, frozenset(REPLICAS[:1]), 1)
    assert not watermark.replica_reached(REPLICAS[3], 1000)
    assert watermark.replica_reached(REPLICAS[0], 3)
    assert watermark.offset == 3
