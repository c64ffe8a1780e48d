"""What is compacted, when it is worth it, which segments are merged."""

from typing import Any, NamedTuple

import pytest

from anabranch.log.compaction_plan import Plan, Sizes, first_dirty_of, group, plan
from anabranch.log.config import LogConfig

NOW = 1_700_000_000_000


class Seg(NamedTuple):
    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int


def log_of(*sizes: int, age_ms: int = 0) -> list[Seg]:
    """Segments of ten records each, the active one last."""
    return [Seg(10 * i, 10 * i + 10, size, NOW - age_ms) for i, size in enumerate(sizes)]


def asked(
    segments: list[Seg], *, first_dirty: int = 0, last_stable: int = 1 << 60, now_ms: int = NOW, **config: Any
) -> Plan:
    return plan(
        segments,
        LogConfig(cleanup_policy=("compact",), **config),
        first_dirty=first_dirty,
        last_stable=last_stable,
        now_ms=now_ms,
        first_timestamp=lambda i: segments[i].max_timestamp,
    )


def test_the_active_segment_is_not_part_of_it() -> None:
    assert asked(log_of(100))[:5] == (0, 0, 0, 0.0, False)
    assert asked(log_of(100, 50))[:5] == (0, 10, 100, 1.0, True)


def test_the_dirty_share_must_be_more_than_asked_for() -> None:
    segments = log_of(100, 50, 50, 10)
    assert asked(segments, first_dirty=10)[:5] == (10, 30, 100, 0.5, False)
    assert asked(segments, first_dirty=10, min_cleanable_dirty_ratio=0.49).is_due
    assert not asked(segments, first_dirty=30).is_due
    assert not asked(segments, first_dirty=30, min_cleanable_dirty_ratio=0.0).is_due
    assert asked(segments, first_dirty=20, min_cleanable_dirty_ratio=0.0).is_due


def test_not_beyond_the_last_stable_offset() -> None:
    segments = log_of(100, 100, 100, 100)
    assert [asked(segments, last_stable=stable).end for stable in (0, 9, 10, 25, 30, 99)] == [
        0,
        0,
        10,
        20,
        30,
        30,
    ]


def test_the_least_lag_keeps_young_segments_out() -> None:
    segments = [Seg(0, 10, 100, NOW - 5000), Seg(10, 20, 100, NOW - 2000), Seg(20, 30, 100, NOW)]
    planned = asked(segments, min_compaction_lag_ms=3000)
    assert (planned.end, planned.is_due) == (10, True)
    planned = asked(segments, first_dirty=10, min_compaction_lag_ms=3000)
    assert (planned.end, planned.is_due, planned.next_ms) == (10, False, NOW + 1000)
    assert asked(segments, first_dirty=10, min_compaction_lag_ms=3000, now_ms=NOW + 1000).end == 20


def test_the_largest_lag_makes_it_due_whatever_the_share() -> None:
    segments = log_of(1000, 10, 10, age_ms=4000)
    assert not asked(segments, first_dirty=10).is_due
    planned = asked(segments, first_dirty=10, max_compaction_lag_ms=5000)
    assert (planned.is_due, planned.next_ms) == (False, NOW + 1001)
    assert asked(segments, first_dirty=10, max_compaction_lag_ms=5000, now_ms=NOW + 1001).is_due
    assert not asked(segments, first_dirty=20, max_compaction_lag_ms=5000, now_ms=NOW + 9999).is_due


@pytest.mark.parametrize(
    ("checkpoint", "expected"), [(None, 5), (4, 5), (5, 5), (12, 12), (20, 20), (21, 5), (-1, 5)]
)
def test_a_checkpoint_of_another_log_is_not_believed(checkpoint: int | None, expected: int) -> None:
    assert first_dirty_of(checkpoint, 5, 20) == expected


def bases(groups: list[list[Sizes]]) -> list[list[int]]:
    return [[each.base_offset for each in together] for together in groups]


def test_neighbours_are_merged_as_long_as_they_fit() -> None:
    segments = [Sizes(10 * i, 10 * i + 10, size, 8, 12) for i, size in enumerate((40, 40, 40, 100, 0, 0, 90))]
    assert bases(group(segments, 100, 1 << 20)) == [[0, 10], [20], [30, 40, 50], [60]]
    assert bases(group(segments, 1 << 20, 24)) == [[0, 10], [20, 30], [40, 50], [60]]


def test_offsets_must_stay_within_reach_of_the_first() -> None:
    far = 0x7FFFFFFF
    segments = [Sizes(0, 10, 1, 0, 0), Sizes(10, far + 1, 1, 0, 0), Sizes(far + 1, far + 9, 1, 0, 0)]
    assert bases(group(segments, 1000, 1000)) == [[0, 10], [far + 1]]
    empty = [Sizes(0, 10, 1, 0, 0), Sizes(far + 5, far + 50, 0, 0, 0)]
    assert bases(group(empty, 1000, 1000)) == [[0, far + 5]]
