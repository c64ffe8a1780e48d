"""A budget in bytes: whoever wants memory that a client decides the size of asks here first.

Taken whole or not at all, so that nobody holds a part while waiting for the rest.  Those who were
refused are called in turn when something is given back, and ask again.
"""

from collections import deque
from collections.abc import Callable


class ByteBudget:
    __slots__ = ("_waiting", "limit", "used")

    def __init__(self, limit: int) -> None:
        """`limit` of 0 or less is none."""
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_contended(self) -> bool:
        return bool(self._waiting)

    def take(self, size: int, otherwise: Callable[[], None]) -> bool:
        """Take `size`, or be called through `otherwise` when it is worth asking again."""
        if self.limit > 0 and self.used and self.used + size > self.limit:
            self._waiting.append(otherwise)
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        self.used -= size
        waiting, self._waiting = self._waiting, deque()
        for ask_again in waiting:
            ask_again()
