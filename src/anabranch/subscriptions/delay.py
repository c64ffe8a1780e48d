"""Delayed messages of one partition: which offset becomes due when.

    delay.add(offset, deliver_at_ms)
    delay.due(now_ms, limit) -> offsets that are due, in the order of their time
    delay.next_due_ms() -> when to look again, None if nothing waits
    delay.holds(offset) -> whether it still has to wait
"""

from typing import Protocol


class DelayIndex(Protocol):
    """One subscription's view of a partition's delayed messages."""

    def add(self, offset: int, deliver_at_ms: int) -> None:
        """The entry at `offset` was read and is to wait until `deliver_at_ms`."""

    def due(self, now_ms: int, limit: int) -> list[int]:
        """At most `limit` entries whose time has come, each given once."""

    def next_due_ms(self) -> int | None: ...

    def __len__(self) -> int:
        """How many wait (msgDelayed of the stats)."""

    def clear(self) -> None:
        """The subscription reads anew (seek): forget what waits."""
