"""Simulated machines: what a node of a simulated cluster has of clock, disk, network and threads.

    world = SimWorld(seed)
    machine = world.machine("b1")
    machine.start()                       a process, on the disk that those before it had
    machine.kill(), machine.power_cut()   which differ in what is left on the disk, and in what others hear
    world.say("b1", "cut off")            a line of the trace

All chance comes from the seed, each machine has a stream of its own.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from random import Random
from typing import IO, Any

from anabranch.base.descriptors import Shares
from anabranch.base.processes import Child
from anabranch.base.world import World
from anabranch.meta.store import MetadataStore
from anabranch.node_parts import NodeWorld
from tests.sim.disk import Crash, MemoryDisk
from tests.sim.loop import Process, SimExecutor, SimLoop, Stuck, current
from tests.sim.store import Pace, SimStore
from tests.support.memory_network import Wire

STORE_HOST = "zk"
SESSION_TIMEOUT_S = 9.0
_EPOCH_MS = 1_800_000_000_000
_TICK_S = 0.5
_TRACE = 4000


class SimClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        self.monotonic = loop.time

    def now_ms(self) -> int:
        return _EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms


class SimWire(Wire):
    """Each way has a delay that differs from packet to packet, and may be slow."""

    def __init__(self, loop: SimLoop, random: Random, processes: Mapping[str, Process]) -> None:
        super().__init__()
        self._loop = loop
        self._random = random.random
        self._processes = processes
        self.usual_s = 0.0005
        self.slow: dict[tuple[str, str], float] = {}

    def delay_s(self, one: str, other: str) -> float:
        return (self.usual_s + self.slow.get((one, other), 0.0)) * (0.5 + self._random())

    def soon(self, host: str, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_soon(callback, context=self._processes[host].context)

    def at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_at(when, callback, context=self._loop.nobody.context)

    def hosts_linked(self) -> list[tuple[str, str]]:
        return sorted({(link.host, link.other_host) for link in self.links})


class NoProcesses:
    async def start(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        output: IO[Any] | None = None,
    ) -> Child:
        raise Stuck(f"a child process: {command}")


class SimWorld:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimLoop(self.random("loop"))
        self.loop.set_exception_handler(lambda loop, context: self._uncared_for(context))
        self.processes: dict[str, Process] = {STORE_HOST: Process(STORE_HOST)}
        self.wire = SimWire(self.loop, self.random("wire"), self.processes)
        self.store = SimStore(self._schedule, self.loop.time)
        self.machines: dict[str, Machine] = {}
        self.trace: deque[str] = deque(maxlen=_TRACE)
        self.digest = hashlib.sha256()
        self.failure: BaseException | None = None
        """The first thing that was not as it must be."""

    def random(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def machine(self, name: str) -> "Machine":
        made = self.machines[name] = Machine(self, name)
        return made

    def failed(self, failure: BaseException) -> None:
        """Something is not as it must be: the simulation ends."""
        if self.failure is None:
            self.failure = failure
            self.say("-", f"failed: {failure}")
            self.loop.stop()

    def _uncared_for(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Crash):
            return
        self.say("-", f"nobody took care of: {context}")
        self.failed(error if isinstance(error, BaseException) else AssertionError(str(context)))

    def say(self, who: str, what: str) -> None:
        line = f"{self.loop.time():10.4f}  {who:<4} {what}"
        self.trace.append(line)
        self.digest.update(line.encode())

    def _schedule(self, when: float, callback: Callable[[], None]) -> None:
        self.loop.call_at(when, callback, context=self.loop.nobody.context)

    async def tick(self) -> None:
        """Sessions with the store, for ever."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.store.tick()


class Machine:
    """A host: its disk and its clock outlive the processes on it, of which there is one at a time."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.clock = SimClock(world.loop)
        self.random = world.random(name)
        self.disk = MemoryDisk(self.random, self.clock.now_ms)
        self.process: Process | None = None
        self.sync_s = 0.002
        self.lag_s = 0.01
        self.stays_down = False
        """Somebody sees to its next start."""
        self._is_off = False
        self._cuts: list[str] = []

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def start(self) -> Process:
        assert not self.is_running
        if self._is_off:
            self._is_off = False
            self.world.wire.down(self.name)  # nobody knows the old connections
            for other in self._cuts:
                self.world.wire.mend(self.name, other)
        self.process = self.world.processes[self.name] = Process(self.name)
        return self.process

    def kill(self) -> None:
        """What is written stays, and others are told at once."""
        if self.is_running:
            self.world.loop.kill(self.process)  # type: ignore[arg-type]
            self.disk.detach()
            self.world.wire.down(self.name, is_killed=True)

    def power_cut(self) -> None:
        """What is not synced is lost, and others hear nothing until it is started again."""
        if self.is_running:
            self.world.loop.kill(self.process)  # type: ignore[arg-type]
            self.disk.power_cut()
            self._is_off, self._cuts = True, []
            for other in [*self.world.processes]:
                if other != self.name and not self.world.wire.is_cut(self.name, other):
                    self.world.wire.cut(self.name, other)
                    self._cuts.append(other)

    # --- what its process is given

    def node_world(self) -> NodeWorld:
        assert self.process is not None
        process = self.process
        return World(
            clock=self.clock,
            random=Random(self.random.random()),
            network=self.world.wire.host(self.name),
            disk=lambda most_open, executors: self.disk.attach(executors),
            descriptors=lambda files, backlog: Shares(files, 10_000),
            executors=self.executors,
            processes=NoProcesses(),
            open_store=lambda *_: self._open_store(process),
        )

    def executors(self, name: str, threads: int) -> Executor:
        return SimExecutor(name, threads, lambda: self.random.expovariate(1 / self.sync_s))

    async def _open_store(self, process: Process) -> MetadataStore:
        wire, loop = self.world.wire, self.world.loop
        pace = Pace(
            way_s=lambda: wire.delay_s(self.name, STORE_HOST),
            lag_s=lambda: self.random.expovariate(1 / self.lag_s),
            reaches=lambda: not (wire.is_cut(self.name, STORE_HOST) or wire.is_cut(STORE_HOST, self.name)),
            runs=lambda: not (process.is_dead or process.is_paused),
        )
        return self.world.store.connect(
            self.name, lambda callback: loop.call_in(process, callback), pace, SESSION_TIMEOUT_S
        )


class Traced(logging.Handler):
    """What nodes log, in the trace."""

    def __init__(self, world: SimWorld) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = current()
        who = "-" if process is None else process.name
        self._world.say(who, f"{record.levelname[0]} {record.getMessage()}")


def data_folder(name: str) -> Path:
    return Path("/data") / name
