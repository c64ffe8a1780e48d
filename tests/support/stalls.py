"""Stalls: how long the machine itself stood still, for tests that say how long something may take.

    with Stalls() as stalls:
        took_s = broker.stop()
    assert took_s < 4 + stalls.lost_s

A thread sleeps for a moment and writes a byte through to the disk, again and again.  What that takes longer
than it should is time that nobody had, neither the test nor who is tested: processors that were given to
others, a disk that did not answer.
"""

import os
import tempfile
import threading
import time
from types import TracebackType
from typing import NamedTuple, Self

_PAUSE_S = 0.05


class Stall(NamedTuple):
    since_s: float
    lost_s: float


class Stalls:
    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began_s = time.monotonic()
        self.found: list[Stall] = []

    def _run(self) -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            while not self._stop.is_set():
                self._began_s = time.monotonic()
                time.sleep(_PAUSE_S)
                file.write(b".")
                os.fsync(file.fileno())
                self.found.append(self._now)

    @property
    def _now(self) -> Stall:
        began_s = self._began_s
        return Stall(began_s, max(0.0, time.monotonic() - began_s - _PAUSE_S))

    def longer_than(self, seconds: float) -> list[Stall]:
        return [stall for stall in [*self.found, self._now] if stall.lost_s > seconds]

    @property
    def lost_s(self) -> float:
        """All together, what is under way as well."""
        return sum(stall.lost_s for stall in [*self.found, self._now])

    @property
    def longest_s(self) -> float:
        return max(stall.lost_s for stall in [*self.found, self._now])

    def start(self) -> None:
        self._began_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._began_s = float("inf")  # nothing is under way any more

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
