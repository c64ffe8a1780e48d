"""Event-loop lag: how much later than asked a timer fires, which is how long the loop did nothing else.

    asked   │────│────│────│────│────│────│
    fired   │────│─────────────────│──│────│
                  └─ the loop stood still: late by what is left of the stall

A stall is missed for as long as it began before the timer was due, `TICK_S` at most.  A process that was
stopped and goes on has stalled, too.
"""

import asyncio

from anabranch.base.clock import Clock
from anabranch.base.metrics import Histogram

TICK_S = 0.1
STALL_S = 0.1
_REMEMBERED_S = 60.0


class LoopLag:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lag_s = Histogram()
        self.stalls = 0
        """Timers that were late by more than `STALL_S`."""
        self._longest_s = self._longest_before_s = 0.0
        self._since_s = clock.monotonic()

    @property
    def longest_s(self) -> float:
        """The latest that a timer was within the last minute or two."""
        self._turn_over(self._clock.monotonic())
        return max(self._longest_s, self._longest_before_s)

    async def run(self) -> None:
        """Watch the loop for as long as the node lives."""
        while True:
            due_s = self._clock.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            now_s = self._clock.monotonic()
            self.late(max(0.0, now_s - due_s), now_s)

    def late(self, lag_s: float, now_s: float) -> None:
        self._turn_over(now_s)
        self.lag_s.observe(lag_s)
        self.stalls += lag_s > STALL_S
        self._longest_s = max(self._longest_s, lag_s)

    def _turn_over(self, now_s: float) -> None:
        """Forget what was longest more than two minutes ago."""
        passed = int((now_s - self._since_s) / _REMEMBERED_S)
        if passed:
            self._longest_before_s = self._longest_s if passed == 1 else 0.0
            self._longest_s = 0.0
            self._since_s += passed * _REMEMBERED_S
