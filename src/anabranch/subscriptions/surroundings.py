"""Surroundings of a subscription: the log it reads, time, and the rates that bound it.

LogSource        partition/entries.EntryReader: entries from an offset on, and a call when there are more
CompactedSource  topics/compacted_entries: the last message of every key
Timers           an asyncio event loop, or what a test puts in its place
DispatchLimit    a token bucket; several may apply to one subscription (its own, its topic's)
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from anabranch.base.clock import Clock
from anabranch.base.waiters import Waiter
from anabranch.partition.entries import Entries


class EntrySource(Protocol):
    @property
    def start(self) -> int:
        """The oldest offset there is."""

    @property
    def end(self) -> int:
        """The offset that readers may see up to."""

    def read(self, offset: int, max_bytes: int) -> Entries: ...

    def bounds(self, offset: int) -> tuple[int, int]:
        """Of the entry that holds an offset.  OffsetOutOfRange if there is none."""

    def wait(self, waiter: Waiter) -> None: ...

    def stop_waiting(self, waiter: Waiter) -> None: ...


class LogSource(EntrySource, Protocol):
    """All messages of a log."""

    splits: bool
    """Whether batches of Kafka's producers come message by message: for who goes by their keys."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def call_soon(self, callback: Callable[[], None], /) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer: ...


class DispatchLimit(Protocol):
    def allowance(self) -> tuple[int, int]:
        """How many messages and bytes may be delivered now; nothing if either is below 1."""

    def take(self, messages: int, size_bytes: int) -> None:
        """So much was delivered, which may be more than allowed: entries are not cut."""

    def wait_s(self) -> float:
        """How long until something may be delivered again."""


class CompactedSource(EntrySource, Protocol):
    """The same log for who wants the last message of every key only."""

    def begin(self) -> None:
        """Somebody begins to read, or nobody reads any more."""


class Surroundings(NamedTuple):
    source: LogSource
    clock: Clock
    timers: Timers
    compacted: CompactedSource | None = None
    """None: there is no such, and nobody can ask for it."""


Pending = asyncio.Future[None]
