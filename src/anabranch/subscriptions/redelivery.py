"""Redelivery counts: how often each entry was delivered again, the `redelivery_count` of a MESSAGE.

Negative acknowledgements and ack timeouts count; a consumer that goes does not, as in Pulsar.  The counts are
kept in memory until the entry is acknowledged, and are gone when nobody is attached any more.
"""

from collections.abc import Iterable


class Redeliveries:
    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def count(self, back: Iterable[tuple[int, int]]) -> None:
        """Entries, by offset and hash, were given back."""
        for offset, _ in back:
            self.counts[offset] = self.counts.get(offset, 0) + 1

    def acked(self, done: Iterable[tuple[int, int]]) -> None:
        """Entries, by offset and hash, are acknowledged."""
        if self.counts:
            for offset, _ in done:
                self.counts.pop(offset, None)

    def forget_below(self, end: int) -> None:
        for offset in [offset for offset in self.counts if offset < end]:
            del self.counts[offset]

    def clear(self) -> None:
        self.counts.clear()
