"""What both halves of the demo have in common: a trickle, a flood, threads, and a deadline for all of it.

A half is one protocol: a producer and those who read what it sends.  Its tasks run in threads; one that
fails ends the half, and what it failed with is shown at the end.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

TRICKLE = 900
TRICKLE_PER_SECOND = 300
PATIENCE_SECONDS = 45
SHOWN = 5
THINGS = ("a leaf", "a twig", "a feather", "a cork", "a paper boat", "a bottle with a letter")

Task = Callable[[], None]


class Row(NamedTuple):
    """A client in the picture: how many messages it has dealt with, of how many."""

    name: str
    messages: int
    total: int


class Claim(NamedTuple):
    """What came of it, in words, and whether that is well."""

    holds: bool
    words: str


class Half:
    def __init__(self, protocol: str, what: str, flood: int) -> None:
        self.protocol = protocol
        self.what = what
        self.total = TRICKLE + flood
        self.acknowledged = 0
        self.failed: list[str] = []
        self.flood_started = 0.0
        self.flood_seconds = 0.0
        self._flood = flood
        self._deadline = time.monotonic() + PATIENCE_SECONDS
        self._threads: list[threading.Thread] = []

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def run(self, tasks: Sequence[Task]) -> None:
        self._threads = [threading.Thread(target=self._guarded, args=(task,), daemon=True) for task in tasks]
        for thread in self._threads:
            thread.start()

    def _guarded(self, task: Task) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001  shown at the end, and the demo fails
            self.failed.append(f"{type(error).__name__}: {error}")
            self._deadline = 0.0

    def join(self) -> None:
        for thread in self._threads:
            thread.join(10)

    def numbers(self, flush: Task) -> Iterator[int]:
        """The messages' numbers, each when it is to be sent; `flush` waits until all so far have arrived."""
        started = time.monotonic()
        for number in range(TRICKLE):
            time.sleep(max(0.0, started + number / TRICKLE_PER_SECOND - time.monotonic()))
            yield number
        flush()
        self.flood_started = time.monotonic()
        yield from range(TRICKLE, self.total)
        flush()
        self.flood_seconds = time.monotonic() - self.flood_started

    def sending(self) -> list[Claim]:
        """What there is to say of the producer, and of what failed."""
        claims = [Claim(False, failure) for failure in self.failed[:3]]
        if self.acknowledged != self.total:
            claims.append(Claim(False, f"{self.acknowledged:,} of {self.total:,} messages were acknowledged"))
        if self.flood_seconds:
            rate = self._flood / self.flood_seconds
            claims.append(
                Claim(
                    True, f"{self.protocol}'s flood: {rate:,.0f} messages/s, with all clients in one process"
                )
            )
        return claims


def median(delays_ms: list[float]) -> float:
    return sorted(delays_ms)[len(delays_ms) // 2] if delays_ms else 0.0
