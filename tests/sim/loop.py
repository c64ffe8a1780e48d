"""Simulated event loop: virtual time, and a seed that says which node goes on next.

    loop = SimLoop(Random(17))
    one, other = Process("b1"), Process("b2")     what runs in a context of its own: a node, a client
    loop.run_in(one, work())                      a task of that process
    loop.pause(one), loop.resume(one)             as SIGSTOP and SIGCONT: time goes on, its timers fire late
    loop.kill(one)                                as SIGKILL: nothing of it ever runs again
    loop.run_until_complete(scenario())           which belongs to no process

Every handle belongs to the process in whose context it was made.  Handles of one process run in the order in
which they became ready, as on every event loop; between processes the seed chooses.  A handle takes no time.
When nothing is ready the clock goes to the next timer.

Work for threads runs in one go at the end of the time that it takes, in the process's context.  What reaches
for sockets, threads or the operating system is refused.
"""

import asyncio
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from random import Random
from typing import Any

_MOST_AT_ONCE = 200_000
"""Handles without the time going on: more of them are a loop that has no end."""
_MOST_CANCELLED = 1000


class Stuck(Exception):
    """The simulation cannot go on."""


class Process:
    """What is paused and killed as one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[events.Handle] = deque()
        self.is_paused = False
        self.is_dead = False
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)

    def __repr__(self) -> str:
        return f"Process({self.name})"


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


def current() -> Process | None:
    """Whose code is running."""
    return _process.get(None)


class SimExecutor(Executor):
    """A pool of threads: so many at work at a time, each of them for as long as `takes_s` says."""

    def __init__(self, name: str, threads: int, takes_s: Callable[[], float]) -> None:
        self.name = name
        self.takes_s = takes_s
        self.free_at = [0.0] * threads

    def submit(self, *_: Any, **__: Any) -> Any:
        raise Stuck(f"pool {self.name}: work comes through the loop")

    def shutdown(self, *_: Any, **__: Any) -> None:
        return


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random.random
        self._now = 0.0
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._count = 0
        self._cancelled = 0
        self.nobody = Process("world")
        """What no process does: what is on its way, the faults."""
        self._runnable: list[Process] = []
        self._dead: list[Any] = []  # what is collected runs its `finally`, and the dead do nothing more
        self.handles = 0

    def time(self) -> float:
        return self._now

    # --- scheduling

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = events.Handle(callback, args, self, context)  # type: ignore[arg-type]
        self._add(handle, context.get(_process) or self.nobody)
        return handle

    def _add(self, handle: events.Handle, process: Process) -> None:
        if process.is_dead:
            return
        if not process.ready and not process.is_paused:
            self._runnable.append(process)
        process.ready.append(handle)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> events.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        timer = events.TimerHandle(when, callback, args, self, context)  # type: ignore[arg-type]
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> events.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        raise Stuck("a thread speaks: there are none here")

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > _MOST_CANCELLED and self._cancelled * 2 > len(self._timers):
            self._timers = [each for each in self._timers if not each[2]._cancelled]  # type: ignore[attr-defined]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def run_in_executor(self, executor: Any, work: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        if not isinstance(executor, SimExecutor):
            raise Stuck(f"work for {executor}, which is a pool of real threads")
        done = self.create_future()
        thread = min(range(len(executor.free_at)), key=executor.free_at.__getitem__)
        end = max(self._now, executor.free_at[thread]) + executor.takes_s()
        executor.free_at[thread] = end

        def finish() -> None:
            try:
                result, failure = work(*args), None
            except Exception as error:  # noqa: BLE001  # whoever waits is told, as by a thread
                result, failure = None, error
            if done.cancelled():
                return
            if failure is None:
                done.set_result(result)
            else:
                done.set_exception(failure)

        self.call_at(end, finish)
        return done

    # --- processes

    def run_in(self, process: Process, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.create_task(work, context=process.context)

    def call_in(self, process: Process, callback: Callable[..., Any], *args: Any) -> None:
        self.call_soon(callback, *args, context=process.context)

    def pause(self, process: Process) -> None:
        if not process.is_paused and not process.is_dead:
            process.is_paused = True
            if process.ready:
                self._runnable.remove(process)

    def resume(self, process: Process) -> None:
        if process.is_paused and not process.is_dead:
            process.is_paused = False
            if process.ready:
                self._runnable.append(process)

    def kill(self, process: Process) -> None:
        if process.is_dead:
            return
        self._dead += [asyncio.all_tasks(self), process.ready, [each[2] for each in self._timers]]
        if process.ready and not process.is_paused:
            self._runnable.remove(process)
        process.is_dead = True
        process.ready = deque()

    # --- running

    def run_forever(self) -> None:
        self._check_closed()  # type: ignore[attr-defined]
        events._set_running_loop(self)
        try:
            self._run()
        finally:
            self._stopping = False
            events._set_running_loop(None)

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        random, runnable, at_once = self._random, self._runnable, 0
        while not self._stopping:
            if not runnable:
                self._go_on()
                at_once = 0
                continue
            count = len(runnable)
            chosen = int(random() * count) if count > 1 else 0
            process = runnable[chosen]
            handle = process.ready.popleft()
            if not process.ready:
                runnable[chosen] = runnable[-1]
                runnable.pop()
            if not handle._cancelled:  # type: ignore[attr-defined]
                handle._run()
                self.handles += 1
                at_once += 1
                if at_once > _MOST_AT_ONCE:
                    raise Stuck(f"the time stands still at {self._now:.6f} s, last was {handle!r}")

    def _go_on(self) -> None:
        """To the next timer, and all that are due then."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
            self._cancelled -= 1
        if not timers:
            raise Stuck(f"nobody has anything to do any more, at {self._now:.6f} s")
        self._now = now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            if timer._cancelled:  # type: ignore[attr-defined]
                self._cancelled -= 1
                continue
            timer._scheduled = False  # type: ignore[attr-defined]
            self._add(timer, timer._context.get(_process) or self.nobody)  # type: ignore[attr-defined]
