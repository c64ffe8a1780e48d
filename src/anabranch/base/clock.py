"""Time, passed in so that a simulation can own it.

`now_ms` is wall-clock time and may jump; it goes into records and is compared with record
timestamps.  `monotonic` never goes back; deadlines and intervals use it and nothing else.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
