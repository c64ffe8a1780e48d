"""Histograms, and how late the loop is."""

import asyncio
import time

from anabranch.base.clock import SystemClock
from anabranch.base.loop_lag import STALL_S, TICK_S, LoopLag
from anabranch.base.metrics import Histogram
from tests.support.logs import SetClock
from tests.support.waiting import until


def test_a_value_is_in_the_bucket_of_the_least_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((1, 5, 10))
    for value in (0, 1, 1.5, 5, 10, 11, 1000):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1, 2]
    assert (histogram.count, histogram.total) == (7, 1028.5)


def test_a_stall_is_counted_and_its_length_is_forgotten_after_a_while() -> None:
    clock = SetClock()
    lag = LoopLag(clock)
    for late_s in (0.0, STALL_S, 0.7, 0.3):
        lag.late(late_s, clock.monotonic())
    assert (lag.stalls, lag.longest_s, lag.lag_s.count) == (2, 0.7, 4)
    clock.advance(60_000)
    lag.late(0.2, clock.monotonic())
    assert lag.longest_s == 0.7, "of the minute before"
    clock.advance(60_000)
    assert lag.longest_s == 0.2
    clock.advance(120_000)
    assert (lag.stalls, lag.longest_s) == (3, 0.0)


async def test_the_loop_is_watched() -> None:
    lag = LoopLag(SystemClock())
    watching = asyncio.ensure_future(lag.run())
    try:
        await until(lambda: lag.lag_s.count > 0)
        before = lag.stalls
        time.sleep(TICK_S + 2 * STALL_S)  # noqa: ASYNC251  this is the stall
        await until(lambda: lag.stalls > before)
        assert lag.longest_s > STALL_S
    finally:
        watching.cancel()
