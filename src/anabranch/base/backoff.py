"""Back-off: how long to wait before a thing that failed is tried again.

    backoff = Backoff(0.02, 1.0, random)
    backoff.next_s()      # 0.02, 0.04, 0.08, ... 1.0: each up to a fifth more or less, by chance
    backoff.reset()       # it worked; the next failure is the first again

The jitter is Kafka's (its clients' ExponentialBackoff): many who lost the same broker do not come back at the
same moment.  Chance is passed in; who waits, and by which clock, is the caller's affair.
"""

from random import Random

_JITTER = 0.2
_MOST_DOUBLINGS = 30


class Backoff:
    __slots__ = ("_failures", "_first_s", "_longest_s", "_random")

    def __init__(self, first_s: float, longest_s: float, random: Random) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._random = random
        self._failures = 0

    def next_s(self) -> float:
        """It failed, again perhaps: how long to wait now."""
        pause_s = min(self._first_s * (1 << min(self._failures, _MOST_DOUBLINGS)), self._longest_s)
        self._failures += 1
        return pause_s * self._random.uniform(1 - _JITTER, 1 + _JITTER)

    def reset(self) -> None:
        self._failures = 0
