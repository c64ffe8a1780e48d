"""Back-off: how long to wait before a thing that failed is tried again.

    backoff = Backoff(0.02, 1.0, random)
    backoff.next_s()      # 0.02, 0.04, 0.08, ... 1.0: each up to a fifth more or less, by chance
    backoff.reset()       # it worked; the next failure is the first again

    backoffs = Backoffs(15_000, 60_000)     # one for each of many things, in milliseconds
    backoffs.failed(log)  # 15000, then 30000, ...: one that fails is no reason to leave the others
    backoffs.worked(log)

The jitter is Kafka's (its clients' ExponentialBackoff): many who lost the same broker do not come back at the
same moment.  Randomness is passed in where there are many of them; waiting, and its clock, are the caller's.
"""

from collections.abc import Hashable
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_JITTER = 0.2
_MOST_DOUBLINGS = 30


class Backoff:
    __slots__ = ("_failures", "_first_s", "_longest_s", "_random")

    def __init__(self, first_s: float, longest_s: float, random: Random | None = None) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._random = random
        self._failures = 0

    def next_s(self) -> float:
        """It failed, again perhaps: how long to wait now."""
        pause_s = min(self._first_s * (1 << min(self._failures, _MOST_DOUBLINGS)), self._longest_s)
        self._failures += 1
        return pause_s if self._random is None else pause_s * self._random.uniform(1 - _JITTER, 1 + _JITTER)

    def reset(self) -> None:
        self._failures = 0


class Backoffs(Generic[T]):
    __slots__ = ("_by_thing", "_first_ms", "_longest_ms")

    def __init__(self, first_ms: int, longest_ms: int) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._by_thing: dict[T, Backoff] = {}

    def __contains__(self, thing: T) -> bool:
        """Whether the last try failed."""
        return thing in self._by_thing

    def failed(self, thing: T) -> int:
        """It failed, again perhaps; how long to leave it alone."""
        backoff = self._by_thing.get(thing)
        if backoff is None:
            backoff = self._by_thing[thing] = Backoff(self._first_ms, self._longest_ms)
        return int(backoff.next_s())

    def worked(self, thing: T) -> None:
        self._by_thing.pop(thing, None)
