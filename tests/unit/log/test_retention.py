"""What retention lets go, by log start, size and time; what clocks do to it."""

from typing import Any, NamedTuple

from anabranch.log.config import LogConfig
from anabranch.log.retention import Verdict, judge

NOW = 1_700_000_000_000
HOUR = 3_600_000


class Seg(NamedTuple):
    end_offset: int
    size: int
    max_timestamp: int


def log_of(*ages_ms: int, size: int = 100) -> list[Seg]:
    """Segments of ten records each whose latest record is that old."""
    return [Seg(10 * (i + 1), size, NOW - age) for i, age in enumerate(ages_ms)]


def asked(
    segments: list[Seg],
    *,
    log_start: int = 0,
    high_watermark: int = 1 << 60,
    now_ms: int = NOW,
    hold: int | None = None,
    **config: Any,
) -> Verdict:
    config.setdefault("retention_ms", -1)
    return judge(
        segments,
        LogConfig(**config),
        log_start=log_start,
        high_watermark=high_watermark,
        now_ms=now_ms,
        modified_ms=lambda i: NOW - 5 * HOUR,
        hold=hold,
    )


def test_without_limits_everything_stays() -> None:
    assert asked(log_of(9 * HOUR, 5 * HOUR, 0)) == Verdict(0, 0, 0, None, None)


# --- time


def test_segments_whose_latest_record_is_too_old_go() -> None:
    verdict = asked(log_of(9 * HOUR, 5 * HOUR, 3 * HOUR, 0), retention_ms=4 * HOUR)
    assert (verdict.by_time, verdict.total) == (2, 2)


def test_the_limit_itself_is_not_too_old() -> None:
    assert asked(log_of(HOUR, 0), retention_ms=HOUR).total == 0
    assert asked(log_of(HOUR + 1, 0), retention_ms=HOUR).total == 1


def test_it_says_when_to_ask_again() -> None:
    verdict = asked(log_of(3 * HOUR, 0), retention_ms=4 * HOUR)
    assert verdict.next_ms == NOW + HOUR + 1
    assert asked(log_of(3 * HOUR, 0), retention_ms=4 * HOUR, now_ms=NOW + HOUR).total == 0
    assert asked(log_of(3 * HOUR, 0), retention_ms=4 * HOUR, now_ms=NOW + HOUR + 1).total == 1


def test_a_young_segment_protects_those_behind_it() -> None:
    assert asked(log_of(0, 9 * HOUR, 9 * HOUR), retention_ms=HOUR).total == 0


def test_an_expired_active_segment_goes_too() -> None:
    assert asked(log_of(9 * HOUR, 5 * HOUR), retention_ms=HOUR).total == 2


def test_an_empty_active_segment_stays() -> None:
    segments = [*log_of(9 * HOUR), Seg(10, 0, -1)]
    verdict = asked(segments, retention_ms=HOUR)
    assert (verdict.total, verdict.next_ms) == (1, None)
    assert asked(segments[1:], retention_ms=HOUR).total == 0


def test_without_timestamps_the_file_s_date_counts() -> None:
    segments = [Seg(10, 100, -1), Seg(20, 100, NOW)]
    assert asked(segments, retention_ms=5 * HOUR).total == 0
    assert asked(segments, retention_ms=5 * HOUR - 1).total == 1


def test_a_timestamp_in_the_future_holds_its_segment_and_is_reported() -> None:
    segments = log_of(9 * HOUR, -2 * HOUR, 9 * HOUR, 0)
    verdict = asked(segments, retention_ms=HOUR)
    assert (verdict.total, verdict.future_ms, verdict.next_ms) == (1, NOW + 2 * HOUR, NOW + 3 * HOUR + 1)
    later = asked(segments, retention_ms=HOUR, now_ms=NOW + 3 * HOUR + 1)
    assert (later.total, later.future_ms) == (4, None)


def test_a_clock_that_jumped_back_deletes_nothing_early() -> None:
    verdict = asked(log_of(9 * HOUR, 0), retention_ms=HOUR, now_ms=NOW - 100 * HOUR)
    assert (verdict.total, verdict.future_ms) == (0, NOW - 9 * HOUR)


# --- size


def test_what_is_left_is_not_less_than_asked_for() -> None:
    segments = log_of(0, 0, 0, 0, size=100)
    for limit, gone in ((-1, 0), (1000, 0), (400, 0), (301, 0), (300, 1), (299, 1), (200, 2), (1, 3), (0, 4)):
        assert asked(segments, retention_bytes=limit).by_size == gone, limit


def test_size_and_time_together() -> None:
    segments = log_of(9 * HOUR, 5 * HOUR, 3 * HOUR, 0, size=100)
    assert asked(segments, retention_bytes=300, retention_ms=4 * HOUR)[:3] == (0, 1, 1)


# --- log start, policies, high watermark


def test_below_the_log_start_everything_goes_whatever_the_policy() -> None:
    segments = log_of(0, 0, 0)
    for policy in (("delete",), ("compact",), ("compact", "delete"), ()):
        for start, gone in ((0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)):
            assert asked(segments, log_start=start, cleanup_policy=policy).total == gone


def test_only_the_policy_delete_deletes_by_time_and_size() -> None:
    segments = log_of(9 * HOUR, 0)
    for policy in (("compact",), ()):
        limits = {"retention_ms": HOUR, "retention_bytes": 0}
        assert asked(segments, cleanup_policy=policy, **limits) == Verdict(0, 0, 0, None, None)
    assert asked(segments, cleanup_policy=("compact", "delete"), retention_ms=HOUR).total == 1


def test_nothing_beyond_the_high_watermark() -> None:
    segments = log_of(9 * HOUR, 9 * HOUR, 9 * HOUR)
    for watermark, gone in ((0, 0), (9, 0), (10, 1), (29, 2), (30, 3)):
        assert asked(segments, retention_ms=HOUR, high_watermark=watermark).total == gone
        assert asked(segments, retention_bytes=0, high_watermark=watermark).total == gone
        start = asked(segments, log_start=20, high_watermark=watermark).total
        assert start == min(gone, 2)


# --- what somebody has still to read


def test_what_is_held_is_neither_too_old_nor_too_much() -> None:
    segments = log_of(9 * HOUR, 8 * HOUR, 7 * HOUR, 0)
    for hold, kept in ((0, 0), (9, 0), (10, 1), (25, 2), (30, 3), (99, 3)):
        by_time = asked(segments, retention_ms=HOUR, hold=hold)
        by_size = asked(segments, retention_bytes=100, hold=hold)
        assert (by_time.total, by_size.total) == (kept, kept)
        assert by_time.is_held == by_size.is_held == (kept < 3)


def test_what_is_held_is_looked_at_again_at_once() -> None:
    assert asked(log_of(9 * HOUR, 0), retention_ms=HOUR, hold=5).next_ms == NOW
    assert not asked(log_of(0, 0), retention_ms=HOUR, hold=5).is_held


def test_deleted_records_go_whoever_holds_them() -> None:
    verdict = asked(log_of(9 * HOUR, 8 * HOUR, 0), log_start=10, retention_ms=HOUR, hold=3)
    assert (verdict.by_log_start, verdict.by_time) == (1, 0)


def test_by_size_first_as_without_a_hold() -> None:
    verdict = asked(log_of(9 * HOUR, 8 * HOUR, 7 * HOUR, 0), retention_ms=HOUR, retention_bytes=300, hold=20)
    assert (verdict.by_size, verdict.by_time, verdict.is_held) == (1, 1, True)
