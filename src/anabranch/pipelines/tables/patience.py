"""Retry pauses: what failed is left alone, longer each time, so that it costs little if it fails forever.

fails ──> pause of 10 s ──> fails again ──> 20 s ──> … ──> 10 minutes, at most
works ──> nothing is remembered
"""

from collections.abc import Hashable
from typing import NamedTuple

from anabranch.base.backoff import Backoffs

_FIRST_MS = 10_000
_LONGEST_MS = 600_000


class _Failure(NamedTuple):
    until_ms: int
    problem: str


class Patience:
    def __init__(self) -> None:
        self._failures: dict[Hashable, _Failure] = {}
        self._backoffs: Backoffs[Hashable] = Backoffs(_FIRST_MS, _LONGEST_MS)

    def problem(self, who: Hashable, now_ms: int) -> str:
        """Why `who` is to be left alone now; empty if it may be tried."""
        failure = self._failures.get(who)
        return failure.problem if failure is not None and now_ms < failure.until_ms else ""

    def failed(self, who: Hashable, problem: str, now_ms: int) -> None:
        self._failures[who] = _Failure(now_ms + self._backoffs.failed(who), problem)

    def worked(self, who: Hashable) -> None:
        self._failures.pop(who, None)
        self._backoffs.worked(who)
