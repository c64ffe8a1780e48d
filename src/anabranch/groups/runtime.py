"""Coordinators on their logs: one shard a partition of an internal topic.

    submit(partition, decide) ─> decide(shard, token, now) ─> Effects ─> log ─> replay ─> answer

A shard is loaded when it is first asked for, by reading its partition from the start; until then
`CoordinatorLoading` is raised, and clients ask again.  Decisions of a shard run one after the other
and never wait, so there is nothing to lock.  Records go to the log as one batch a decision, acked by
whatever the topic's replication asks; the state follows at once, answers are given when that holds.

Times are those of the wall, as they are kept in records; timers run on the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from anabranch.base.clock import Clock
from anabranch.base.errors import AnabranchError, CoordinatorLoading, Corrupt
from anabranch.base.network import FileRange
from anabranch.groups.effects import Answer, Effects, Shard, Token
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import split_batches
from anabranch.records.builder import build_batch
from anabranch.records.record import Record, iter_records, payload_of

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
Decide = Callable[[S, Token, int], Effects]

_READ_BYTES = 1 << 20
_UNPACKED_BYTES = 64 << 20


class _Served(Generic[S]):
    """A shard, its partition, and the timers that run for it."""

    __slots__ = ("loading", "partition", "shard", "timers")

    def __init__(self, shard: S, partition: Partition) -> None:
        self.shard = shard
        self.partition = partition
        self.timers: dict[Hashable, asyncio.TimerHandle] = {}
        self.loading: asyncio.Task[None] | None = None


class Runtime(Generic[S]):
    def __init__(
        self, clock: Clock, new_shard: Callable[[int], S], partition: Callable[[int], Partition]
    ) -> None:
        """`partition` gives a partition of the internal topic, and raises if it is not served here."""
        self._clock = clock
        self._new_shard = new_shard
        self._partition = partition
        self._served: dict[int, _Served[S]] = {}

    def shards(self) -> list[S]:
        """Those that are loaded."""
        return [served.shard for served in self._served.values() if served.loading is None]

    async def submit(self, index: int, decide: Decide[S]) -> Answer:
        """The answer to what `decide` decides over shard `index`."""
        served = self._find(index)
        token: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._carry_out(served, decide(served.shard, token, self._clock.now_ms()))
        return await token

    def read(self, index: int) -> S:
        """A shard to look at."""
        return self._find(index).shard

    async def load(self, index: int) -> S:
        """A shard to look at, waiting for it to be loaded."""
        served = self._start(index)
        if served.loading is not None:
            await asyncio.shield(served.loading)
        return served.shard

    def close(self) -> None:
        for served in self._served.values():
            if served.loading is not None:
                served.loading.cancel()
            for timer in served.timers.values():
                timer.cancel()
        self._served.clear()

    # --- loading

    def _find(self, index: int) -> _Served[S]:
        served = self._start(index)
        if served.loading is not None:
            raise CoordinatorLoading(f"shard {index} is being loaded")
        return served

    def _start(self, index: int) -> _Served[S]:
        served = self._served.get(index)
        if served is None or served.partition.retired:
            partition = self._partition(index)
            served = self._served[index] = _Served(self._new_shard(index), partition)
            if partition.log_end > partition.log_start:
                served.loading = asyncio.ensure_future(self._load(index, served))
            else:
                self._carry_out(served, served.shard.loaded(self._clock.now_ms()))
        return served

    async def _load(self, index: int, served: _Served[S]) -> None:
        try:
            offset = served.partition.log_start
            while offset < served.partition.high_watermark:
                offset = self._replay_from(served, offset)
                await asyncio.sleep(0)
        except (AnabranchError, OSError):
            log.exception("shard %d could not be loaded", index)
            self._served.pop(index, None)
            return
        served.loading = None
        self._carry_out(served, served.shard.loaded(self._clock.now_ms()))

    def _replay_from(self, served: _Served[S], offset: int) -> int:
        """Apply one read's worth of records; where to go on."""
        part = served.partition.read(offset, _READ_BYTES, Isolation.UNCOMMITTED, whole_first=True)
        if not isinstance(part, FileRange):
            return served.partition.high_watermark
        for header, batch in split_batches(part.file.pread(part.size, part.position)):
            offset = max(offset, header.last_offset + 1)
            if header.is_control:
                continue
            for record in iter_records(header, payload_of(header, batch, _UNPACKED_BYTES)):
                if record.key is None:
                    raise Corrupt(f"a record without a key at offset {record.offset}")
                served.shard.replay(record.key, record.value)
        return offset

    # --- carrying out

    def _carry_out(self, served: _Served[S], effects: Effects) -> None:
        for timer, time_ms in effects.timers.items():
            self._set(served, timer, time_ms)
        if not effects.records:
            _apply(served, effects)
            _answer(effects.replies)
            return
        now_ms = self._clock.now_ms()
        records = [Record(i, now_ms, record.key, record.value) for i, record in enumerate(effects.records)]
        try:
            appended = served.partition.append(memoryview(build_batch(records)), -1)
        except (AnabranchError, OSError) as error:
            self._lost(effects, error)
            return
        _apply(served, effects)
        if appended.acknowledged is None:
            _answer(effects.replies)
        else:
            appended.acknowledged.add_done_callback(lambda done: self._acknowledged(effects, done))

    def _acknowledged(self, effects: Effects, done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._lost(effects, error)
        else:
            _answer(effects.replies)

    def _lost(self, effects: Effects, error: Exception) -> None:
        log.warning("records of a coordinator could not be written: %s", error)
        _answer(effects.otherwise)

    def _set(self, served: _Served[S], timer: Hashable, time_ms: int | None) -> None:
        running = served.timers.pop(timer, None)
        if running is not None:
            running.cancel()
        if time_ms is not None:
            delay_s = max(0, time_ms - self._clock.now_ms()) / 1000
            served.timers[timer] = asyncio.get_running_loop().call_later(delay_s, self._fire, served, timer)

    def _fire(self, served: _Served[S], timer: Hashable) -> None:
        served.timers.pop(timer, None)
        if not served.partition.retired:
            self._carry_out(served, served.shard.timeout(timer, self._clock.now_ms()))


def _apply(served: _Served[S], effects: Effects) -> None:
    """Bring the state to where the log is: the next decision is taken over that."""
    for record in effects.records:
        served.shard.replay(record.key, record.value)
    for change in effects.then:
        change()


def _answer(replies: list[tuple[Token, Answer]]) -> None:
    for token, answer in replies:
        if isinstance(token, asyncio.Future) and not token.done():
            token.set_result(answer)
