"""Replication throttles: how fast replicas that are moved may be copied, so that clients do not notice.

    leader.replication.throttled.replicas     of a topic, `partition:broker,...` or `*`: what is sent
    follower.replication.throttled.replicas   the same: what is fetched
    leader.replication.throttled.rate         of a broker: bytes per second of all of them together
    follower.replication.throttled.rate

A follower in sync is never held back.  Up to a second's worth of a rate may be spent ahead, since followers
ask twice in a second when there is nothing new.
"""

from collections.abc import Callable, Mapping

from anabranch.base.clock import Clock
from anabranch.base.config import LONG_MAX

LEADER, FOLLOWER = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_ALL = "*"
_BORROWED_S = 1.0


def is_throttled(config: Mapping[str, str], side: str, index: int, broker: int) -> bool:
    """Whether the replica on `broker` of a partition of the topic with these overrides is."""
    listed = config.get(side)
    if not listed:
        return False
    replicas = [item.strip() for item in listed.split(",")]
    return _ALL in replicas or f"{index}:{broker}" in replicas


class Throttle:
    """Of one side of a broker."""

    def __init__(self, clock: Clock, rate: Callable[[], int] = lambda: LONG_MAX) -> None:
        """`rate` is in bytes per second."""
        self.rate = rate
        self._clock = clock
        self._paid_s = 0.0  # until when the bytes that were let through would have taken
        self._rate = -1

    @property
    def is_on(self) -> bool:
        return self.rate() < LONG_MAX

    @property
    def wait_s(self) -> float:
        """How long nothing may be let through."""
        self._keep_rate()
        if self._rate == 0:
            return _BORROWED_S
        return max(0.0, self._paid_s - self._clock.monotonic() - _BORROWED_S)

    @property
    def is_exceeded(self) -> bool:
        return self.is_on and self.wait_s > 0

    def let_through(self, size: int) -> None:
        if size and self.is_on:
            self._keep_rate()
            now_s = self._clock.monotonic()
            self._paid_s = max(self._paid_s, now_s) + size / max(self._rate, 1)

    def _keep_rate(self) -> None:
        rate = self.rate()
        if rate != self._rate:
            self._rate, self._paid_s = rate, self._clock.monotonic()
