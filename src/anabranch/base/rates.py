"""Rates: how fast counters move per second, from looking at them now and then.

Counting is adding to a plain number.  Every `PERIOD_S` the counters that moved are looked at, and the rate
is what came in since the look before: nothing is timed on the way, and an idle counter costs nothing.

    meter = Meter()
    meter.look((topic.messages_in, topic.bytes_in), now_s)
    meter.rates          # per second, in the order of the counters
"""

from collections.abc import Sequence

PERIOD_S = 10.0


class Meter:
    __slots__ = ("_at_s", "_before", "rates")

    def __init__(self, counters: int, now_s: float) -> None:
        self._before: Sequence[int] = (0,) * counters
        self._at_s = now_s
        self.rates: tuple[float, ...] = (0.0,) * counters

    def look(self, counters: Sequence[int], now_s: float) -> bool:
        """Work the rates out again.  False if nothing has moved since the last look, nor before it."""
        passed_s = now_s - self._at_s
        if passed_s <= 0:
            return True
        moved = any(self.rates) or counters != self._before
        self.rates = tuple(
            [max(0, now - then) / passed_s for now, then in zip(counters, self._before, strict=True)]
        )
        self._before, self._at_s = counters, now_s
        return moved


def average(amount_per_s: float, count_per_s: float) -> float:
    """The size of one, from two rates."""
    return amount_per_s / count_per_s if count_per_s else 0.0
