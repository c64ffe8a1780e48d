"""Rate limit on messages and bytes per second: two token buckets that hold one period's worth.

What is taken is known only afterwards (a batch is taken whole), so a bucket may go below zero; the next
one waits until it is above again.  The average is the rate, whatever the sizes.
"""

from anabranch.base.clock import Clock

UNLIMITED = 1 << 62


class RateLimit:
    __slots__ = ("_at_s", "_bytes", "_bytes_room", "_clock", "_messages", "_messages_room", "_period_s")

    def __init__(self, clock: Clock, messages: int, size_bytes: int, period_s: float = 1.0) -> None:
        """So many in a period; 0 or less is no limit."""
        self._clock = clock
        self._period_s = period_s
        self._at_s = clock.monotonic()
        self._messages_room = self._messages = float(max(messages, 0))
        self._bytes_room = self._bytes = float(max(size_bytes, 0))

    def take(self, messages: int, size_bytes: int) -> None:
        """So much is taken, which may be more than there is."""
        self._fill()
        self._messages -= messages
        self._bytes -= size_bytes

    def allowance(self) -> tuple[int, int]:
        """How many messages and bytes may be taken now; nothing if either is below 1."""
        self._fill()
        return (
            int(self._messages) if self._messages_room else UNLIMITED,
            int(self._bytes) if self._bytes_room else UNLIMITED,
        )

    def wait_s(self) -> float:
        """How long until something may be taken; 0 if it may now."""
        self._fill()
        wait_s = 0.0
        for room, left in ((self._messages_room, self._messages), (self._bytes_room, self._bytes)):
            if room and left < 1:
                wait_s = max(wait_s, (1 - left) * self._period_s / room)
        return wait_s

    def _fill(self) -> None:
        now_s = self._clock.monotonic()
        periods = (now_s - self._at_s) / self._period_s
        if periods > 0:
            self._at_s = now_s
            self._messages = min(self._messages_room, self._messages + periods * self._messages_room)
            self._bytes = min(self._bytes_room, self._bytes + periods * self._bytes_room)
