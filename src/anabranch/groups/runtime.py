"""Coordinator runtime: coordinators on their logs, one shard per partition of an internal topic.

    submit(partition, decide) ─> decide(shard, token, now) ─> Effects ─> log ─> replay ─> answer

A shard is loaded when it is first asked for, by reading its partition from the start to the end of the log,
and answers nothing before all of that is safe (below the high watermark).  Whoever asks meanwhile waits for a
moment, and is told `CoordinatorLoading` if that was not enough; clients ask again.
If its log cannot be opened or read, for whatever reason, they are told `CoordinatorUnreadable`, and after a
while it is tried again (`unreadable.py`).

Decisions of a shard run one after the other and never wait, so there is nothing to lock.  Records go to
the log as one batch per decision (or several, if each stands for itself), acked by whatever the topic's
replication asks; the state follows at once, answers are given when that holds.

An answer that needs no record waits behind the last one that was written: what it is based on could be lost.
An acknowledgement has a deadline, that of the runtime or of the decision (`Effects.answered_within`).  Past
it whoever waits is told to ask again, as if the records could not be written; but they were, and nothing is
taken back.

A shard is led in one epoch.  When its partition's leader resigns it is dropped, and all who wait are told
NotCoordinator; if this broker leads again, the shard is loaded again.

What could not be written did not happen: whoever waits for it gets the answer that the decision had ready
for that, or else an error that says to look for the coordinator again.  No timer is cancelled then, and the
timer that led to the decision fires again.

The records of a transaction are a transactional batch of its producer, and its end is a marker in the
same partition, live and when the log is read alike.

Times are wall-clock times, as records have them; timers run on the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    AnabranchError,
    CoordinatorLoading,
    NotCoordinator,
    NotFound,
    NotOwner,
    TimedOut,
)
from anabranch.base.seldom import Seldom
from anabranch.groups.effect_answers import answer, fail, refusal, refuse
from anabranch.groups.effect_batches import batch_of, first_part
from anabranch.groups.effects import Answer, Effects, Producer, Shard, Token
from anabranch.groups.replaying import replay_from
from anabranch.groups.unreadable import UnreadableShards
from anabranch.partition.acknowledgements import is_safe
from anabranch.partition.led_partitions import LedPartitions
from anabranch.partition.partition import Partition
from anabranch.records.control import Marker

_trouble = Seldom(logging.getLogger(__name__), 10.0)

S = TypeVar("S", bound=Shard)
Seen = TypeVar("Seen")
Decide = Callable[[S, Token, int], Effects]
Begun = Callable[[], None]
"""Told that a decision is in the log, and that its answer only waits."""

_RETRY_MS = 5000  # after which a timer comes again if what it decided could not be written
_PATIENCE_S = 1.0  # how long a request waits for its shard to be loaded


class _Served(Generic[S]):
    """A shard, its partition, and the timers that run for it."""

    __slots__ = ("held", "loading", "outlive", "partition", "shard", "timers", "unsafe", "waiting")

    def __init__(self, shard: S, partition: Partition) -> None:
        self.shard = shard
        self.partition = partition
        self.timers: dict[Hashable, asyncio.TimerHandle] = {}
        self.loading: asyncio.Task[None] | None = None
        self.waiting: dict[asyncio.Future[Answer], None] = {}
        self.held: dict[asyncio.Future[Answer], None] = {}
        """Of those that wait, the ones that wait for a later decision."""
        self.unsafe: asyncio.Future[None] | None = None
        """Done when the last record that was written is safe, or nobody can say that."""
        self.outlive: Callable[[], None] = lambda: None
        """The shard does not end with the partition's leader any more: it is given up before."""

    def pending(self) -> "asyncio.Future[None] | None":
        """What answers wait for, if anything.  Raises if it can never come, as after a failed sync."""
        unsafe = self.unsafe
        if unsafe is None or not unsafe.done():
            return unsafe
        # One that failed may be safe by now.
        self.unsafe = None if is_safe(unsafe) else self.partition.acknowledgement(self.partition.log_end)
        return self.unsafe

    def abandon(self) -> None:
        """The partition is served here no more: nothing will come, nobody should wait."""
        if self.loading is not None:
            self.loading.cancel()
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()
        refuse(self.waiting)

    def wait(self, token: "asyncio.Future[Answer]", effects: Effects) -> None:
        """`token` is not answered yet, by these effects or later ones."""
        self.waiting[token] = None
        token.add_done_callback(lambda token: self.waiting.pop(token, None))
        if not any(answered is token for answered, _ in effects.replies):
            self.held[token] = None
            token.add_done_callback(lambda token: self.held.pop(token, None))


class Runtime(Generic[S]):
    def __init__(
        self,
        clock: Clock,
        new_shard: Callable[[int], S],
        partitions: LedPartitions,
        timeout_ms: Callable[[], int] | None = None,
    ) -> None:
        """`partitions` are those of the internal topic.

        Answers wait `timeout_ms` for the acknowledgement of what was decided; None: as long as it takes.
        """
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._new_shard = new_shard
        self._partitions = partitions
        self._served: dict[int, _Served[S]] = {}
        self._unreadable = UnreadableShards(clock, partitions.name_of)
        self._reading = asyncio.Lock()
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def shards(self) -> list[S]:
        """Those that are loaded."""
        return [served.shard for served in self._served.values() if served.loading is None]

    async def submit(self, index: int, decide: Decide[S], begun: Begun | None = None) -> Answer:
        """The answer to what `decide` decides over shard `index`.

        If that is decided and not answered at once, `begun` is told.
        """
        served = self._start(index)
        if served.loading is not None:
            await self._soon(index, served.loading)
        deciding = self.submit_now(index, decide)
        if begun is not None and not deciding.done():
            begun()
        return await deciding

    def submit_now(self, index: int, decide: Decide[S]) -> "asyncio.Future[Answer]":
        """As `submit`, over a shard that is loaded; the answer may be there already."""
        served = self._find(index)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # which is a system call
        token: asyncio.Future[Answer] = self._loop.create_future()
        now_ms = self._clock.now_ms()
        effects = decide(served.shard, token, now_ms)
        self._carry_out(served, effects, now_ms)
        if not token.done():
            served.wait(token, effects)
            if self._is_stopping:
                refuse(served.held)
        return token

    def end_transaction(
        self, index: int, producer: Producer, coordinator_epoch: int, *, commit: bool, strict: bool = False
    ) -> "asyncio.Future[None] | None":
        """Write the end of `producer`'s transaction to shard `index`, which need not be loaded for it.

        What is still to be waited for, if anything.
        """
        served = self._served.get(index)
        partition = self._partitions.partition(index) if served is None else served.partition
        marker = Marker(commit, coordinator_epoch)
        appended = partition.end_transaction(producer.producer_id, producer.epoch, marker, strict=strict)
        if served is not None and served.loading is None:
            served.shard.transaction_ended(producer.producer_id, commit=commit)
            served.unsafe = appended.acknowledged
        return appended.acknowledged

    def tell(self, index: int, decide: Callable[[S, int], Effects]) -> None:
        """Carry out what `decide` decides over shard `index`, which is loaded; nobody waits for an answer."""
        served = self._find(index)
        now_ms = self._clock.now_ms()
        self._carry_out(served, decide(served.shard, now_ms), now_ms)

    def read(self, index: int) -> S:
        """A shard to look at, if it is loaded."""
        return self._find(index).shard

    async def look(self, index: int) -> S:
        """A shard to look at, waiting a moment for it to be loaded."""
        served = self._start(index)
        if served.loading is not None:
            served = await self._soon(index, served.loading)
        return served.shard

    async def load(self, index: int) -> S:
        """A shard to look at, waiting for it to be loaded however long that takes."""
        while (served := self._start(index)).loading is not None:
            await asyncio.wait((served.loading,))  # it may be given up, and this broker lead again
        return served.shard

    def find(self, index: int) -> S | None:
        """A shard to look at, None if it is not loaded."""
        served = self._served.get(index)
        return None if served is None or served.loading is not None else served.shard

    async def ask(self, index: int, read: Callable[[S], Seen]) -> Seen:
        """What `read` sees of shard `index`, once that is safe.  NotCoordinator if it never will be."""
        seen = read(await self.look(index))
        await self.settled(index)
        return seen

    async def settled(self, index: int) -> None:
        """Return when all that shard `index` knows by now is safe; raises as `ask`."""
        served = self._find(index)
        timeout_s = _PATIENCE_S if self._timeout_ms is None else self._timeout_ms() / 1000
        try:
            if (unsafe := served.pending()) is not None:
                await asyncio.wait_for(asyncio.shield(unsafe), timeout_s)
        except TimeoutError as error:
            raise CoordinatorLoading(f"shard {index} waits for its replicas") from error
        except (AnabranchError, OSError) as error:
            raise refusal(error) from error

    def is_safe(self, index: int) -> bool:
        """Whether all that shard `index` knows is."""
        unsafe = self._find(index).unsafe
        return unsafe is None or is_safe(unsafe)

    def let_go(self) -> None:
        """The node is about to stop: nobody waits for others any more, as members do for a rebalance."""
        self._is_stopping = True
        for served in self._served.values():
            refuse(served.held)

    def close(self) -> None:
        for served in self._served.values():
            served.abandon()
        self._served.clear()

    # --- loading

    def _find(self, index: int) -> _Served[S]:
        served = self._start(index)
        if served.loading is not None:
            raise CoordinatorLoading(f"shard {index} is being loaded")
        return served

    async def _soon(self, index: int, loading: "asyncio.Task[None]") -> _Served[S]:
        await asyncio.wait((loading,), timeout=_PATIENCE_S)
        return self._find(index)

    def _start(self, index: int) -> _Served[S]:
        served = self._served.get(index)
        if served is None:
            self._unreadable.check(index)
            served = self._served[index] = self._open(index)
            if served.partition.log_end > served.partition.log_start:
                served.loading = asyncio.ensure_future(self._load(index, served))
            else:
                self._loaded(index, served)
        return served

    def _open(self, index: int) -> _Served[S]:
        try:
            served = _Served(self._new_shard(index), self._partitions.partition(index))
            served.outlive = served.partition.on_resign(lambda: self._resigned(index, served))
            return served
        except NotOwner as error:
            raise NotCoordinator(str(error)) from error
        except NotFound:
            raise
        except Exception as error:  # a file may be broken in any way
            raise self._unreadable.failed(index, error) from error

    def _resigned(self, index: int, served: _Served[S]) -> None:
        if self._served.get(index) is served:
            del self._served[index]
        served.abandon()

    async def _load(self, index: int, served: _Served[S]) -> None:
        partition = served.partition
        try:
            offset = partition.log_start
            while offset < partition.log_end:  # markers of transactions come in meanwhile
                async with self._reading:  # of many shards one at a time has a turn of the loop
                    offset = replay_from(partition, served.shard, offset)
                    await asyncio.sleep(0)
                if offset >= partition.log_end and (unsafe := partition.acknowledgement(offset)):
                    await unsafe
            self._loaded(index, served)
        except Exception as error:  # noqa: BLE001  or everybody would wait for it forever
            served.loading = None
            served.outlive()
            served.abandon()
            self._served.pop(index, None)
            if not served.partition.retired:  # else it is the topic that has gone, and its files are closed
                self._unreadable.failed(index, error)

    def _loaded(self, index: int, served: _Served[S]) -> None:
        served.loading = None
        now_ms = self._clock.now_ms()
        self._carry_out(served, served.shard.loaded(now_ms), now_ms)
        self._unreadable.worked(index)

    # --- carrying out

    def _carry_out(self, served: _Served[S], effects: Effects, now_ms: int) -> bool:
        """Of what was decided at `now_ms`.  False if it could not be written."""
        if not effects.records and effects.encoded is None:
            self._set_all(served, effects)
            _apply(served, effects)
            self._answer_when_safe(served, effects)
            return True
        try:
            while effects.is_divisible and (part := first_part(effects)) is not effects:
                served.partition.append_own(memoryview(batch_of(part, now_ms)))
                _apply(served, part)
            appended = served.partition.append_own(memoryview(batch_of(effects, now_ms)))
        except (AnabranchError, OSError) as error:
            # What was to end has not, so nor do its timers: a member that is gone would stay forever.
            self._set_all(served, effects, cancel=False)
            self._lost(served, effects, error)
            return False
        self._set_all(served, effects)
        _apply(served, effects)
        served.unsafe = appended.acknowledged
        self._answer_when_safe(served, effects)
        return True

    def _answer_when_safe(self, served: _Served[S], effects: Effects) -> None:
        try:
            unsafe = served.pending()
        except (AnabranchError, OSError) as error:
            self._lost(served, effects, error)
            return
        if unsafe is None:
            answer(effects.replies)
        else:
            self._wait(served, effects, unsafe)

    def _wait(self, served: _Served[S], effects: Effects, acknowledged: "asyncio.Future[None]") -> None:
        """Answer when the records are acknowledged."""
        timeout_ms = effects.answer_timeout_ms
        if timeout_ms is None and self._timeout_ms is not None:
            timeout_ms = self._timeout_ms()
        deadline = None
        if timeout_ms is not None and effects.replies:
            deadline = acknowledged.get_loop().call_later(timeout_ms / 1000, self._late, effects, timeout_ms)
        acknowledged.add_done_callback(partial(self._acknowledged, served, effects, deadline))

    def _late(self, effects: Effects, timeout_ms: int) -> None:
        """The records are in the log, but nobody should wait any longer to hear that they are safe."""
        fail(effects, TimedOut(f"not acknowledged within {timeout_ms} ms"))

    def _acknowledged(
        self,
        served: _Served[S],
        effects: Effects,
        deadline: asyncio.TimerHandle | None,
        done: "asyncio.Future[None]",
    ) -> None:
        if deadline is not None:
            deadline.cancel()
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._lost(served, effects, error)
        else:
            answer(effects.replies)

    def _lost(self, served: _Served[S], effects: Effects, error: Exception) -> None:
        _trouble.warning("%s: records of its coordinator could not be written: %s", served.partition, error)
        fail(effects, error)

    def _set_all(self, served: _Served[S], effects: Effects, *, cancel: bool = True) -> None:
        for timer, time_ms in effects.timers.items():
            if cancel or time_ms is not None:
                self._set(served, timer, time_ms)

    def _set(self, served: _Served[S], timer: Hashable, time_ms: int | None) -> None:
        running = served.timers.pop(timer, None)
        if running is not None:
            running.cancel()
        if time_ms is not None:
            delay_s = max(0, time_ms - self._clock.now_ms()) / 1000
            served.timers[timer] = asyncio.get_running_loop().call_later(delay_s, self._fire, served, timer)

    def _fire(self, served: _Served[S], timer: Hashable) -> None:
        served.timers.pop(timer, None)
        now_ms = self._clock.now_ms()
        is_done = self._carry_out(served, served.shard.timeout(timer, now_ms), now_ms)
        if not is_done and timer not in served.timers:
            self._set(served, timer, now_ms + _RETRY_MS)


def _apply(served: _Served[S], effects: Effects) -> None:
    """Bring the state to where the log is: the next decision is taken over that."""
    if effects.replay is not None:
        effects.replay()
    elif effects.producer is None:
        for record in effects.records:
            served.shard.replay(record.key, record.value)
    else:
        for record in effects.records:
            served.shard.replay_pending(effects.producer.producer_id, record.key, record.value)
    for change in effects.then:
        change()
