"""Waiters: callbacks that are called when what they wait for may have moved on.

A waiter is a callback without arguments.  It stays until it is removed, may be called without need,
and looks for itself whether what it waits for has come.
"""

from collections.abc import Callable

Waiter = Callable[[], None]


class Waiters:
    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}  # told in the order in which they came

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)

    def wake(self) -> None:
        if self._waiters:
            for waiter in tuple(self._waiters):
                waiter()
