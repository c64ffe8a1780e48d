"""Subscribe rate: how often a consumer may subscribe in a period, by its name and address.

Counts are dropped after each period, so that no more consumers are remembered than came in one.
"""

from anabranch.base.clock import Clock
from anabranch.subscriptions.consumer import Consumer


class SubscribeRates:
    __slots__ = ("_clock", "_counts", "_until_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = 0.0
        self._counts: dict[tuple[str, str], int] = {}

    def take(self, consumer: Consumer, limit: int | None, period_s: int) -> bool:
        """Whether a consumer may subscribe once more; it counts then."""
        if limit is None:
            return True
        now_s = self._clock.monotonic()
        if now_s >= self._until_s:
            self._counts.clear()
            self._until_s = now_s + period_s
        key = (consumer.address.rpartition(":")[0], consumer.name)
        count = self._counts.get(key, 0)
        if count >= limit:
            return False
        self._counts[key] = count + 1
        return True
