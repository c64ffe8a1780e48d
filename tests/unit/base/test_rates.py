"""Rates from counters, and limits on them."""

from anabranch.base.rate_limit import UNLIMITED, RateLimit
from anabranch.base.rates import Meter, average
from tests.support.logs import SetClock


def test_a_rate_is_what_came_since_the_last_look() -> None:
    meter = Meter(2, 0.0)
    assert meter.look((100, 1_000), 10.0)
    assert meter.rates == (10.0, 100.0)
    assert meter.look((100, 1_000), 20.0)  # it moved before
    assert meter.rates == (0.0, 0.0)
    assert not meter.look((100, 1_000), 30.0)
    assert meter.look((100, 1_000), 30.0)  # no time has passed: nothing is known
    assert average(100.0, 10.0) == 10.0
    assert average(1.0, 0.0) == 0.0


def test_a_limit_averages_to_its_rate() -> None:
    clock = SetClock()
    limit = RateLimit(clock, 10, 0)
    assert limit.allowance() == (10, UNLIMITED)
    limit.take(25, 1_000_000)
    assert limit.allowance()[0] == -15
    assert round(limit.wait_s(), 3) == 1.6
    clock.advance(1_601)
    assert limit.wait_s() == 0
    clock.advance(100_000)
    assert limit.allowance()[0] == 10


def test_bytes_count_too_and_so_does_the_period() -> None:
    clock = SetClock()
    limit = RateLimit(clock, 0, 1_000, period_s=10)
    limit.take(1, 1_000)
    assert round(limit.wait_s(), 3) == 0.01
    clock.advance(5_000)
    assert limit.allowance() == (UNLIMITED, 500)
