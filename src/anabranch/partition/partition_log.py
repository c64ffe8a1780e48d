"""`PartitionLog`: all that gateways, groups, subscriptions and pipelines see of a partition.

    log_start          ≤   last_stable       ≤   high_watermark    ≤   log_end
    oldest to be read      every transaction     safe to show          next offset
    (LW)                   below is decided      (HW)                  (LEO)
                           (LSO)

The replicated, the ledger-backed and the in-memory partition implement it alike; the suite in
tests/conform holds them to it.  State changes are synchronous.  `append` gives the batch its
offsets at once and says when it will be acknowledged; nothing here waits inside another's turn.
"""

import asyncio
from enum import IntEnum
from typing import NamedTuple, Protocol

from anabranch.base.network import Chunk
from anabranch.base.waiters import Waiter


class Isolation(IntEnum):
    """How far a reader sees."""

    UNCOMMITTED = 0  # up to the high watermark
    COMMITTED = 1  # up to the last stable offset
    LOG_END = 2  # everything there is: for replicas, and for coordinators that learn their own state


class Appended(NamedTuple):
    """Where a batch went.  `acknowledged` is None when the acks asked for hold already."""

    base_offset: int
    append_time_ms: int  # -1 where the producer's own timestamps stand
    acknowledged: "asyncio.Future[None] | None"


class AppendedEntries(NamedTuple):
    """Where entries went, by their first messages."""

    offsets: list[int]
    acknowledged: "asyncio.Future[None] | None"


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class PartitionLog(Protocol):
    @property
    def log_start(self) -> int: ...

    @property
    def last_stable(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end(self) -> int: ...

    def append(self, batch: memoryview, acks: int) -> Appended:
        """Store one batch, whose buffer may be changed and reused afterwards."""

    def read(self, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool) -> Chunk | None:
        """Whole batches from the one that holds `offset`, None if there are none to see yet."""

    async def offset_for_time(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record at or after a time, None if there is none."""

    def trim(self, offset: int) -> int:
        """Move the low watermark up to `offset`; where it stands then."""

    def wait(self, waiter: Waiter) -> None:
        """Call `waiter` whenever readers can see more, until `stop_waiting`."""

    def stop_waiting(self, waiter: Waiter) -> None: ...
