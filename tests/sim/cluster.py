"""Simulated cluster: brokers on machines of their own, started again when they die.

cluster = SimCluster(world, settings)
await cluster.start()                       three brokers, which know each other
await cluster.create("orders", 2)
cluster.brokers[1].machine.kill()           `revive` starts it again
await cluster.heal()                        all is well, from now on
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.base.ids import BrokerId, TopicName
from anabranch.cluster.topics import NewTopic
from anabranch.meta.image import ClusterImage, PartitionImage
from anabranch.node import Node
from anabranch.server.config import BrokerConfig
from anabranch.server.config_file import load
from tests.sim.loop import Process
from tests.sim.world import Machine, SimWorld, data_folder

_LONG_S = 120.0
_SETTINGS = {
    "brokerServicePort": "-1",
    "webServicePort": "-1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "500",
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "5000",
}


class SimBroker:
    def __init__(self, id: BrokerId, machine: Machine, settings: dict[str, str]) -> None:
        self.id = id
        self.name = machine.name
        self.machine = machine
        self.node: Node | None = None
        """While it serves."""
        self.lives = 0
        self._config = self._configured(settings)

    def _configured(self, settings: dict[str, str]) -> BrokerConfig:
        own = {
            "node.id": str(self.id),
            "log.dirs": str(data_folder(self.name)),
            "listeners": f"PLAINTEXT://{self.name}:9092",
        }
        return load(None, {}, {**_SETTINGS, **own, **settings})

    def start(self) -> None:
        process = self.machine.start()
        self.lives += 1
        self.machine.world.loop.run_in(process, self._run(process))

    async def _run(self, process: Process) -> None:
        world = self.machine.world
        try:
            node = Node(self._config, self.machine.node_world())
            await node.start()
            self.node = node
            assert node.failed is not None
            await node.failed
        except Exception as error:  # noqa: BLE001  # whatever it dies of, it is dead
            world.say(self.name, f"dies: {type(error).__name__}: {error}")
            if not isinstance(error, AnabranchError | OSError):
                world.failed(error)
        # A process cannot end itself from within: what is left of it would go on.
        world.loop.call_soon(self._ended, process, context=world.loop.nobody.context)

    def _ended(self, process: Process) -> None:
        if self.machine.process is process:
            self.kill()

    def kill(self) -> None:
        self.machine.kill()
        self.node = None

    def power_cut(self) -> None:
        self.machine.power_cut()
        self.node = None

    @property
    def serves(self) -> bool:
        return self.node is not None and self.machine.is_running

    @property
    def image(self) -> ClusterImage:
        assert self.node is not None
        return self.node.parts.cluster.image


class SimCluster:
    def __init__(self, world: SimWorld, settings: dict[str, str], size: int = 3) -> None:
        self.world = world
        self.brokers = {
            BrokerId(id): SimBroker(BrokerId(id), world.machine(f"b{id}"), settings)
            for id in range(1, size + 1)
        }
        self.topics: dict[str, int] = {}

    @property
    def serving(self) -> list[SimBroker]:
        return [broker for broker in self.brokers.values() if broker.serves]

    @property
    def awake(self) -> list[SimBroker]:
        return [broker for broker in self.serving if not broker.machine.process.is_paused]  # type: ignore[union-attr]

    def hosts(self) -> list[str]:
        return [broker.name for broker in self.brokers.values()]

    # --- life

    async def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        await self.until(self._know_each_other, "the brokers do not find each other")

    def _know_each_other(self) -> bool:
        return len(self.awake) == len(self.brokers) and all(
            set(broker.image.brokers) == set(self.brokers) for broker in self.awake
        )

    async def heal(self) -> None:
        """Nothing is cut, slow, paused or dead any more."""
        world = self.world
        for one in [*world.processes]:
            for other in [*world.processes]:
                if one < other:
                    world.wire.mend(one, other)
        world.wire.slow.clear()
        for machine in world.machines.values():
            machine.sync_s, machine.lag_s = 0.002, 0.01
            machine.disk.disarm()
            machine.disk.sync_error, machine.disk.room_bytes, machine.disk.cold = None, 1 << 40, 0.0
            if machine.process is not None:
                world.loop.resume(machine.process)
        for broker in self.brokers.values():
            if not broker.machine.is_running:
                broker.start()
        await self.until(self._know_each_other, "the brokers do not find each other again")

    async def until(
        self, holds: Callable[[], object], what: str, within_s: float = _LONG_S, every_s: float = 0.05
    ) -> None:
        loop = self.world.loop
        deadline = loop.time() + within_s
        while not holds():
            if loop.time() > deadline:
                raise AssertionError(f"{what}, in {within_s:g} s")
            await asyncio.sleep(every_s)

    async def revive(self) -> None:
        """Start what died of itself, for ever."""
        while True:
            await asyncio.sleep(1.0)
            for broker in self.brokers.values():
                if not broker.machine.is_running and not broker.machine.stays_down:
                    broker.start()

    # --- what is asked of brokers from outside

    async def ask(self, broker: SimBroker, work: Coroutine[Any, Any, Any], within_s: float = 10.0) -> Any:
        """Have `broker` do something; Unavailable if it dies, or does not come to an end."""
        loop, process = self.world.loop, broker.machine.process
        assert process is not None
        answer = loop.create_future()

        async def do() -> None:
            try:
                result, failure = await work, None
            except Exception as error:  # noqa: BLE001  # for who asks
                result, failure = None, error
            if not answer.done():
                if failure is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(failure)

        loop.run_in(process, do())
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            raise Unavailable(f"{broker.name} does not answer") from None

    async def create(self, name: str, partitions: int, **config: str) -> None:
        ids = sorted(self.brokers)
        assignments = [
            (index, ids[index % len(ids) :] + ids[: index % len(ids)]) for index in range(partitions)
        ]
        new = NewTopic(TopicName.from_kafka(name), assignments=assignments, config=config)
        broker = self.awake[0]
        assert broker.node is not None
        await self.ask(broker, broker.node.parts.cluster.create_topic(new))
        self.topics[name] = partitions
        await self.until(
            lambda: all(new.name in broker.image.topics for broker in self.serving), f"{name} does not come"
        )

    def controller(self) -> SimBroker | None:
        for broker in self.awake:
            assert broker.node is not None
            if broker.node.parts.cluster.controller.epoch is not None:
                return broker
        return None

    async def elect(self, name: TopicName, index: int, leader: BrokerId, why: str) -> None:
        """By the controller, if there is one that can."""
        broker = self.controller()
        if broker is None or broker.node is None:
            raise Unavailable("there is no controller")
        controller = broker.node.parts.cluster.controller
        await self.ask(broker, controller.elect_leader(name, index, leader, why))

    async def reassign(self, name: TopicName, index: int, replicas: Sequence[BrokerId] | None) -> None:
        """By the controller, if there is one that can."""
        broker = self.controller()
        if broker is None or broker.node is None:
            raise Unavailable("there is no controller")
        controller = broker.node.parts.cluster.controller
        await self.ask(broker, controller.reassign(name, index, replicas))

    async def spread(self) -> None:
        """Every broker has every partition again."""
        ids = sorted(self.brokers)
        while lacking := [
            (name, index)
            for name, index, *_ in self.led()
            if set(self._state(name, index).replicas) < set(ids) or self._state(name, index).removing
        ]:
            for name, index in lacking:
                at = index % len(ids)
                try:
                    await self.reassign(name, index, ids[at:] + ids[:at])
                except AnabranchError as error:
                    self.world.say("-", f"{name.kafka}-{index} is not spread yet: {error}")
            await asyncio.sleep(0.5)

    def _state(self, name: TopicName, index: int) -> PartitionImage:
        broker = self.controller() or self.awake[0]
        return broker.image.topics[name].partitions[index]

    def led(self) -> Iterator[tuple[TopicName, int, BrokerId, tuple[BrokerId, ...]]]:
        """Who leads each partition, as the one who knows most has it."""
        broker = self.controller() or next(iter(self.awake), None)
        if broker is not None:
            for topic in broker.image.topics.values():
                for one in topic.partitions:
                    yield topic.name, one.index, one.leader, one.isr
