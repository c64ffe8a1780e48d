"""Delayed messages against what was put off: random adds, passing time, restarts, several subscriptions.

A subscription reads a log of (offset, due time) in order and puts off what is not due.  Whatever happens in
between, each message comes exactly once, and never before its time.  After a restart, clean or not, reading
begins anew at what was not delivered, as it does with a cursor that nothing was acknowledged ahead of.
"""

import random
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.subscriptions import delay
from anabranch.subscriptions.delay import Delays, DelayView


class Reader:
    """One subscription: where it reads, what it has delivered."""

    def __init__(self, view: DelayView) -> None:
        self.view = view
        self.at = 0
        self.delivered: set[int] = set()

    def read(self, log: list[int], now_ms: int, count: int) -> None:
        for offset in range(self.at, min(self.at + count, len(log))):
            self.at = offset + 1
            if offset in self.delivered or self.view.holds(offset):
                continue
            if log[offset] > now_ms:
                self.view.add(offset, log[offset])
            else:
                self._deliver(offset, log, now_ms)
        self.view.passed(self.at)

    def take_due(self, log: list[int], now_ms: int, limit: int) -> None:
        for offset in self.view.due(now_ms, limit):
            if offset not in self.delivered:  # acknowledged before a restart: read in vain
                self._deliver(offset, log, now_ms)

    def _deliver(self, offset: int, log: list[int], now_ms: int) -> None:
        assert log[offset] <= now_ms, "before its time"
        assert offset not in self.delivered, "twice"
        self.delivered.add(offset)

    def reopened(self, delays: Delays) -> None:
        done = 0
        while done in self.delivered:
            done += 1
        self.view = delays.view(known_from=done)
        self.at = done


@pytest.mark.parametrize("seed", range(20))
def test_each_once_and_never_early(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(delay, "_IN_MEMORY", chance.choice((8, 50, 400)))
    monkeypatch.setattr(delay, "_NEAREST", 4)
    monkeypatch.setattr(delay, "_AT_ONCE", chance.choice((3, 100)))
    now_ms = 1_000
    log: list[int] = []
    delays = Delays(DirectDisk(8), tmp_path, now_ms)
    readers = [Reader(delays.view()) for _ in range(3)]
    for _ in range(400):
        match chance.randrange(12):
            case 0 | 1 | 2:
                log += [now_ms + chance.randrange(-50, 500) for _ in range(chance.randrange(20))]
            case 3 | 4 | 5:
                chance.choice(readers).read(log, now_ms, chance.randrange(40))
            case 6 | 7 | 8:
                now_ms += chance.randrange(60)
            case 9 | 10:
                chance.choice(readers).take_due(log, now_ms, chance.randrange(1, 30))
            case 11:
                if chance.randrange(4):
                    continue
                if chance.randrange(2):
                    delays.close()
                delays = Delays(DirectDisk(8), tmp_path, now_ms)
                for reader in readers:
                    reader.reopened(delays)
    now_ms += 1_000
    for reader in readers:
        while reader.at < len(log) or reader.view.next_due_ms() is not None:
            reader.read(log, now_ms, 100)
            reader.take_due(log, now_ms, 100)
        assert reader.delivered == set(range(len(log)))
        assert len(reader.view) == 0
