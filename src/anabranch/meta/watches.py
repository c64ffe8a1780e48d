"""Watches: who is told of which changes of the metadata."""

import asyncio
from collections.abc import Callable

from anabranch.meta.store import Event, EventKind, is_within

Callback = Callable[[Event], None]


class _Watch:
    __slots__ = ("_callback", "active", "prefix")

    def __init__(self, prefix: str, callback: Callback) -> None:
        self.prefix = prefix
        self._callback = callback
        self.active = True

    def fire(self, event: Event) -> None:
        if self.active:
            self._callback(event)


class Watches:
    def __init__(self) -> None:
        self._watches: list[_Watch] = []

    def add(self, prefix: str, callback: Callback) -> Callable[[], None]:
        """Tell `callback` of what happens at `prefix` and below, until what comes back is called."""
        watch = _Watch(prefix, callback)
        self._watches.append(watch)

        def stop() -> None:
            if watch.active:
                watch.active = False
                self._watches.remove(watch)

        return stop

    def tell(self, event: Event) -> None:
        # Through the loop's queue: in order, before the callers go on, and apart from each other's faults.
        loop = asyncio.get_running_loop()
        for watch in self._watches:
            if is_within(event.path, watch.prefix):
                loop.call_soon(watch.fire, event)

    def tell_missed(self) -> None:
        """All may have missed something."""
        loop = asyncio.get_running_loop()
        for watch in self._watches:
            loop.call_soon(watch.fire, Event(EventKind.MISSED, watch.prefix))

    def end(self) -> None:
        """Tell nobody any more."""
        for watch in self._watches:
            watch.active = False
        self._watches.clear()
