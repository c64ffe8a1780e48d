"""Due times: a heap of what is to be done when, with at most one time per thing.

    due.at(log, 5000)        # not before 5000
    due.at(log, 9000)        # no: 9000
    due.pop(6000)            # []
    due.pop(9000)            # [log]

What is not due yet costs nothing, however much there is.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DueTimes(Generic[T]):
    __slots__ = ("_at", "_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._at: dict[T, int] = {}
        self._serial = 0  # breaks ties, things need not be comparable

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, thing: T) -> bool:
        return thing in self._at

    @property
    def next_ms(self) -> int | None:
        """When the first thing is due, None if there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def at(self, thing: T, time_ms: int) -> None:
        """`thing` is due at `time_ms`, and at no other time."""
        if self._at.get(thing) == time_ms:
            return
        self._at[thing] = time_ms
        self._serial += 1
        heapq.heappush(self._heap, (time_ms, self._serial, thing))

    def cancel(self, thing: T) -> None:
        self._at.pop(thing, None)

    def pop(self, now_ms: int) -> list[T]:
        """What is due by now, in order.  It is not due any more."""
        found = []
        while (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            _, _, thing = heapq.heappop(self._heap)
            del self._at[thing]
            found.append(thing)
        return found

    def _drop_stale(self) -> None:
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if len(self._heap) > 2 * len(self._at) + 64:  # things that were put off again and again
            self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
