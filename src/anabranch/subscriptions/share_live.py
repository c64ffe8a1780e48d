"""A share partition at work: its log, what members have of it, the locks that run out, and what is kept.

    fetch        read where something is free ─> acquire ─> bytes and the offsets they stand for
    acknowledge  ─┐
    release       ├─> Change ─> dead letters ─> ShareStates.write ─> commit ─> whoever waits for records
    lock timeout ─┘                                    └─ failed: roll back

Changes are written one after the other, so that the start that is kept never goes back.

When the state is set from outside, or another leader has taken over, this one is over (`is_closed`): it gives
out nothing any more, and whoever wants records opens it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    AnabranchError,
    Fenced,
    InvalidRecordState,
    NotOwner,
    UnknownTopic,
    UnknownTopicId,
)
from anabranch.base.network import Chunk, FileRange
from anabranch.base.seldom import Seldom
from anabranch.base.waiters import Waiter, Waiters
from anabranch.groups.config import GroupConfig
from anabranch.groups.share_state import ShareKey, ShareStates
from anabranch.partition.kafka_part import kafka_part
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.subscriptions.share_partition import (
    Ack,
    AckKind,
    Acquired,
    Change,
    GivenUp,
    SharePartition,
    ShareRules,
)
from anabranch.subscriptions.share_reading import ShareRead
from anabranch.subscriptions.share_taking import Asked
from anabranch.subscriptions.surroundings import Timer, Timers

log = logging.getLogger(__name__)
_trouble = Seldom(log, 10.0)

_READS = 4  # in a row that brought nothing but what nobody is to have
_AGAIN_S = 1.0  # until a lock that could not be ended is tried again


class Taken(NamedTuple):
    acquired: list[Acquired]
    records: Chunk

    @property
    def record_count(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.acquired)


Bury = Callable[[ShareKey, Partition, Sequence[GivenUp]], Awaitable[None]]
"""Write what is given up where the group wants it, if it does."""


class ShareSurroundings(NamedTuple):
    clock: Clock
    timers: Timers
    states: ShareStates
    config_of: Callable[[str], GroupConfig]
    """Of a group, by its name."""
    bury: Bury


def rules_of(config: GroupConfig) -> ShareRules:
    return ShareRules(
        config.share_partition_max_record_locks,
        config.share_delivery_count_limit,
        config.share_record_lock_duration_ms,
    )


class LiveSharePartition:
    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        share: SharePartition,
        state_epoch: int,
        around: ShareSurroundings,
    ) -> None:
        self.key = key
        self._is_over = False
        self._partition = partition
        self._share = share
        self._state_epoch = state_epoch
        self._around = around
        self._waiters = Waiters()
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        self._warmed: FileRange | None = None

    @property
    def is_closed(self) -> bool:
        return self._is_over or self._partition.retired

    # --- giving out

    def fetch(self, member: str, max_bytes: int, asked: Asked, *, whole_first: bool) -> Taken | None:
        """Records for `member`, which has them until the lock's time is over; None if there are none now."""
        share, _ = self._begin()
        for _ in range(_READS):
            offset = share.next_offset()
            if offset is None:
                return None
            read = self._read(offset, max_bytes, whole_first=whole_first)
            if read is None:
                return None
            acquired = share.acquire(member, offset, read.batches(), asked, self._now_ms())
            if acquired:
                self._arm()
                return Taken(acquired, read.bytes_of(acquired[0].first, acquired[-1].last))
            if share.next_offset() == offset:
                return None
        # There may be more behind it, for whoever waits by then.
        self._around.timers.call_soon(self._waiters.wake)
        return None

    def readable_bytes(self, max_bytes: int) -> int:
        """How much a fetch would have to choose from, at least."""
        share, partition = self._begin()
        offset = share.next_offset()
        if offset is None or offset > partition.log_end:
            return 0
        part = partition.read(offset, max_bytes, self._isolation(), whole_first=True)
        return 0 if part is None else part.size

    def _begin(self) -> tuple[SharePartition, Partition]:
        share, partition = self._share, self._partition
        try:
            partition.check_leads()
        except UnknownTopic as error:
            raise UnknownTopicId(str(error)) from error
        if self._is_over:
            raise NotOwner(f"partition {self.key.partition} is not led here any more for {self.key.group!r}")
        share.rules = rules_of(self._around.config_of(self.key.group))
        share.begin_at(partition.log_start)
        return share, partition

    def _isolation(self) -> Isolation:
        level = self._around.config_of(self.key.group).share_isolation_level
        return Isolation.COMMITTED if level == "read_committed" else Isolation.UNCOMMITTED

    def _read(self, offset: int, max_bytes: int, *, whole_first: bool) -> ShareRead | None:
        partition, isolation = self._partition, self._isolation()
        if offset > partition.log_end:
            return None
        part = partition.read(offset, max_bytes, isolation, whole_first=whole_first)
        if part is None:
            return None
        if not part.is_cached() and part != self._warmed:
            self._warmed = part
            self._spawn(self._warm(part))
            return None
        aborted = partition.aborted(offset, isolation, part) or ()
        given = kafka_part(partition, part) if partition.has_entries else part
        if isinstance(given, asyncio.Future):  # it is being translated
            self._spawn(self._come_back(given))
            return None
        return ShareRead(given, aborted)

    async def _come_back(self, translated: "asyncio.Future[None]") -> None:
        await asyncio.shield(translated)
        self._waiters.wake()

    async def _warm(self, part: FileRange) -> None:
        """Read what is not in memory, beside the loop."""
        await part.read_ahead()
        self._waiters.wake()

    def wait(self, waiter: Waiter) -> None:
        """Call `waiter` whenever there may be something to fetch, until `stop_waiting`."""
        self._waiters.add(waiter)
        self._partition.wait(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)
        self._partition.stop_waiting(waiter)

    # --- taking back

    async def acknowledge(self, member: str, acks: Sequence[Ack]) -> None:
        """Durable on return.  InvalidRecordState, and nothing changes, if the member has not all of them."""
        share, _ = self._begin()
        if any(ack.kind is AckKind.RENEW for ack in acks) and not self._may_renew:
            raise InvalidRecordState(f"members of {self.key.group!r} may not renew their locks")
        await self._make_durable(share.acknowledge(member, acks, self._now_ms()))
        self._arm()

    @property
    def _may_renew(self) -> bool:
        return self._around.config_of(self.key.group).share_renew_acknowledge_enable

    def release(self, member: str) -> None:
        """The member is gone: others may have what it held."""
        if not self.is_closed:
            self._change(self._share.release(member))

    def _expire(self) -> None:
        self._timer = None
        if self.is_closed:
            return
        self._begin()
        self._change(self._share.expire(self._now_ms()))
        self._arm()

    def _arm(self, least_s: float = 0.001) -> None:
        """See to it that locks end."""
        if self._timer is not None or self.is_closed:
            return
        deadline_ms = self._share.next_deadline_ms
        if deadline_ms is not None:
            delay_s = (deadline_ms - self._now_ms()) / 1000 + 0.001
            self._timer = self._around.timers.call_later(max(delay_s, least_s), self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _change(self, change: Change) -> None:
        if change:
            self._spawn(self._make_durable(change))

    async def _make_durable(self, change: Change) -> None:
        if not change:
            return
        share, around = self._share, self._around
        async with self._writing:
            try:
                if change.given_up:
                    await around.bury(self.key, self._partition, change.given_up)
                start, done = share.after(change)
                await around.states.write(
                    self.key, self._state_epoch, start, change.batches, done, self._partition.leader_epoch
                )
            except BaseException as error:
                share.roll_back(change)
                if isinstance(error, Fenced):
                    self.close()
                self._disarm()  # it was set without the locks that are held again
                self._arm(_AGAIN_S)
                raise
            share.commit(change)
        self._waiters.wake()

    def close(self) -> None:
        """It is led here no more, or what it knows is out of date."""
        self._is_over = True
        self._disarm()
        self._waiters.wake()

    async def stop(self) -> None:
        """Let what is being written be written."""
        self.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- around

    def _now_ms(self) -> int:
        return int(self._around.clock.monotonic() * 1000)

    def _spawn(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(self._logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _logged(self, work: "Awaitable[None]") -> None:
        try:
            await work
        except (AnabranchError, OSError) as error:
            _trouble.warning("%s: share group %r: %s", self._partition, self.key.group, error)
