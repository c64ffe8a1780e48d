"""Replication throttles: which replicas they hold back, and what comes through in a while."""

import pytest

from anabranch.base.config import LONG_MAX
from anabranch.partition.throttling import FOLLOWER, LEADER, Throttle, is_throttled


class HandClock:
    def __init__(self) -> None:
        self.s = 100.0

    def now_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic(self) -> float:
        return self.s


@pytest.mark.parametrize(
    ("listed", "found"),
    [("", False), ("*", True), ("0:1,2:3", True), ("2:3", True), ("3:2", False), ("22:3,2:33", False)],
)
def test_the_replicas_that_are_listed(listed: str, found: bool) -> None:
    assert is_throttled({LEADER: listed}, LEADER, 2, 3) == found
    assert not is_throttled({LEADER: listed}, FOLLOWER, 2, 3)


def test_the_rate_is_held_in_the_long_run() -> None:
    clock = HandClock()
    throttle, through = Throttle(clock, lambda: 1000), 0
    for _ in range(200):  # for twenty seconds, as much as may come
        while not throttle.is_exceeded:
            throttle.let_through(300)
            through += 300
        clock.s += 0.1
    assert 20_000 <= through <= 22_000


def test_who_waits_as_long_as_told_may_go_on() -> None:
    clock = HandClock()
    throttle = Throttle(clock, lambda: 1000)
    throttle.let_through(5000)
    assert throttle.is_exceeded
    clock.s += throttle.wait_s
    assert not throttle.is_exceeded


def test_a_rate_of_nothing_lets_nothing_through_and_no_rate_everything() -> None:
    assert Throttle(HandClock(), lambda: 0).is_exceeded
    throttle = Throttle(HandClock(), lambda: LONG_MAX)
    throttle.let_through(1 << 60)
    assert not throttle.is_exceeded


def test_another_rate_begins_anew() -> None:
    rate = 1
    throttle = Throttle(HandClock(), lambda: rate)
    throttle.let_through(1 << 40)
    assert throttle.is_exceeded
    rate = 1 << 20
    assert not throttle.is_exceeded
