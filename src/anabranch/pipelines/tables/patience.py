"""Who failed is left alone for a while, longer each time: so that one that cannot be helped costs little.

fails ──> pause of 10 s ──> fails again ──> 20 s ──> … ──> 10 minutes, at most
works ──> nothing is remembered
"""

from collections.abc import Hashable
from typing import NamedTuple

_FIRST_MS = 10_000
_LONGEST_MS = 600_000


class _Failure(NamedTuple):
    pause_ms: int
    until_ms: int
    problem: str


class Patience:
    def __init__(self) -> None:
        self._failures: dict[Hashable, _Failure] = {}

    def problem(self, who: Hashable, now_ms: int) -> str:
        """Why `who` is to be left alone now; empty if it may be tried."""
        failure = self._failures.get(who)
        return failure.problem if failure is not None and now_ms < failure.until_ms else ""

    def failed(self, who: Hashable, problem: str, now_ms: int) -> None:
        before = self._failures.get(who)
        pause_ms = _FIRST_MS if before is None else min(2 * before.pause_ms, _LONGEST_MS)
        self._failures[who] = _Failure(pause_ms, now_ms + pause_ms, problem)

    def worked(self, who: Hashable) -> None:
        self._failures.pop(who, None)
