"""Nemesis: what goes wrong in a simulated cluster, chosen by a seed.

    nemesis = Nemesis(world, cluster, random, is_durable)
    await nemesis.run(40.0)          faults, several at a time, for so long

Each fault begins, lasts, and ends by itself; `SimCluster.heal` ends those that are left.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

from anabranch.base.errors import AnabranchError
from tests.sim.cluster import SimBroker, SimCluster
from tests.sim.world import STORE_HOST, SimWorld

Fault = Callable[[SimBroker, float], Awaitable[None]]


class Nemesis:
    def __init__(self, world: SimWorld, cluster: SimCluster, random: Random, *, is_durable: bool) -> None:
        """`is_durable`: what is acknowledged is on disks, so that machines may lose power."""
        self._world = world
        self._cluster = cluster
        self._random = random
        self._is_durable = is_durable
        self._tasks: list[asyncio.Task[None]] = []
        self.counts: dict[str, int] = {}
        self._faults: dict[str, tuple[Fault, float]] = {
            "slow link": (self._slow_link, 1.0),
            "cut": (self._cut, 1.0),
            "cut one way": (self._cut_one_way, 1.0),
            "reset": (self._reset, 1.0),
            "kill": (self._kill, 1.0),
            "power cut": (self._power_cut, 1.0 if is_durable else 0.0),
            "death while writing": (self._die_writing, 1.0),
            "failing disk": (self._failing_disk, 0.3 if is_durable else 0.0),
            "full disk": (self._full_disk, 0.5),
            "session over": (self._end_session, 0.7),
            "pause": (self._pause, 1.0),
            "clock": (self._clock, 0.5),
            "slow disk": (self._slow_disk, 0.7),
            "cold disk": (self._cold_disk, 0.3),
            "lagging watches": (self._lag, 1.0),
            "move": (self._move, 4.0),
            "reassignment": (self._reassign, 1.0),
        }
        # Some seeds know a few kinds only, so that one kind is not always hidden behind another.
        known = [name for name, (_, weight) in self._faults.items() if weight and random.random() < 0.7]
        self._names = known or ["move"]
        self._weights = [self._faults[name][1] for name in self._names]
        self._pace_s = random.choice((0.1, 0.5, 1.0, 2.0))

    async def run(self, seconds: float) -> None:
        loop = self._world.loop
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(self._random.expovariate(1 / self._pace_s))
            name = self._random.choices(self._names, self._weights)[0]
            broker = self._random.choice(list(self._cluster.brokers.values()))
            lasts_s = self._random.choice((0.05, 0.5, 3.0, 12.0)) * self._random.random()
            self.counts[name] = self.counts.get(name, 0) + 1
            self._world.say(broker.name, f"fault: {name}, {lasts_s:.3f} s")
            self._tasks.append(asyncio.ensure_future(self._faults[name][0](broker, lasts_s)))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in self._tasks:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    def _other(self, broker: SimBroker) -> str:
        hosts = [name for name in self._world.processes if name != broker.name]
        return self._random.choice([*self._cluster.hosts(), STORE_HOST, *hosts])

    # --- links

    async def _slow_link(self, broker: SimBroker, lasts_s: float) -> None:
        way = (broker.name, self._other(broker))
        slow = self._world.wire.slow
        for each in (way, way[::-1]) if self._random.random() < 0.5 else (way,):
            slow[each] = self._random.choice((0.01, 0.1, 0.5))
        await asyncio.sleep(lasts_s)
        slow.pop(way, None)
        slow.pop(way[::-1], None)

    async def _cut(self, broker: SimBroker, lasts_s: float) -> None:
        others = [self._other(broker)]
        if self._random.random() < 0.3:
            others = [name for name in self._world.processes if name != broker.name]
        for other in others:
            self._world.wire.cut(broker.name, other)
        await asyncio.sleep(lasts_s)
        for other in others:
            self._world.wire.mend(broker.name, other)

    async def _cut_one_way(self, broker: SimBroker, lasts_s: float) -> None:
        way = [broker.name, self._other(broker)]
        self._random.shuffle(way)
        self._world.wire.cut(*way, one_way=True)
        await asyncio.sleep(lasts_s)
        self._world.wire.mend(*way)

    async def _reset(self, broker: SimBroker, lasts_s: float) -> None:
        self._world.wire.reset(broker.name, self._other(broker))

    # --- machines

    async def _kill(self, broker: SimBroker, lasts_s: float) -> None:
        if broker.machine.is_running:
            broker.machine.stays_down = True
            broker.kill()
            await self._start_later(broker, lasts_s)

    async def _power_cut(self, broker: SimBroker, lasts_s: float) -> None:
        if broker.machine.is_running:
            broker.machine.stays_down = True
            broker.power_cut()
            await self._start_later(broker, lasts_s)

    async def _die_writing(self, broker: SimBroker, lasts_s: float) -> None:
        """In the middle of what it writes next."""
        is_power_cut = self._is_durable and self._random.random() < 0.5
        die = broker.power_cut if is_power_cut else broker.kill
        broker.machine.disk.arm(self._random.randint(0, 40), die)
        await asyncio.sleep(lasts_s)
        if broker.machine.is_running:
            broker.machine.disk.disarm()

    async def _start_later(self, broker: SimBroker, lasts_s: float) -> None:
        try:
            await asyncio.sleep(lasts_s)
        finally:
            broker.machine.stays_down = False
        if not broker.machine.is_running:
            broker.start()

    async def _pause(self, broker: SimBroker, lasts_s: float) -> None:
        process = broker.machine.process
        if process is not None:
            self._world.loop.pause(process)
            await asyncio.sleep(lasts_s)
            self._world.loop.resume(process)

    async def _clock(self, broker: SimBroker, lasts_s: float) -> None:
        broker.machine.clock.skew_ms = self._random.choice((-3_600_000, -5000, -100, 0, 100, 5000, 3_600_000))

    # --- disks and the store

    async def _slow_disk(self, broker: SimBroker, lasts_s: float) -> None:
        broker.machine.sync_s = self._random.choice((0.02, 0.2, 1.0))
        await asyncio.sleep(lasts_s)
        broker.machine.sync_s = 0.002

    async def _cold_disk(self, broker: SimBroker, lasts_s: float) -> None:
        broker.machine.disk.cold = self._random.random()
        await asyncio.sleep(lasts_s)
        broker.machine.disk.cold = 0.0

    async def _failing_disk(self, broker: SimBroker, lasts_s: float) -> None:
        broker.machine.disk.sync_error = OSError(errno.EIO, "bad block")
        await asyncio.sleep(lasts_s)
        broker.machine.disk.sync_error = None

    async def _full_disk(self, broker: SimBroker, lasts_s: float) -> None:
        broker.machine.disk.room_bytes = self._random.choice((0, 100, 2000))
        await asyncio.sleep(lasts_s)
        broker.machine.disk.room_bytes = 1 << 40

    async def _end_session(self, broker: SimBroker, lasts_s: float) -> None:
        self._world.store.end_all(broker.name)

    async def _lag(self, broker: SimBroker, lasts_s: float) -> None:
        broker.machine.lag_s = self._random.choice((0.1, 1.0, 4.0))
        await asyncio.sleep(lasts_s)
        broker.machine.lag_s = 0.01

    # --- leaders

    async def _move(self, broker: SimBroker, lasts_s: float) -> None:
        led = [*self._cluster.led()]
        if not led:
            return
        name, index, _, isr = self._random.choice(led)
        to = self._random.choice(isr)
        try:
            await self._cluster.elect(name, index, to, "the nemesis moves leaders")
        except AnabranchError as error:
            self._world.say("-", f"no move of {name.kafka}-{index}: {error}")

    async def _reassign(self, broker: SimBroker, lasts_s: float) -> None:
        """To some of the brokers, or called off."""
        led = [*self._cluster.led()]
        if not led:
            return
        name, index, *_ = self._random.choice(led)
        ids = [*self._cluster.brokers]
        target = self._random.sample(ids, self._random.choice((1, 2, len(ids), len(ids))))
        is_called_off = self._random.random() < 0.2
        try:
            await self._cluster.reassign(name, index, None if is_called_off else target)
        except AnabranchError as error:
            self._world.say("-", f"no reassignment of {name.kafka}-{index}: {error}")
