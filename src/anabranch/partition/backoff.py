"""Trying again, later each time: how long a thing that failed is left alone.

    backoff = Backoff(15_000, 60_000)
    backoff.failed(log)      # 15000: do not try before that many milliseconds have passed
    backoff.failed(log)      # 30000
    backoff.worked(log)      # and all is forgotten

One that fails is no reason to leave the others: whoever goes over many things keeps one of these.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_MOST_DOUBLINGS = 30


class Backoff(Generic[T]):
    __slots__ = ("_failures", "_first_ms", "_most_ms")

    def __init__(self, first_ms: int, most_ms: int) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._failures: dict[T, int] = {}

    def __contains__(self, thing: T) -> bool:
        """Whether the last try failed."""
        return thing in self._failures

    def failed(self, thing: T) -> int:
        """It failed, again perhaps; how long to leave it alone."""
        failures = self._failures.get(thing, 0)
        self._failures[thing] = failures + 1
        return min(self._first_ms << min(failures, _MOST_DOUBLINGS), self._most_ms)

    def worked(self, thing: T) -> None:
        self._failures.pop(thing, None)
