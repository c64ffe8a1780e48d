"""A budget in bytes: whoever wants memory that a client decides the size of asks here first.

Taken whole or not at all, so that nobody holds a part while waiting for the rest: one who finds no room
waits, is called when something is given back, and asks again.  What is needed to finish work that has
begun is charged without asking, and may overspend the budget; nothing new should begin until that is
paid back.
"""

from collections.abc import Callable


class ByteBudget:
    __slots__ = ("_waiting", "limit", "used")

    def __init__(self, limit: int) -> None:
        """`limit` of 0 or less is none."""
        self.limit = limit
        self.used = 0
        self._waiting: dict[Callable[[], None], None] = {}  # in order

    @property
    def is_contended(self) -> bool:
        return bool(self._waiting)

    def has_room(self, size: int) -> bool:
        """Whether `size` may be charged.  Something larger than the whole budget may, alone."""
        return self.limit <= 0 or not self.used or self.used + size <= self.limit

    def charge(self, size: int) -> None:
        self.used += size

    def wait(self, ask_again: Callable[[], None]) -> None:
        """Have `ask_again` called, once, when something is given back."""
        self._waiting[ask_again] = None

    def stop_waiting(self, ask_again: Callable[[], None]) -> None:
        self._waiting.pop(ask_again, None)

    def give(self, size: int) -> None:
        self.used -= size
        waiting, self._waiting = self._waiting, {}
        for ask_again in waiting:
            ask_again()
