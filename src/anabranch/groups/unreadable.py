"""Unreadable shards: each is left alone for a while, then the next request for it tries again.

    disk fails    ─> failed(3, error)     said in the log; CoordinatorUnreadable for who asked
    somebody asks ─> check(3)             CoordinatorUnreadable, and the disk is not asked
    1 s later     ─> check(3)             passes: it is opened and read from the start
    it works      ─> worked(3)            the failure is forgotten; if not, it is left alone for 2 s, 4 s, ...

A disk that has failed is usually still broken a moment later, or too few descriptors are left, and clients
ask ten times per second.
"""

import logging
from collections.abc import Callable

from anabranch.base.backoff import Backoffs
from anabranch.base.clock import Clock
from anabranch.base.errors import CoordinatorUnreadable

log = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 1_000
_LONGEST_PAUSE_MS = 16_000  # a disk that is mended is used again before clients give up


class UnreadableShards:
    __slots__ = ("_backoff", "_clock", "_left_alone_until", "_name_of")

    def __init__(self, clock: Clock, name_of: Callable[[int], str]) -> None:
        """`name_of` is how lines of the log name a shard."""
        self._clock = clock
        self._name_of = name_of
        self._backoff: Backoffs[int] = Backoffs(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        self._left_alone_until: dict[int, float] = {}

    def check(self, index: int) -> None:
        """CoordinatorUnreadable if reading the shard has failed just now."""
        until = self._left_alone_until.get(index)
        if until is not None and self._clock.monotonic() < until:
            raise _refusal(index)

    def failed(self, index: int, error: Exception) -> CoordinatorUnreadable:
        """The shard could not be opened or read; what to tell those who asked for it."""
        pause_ms = self._backoff.failed(index)
        self._left_alone_until[index] = self._clock.monotonic() + pause_ms / 1000
        name = self._name_of(index)
        log.error("%s: cannot be read, not tried again for %d ms", name, pause_ms, exc_info=error)
        return _refusal(index)

    def worked(self, index: int) -> None:
        self._backoff.worked(index)
        self._left_alone_until.pop(index, None)


def _refusal(index: int) -> CoordinatorUnreadable:
    return CoordinatorUnreadable(f"shard {index} could not be read, and will be tried again")
