"""Controllers against a naive model of what replicas hold: brokers die, stop, restart, lag and catch up.

A record is committed once everybody in sync has it.  Whatever happens, one broker leads a partition in an
epoch, it was in sync, epochs only rise, and who leads has what was committed.  A seed chooses; ANABRANCH_SEED
is another.
"""

import asyncio
import os
import random
from pathlib import Path
from random import Random

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError
from anabranch.base.ids import BrokerId, TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import NewTopic, TopicDefaults
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import NO_BROKER, BrokerImage, ImageChange, PartitionImage
from tests.support.waiting import until
from tests.unit.cluster.test_cluster import FixedClock, no_bad_config

SEEDS = [int(seed)] if (seed := os.environ.get("ANABRANCH_SEED")) else [1, 2, 3]
STEPS = 60
NAME = TopicName.from_kafka("orders")
IDS = [BrokerId(id) for id in (1, 2, 3, 4)]
PLACED = [(1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2)]


class Model:
    def __init__(self) -> None:
        self.leaders: dict[tuple[int, int], BrokerId] = {}
        self.newest = [(0, 0)] * len(PLACED)
        self.held = [dict.fromkeys(map(BrokerId, replicas), 0) for replicas in PLACED]
        self.committed = [0] * len(PLACED)

    def look(self, change: ImageChange) -> None:
        """What any broker sees."""
        topic = change.new.topics.get(NAME)
        for state in () if topic is None else topic.partitions:
            assert state.isr
            if state.leader != NO_BROKER:
                assert state.leader in state.isr
            known = self.leaders.setdefault((state.index, state.leader_epoch), state.leader)
            assert known == state.leader, f"two leaders in epoch {state.leader_epoch}"
            epochs = (state.leader_epoch, state.partition_epoch)
            before = self.newest[state.index]
            if epochs[1] > before[1]:
                assert epochs[0] >= before[0]
                self.newest[state.index] = epochs
                self.elected(state)

    def elected(self, state: PartitionImage) -> None:
        if state.leader != NO_BROKER:
            held = self.held[state.index]
            assert held[state.leader] >= self.committed[state.index], "the leader lacks what was committed"
            for broker in held:  # followers cut off what the leader does not have
                held[broker] = min(held[broker], held[state.leader])

    def write(self, state: PartitionImage) -> None:
        """The leader appends, and all in sync fetch it."""
        held = self.held[state.index]
        end = held[state.leader] + 1
        for broker in state.isr:
            held[broker] = end
        self.committed[state.index] = end


class Brokers:
    def __init__(self, path: Path, model: Model, chance: Random) -> None:
        self.store = EmbeddedStore.open(path, DirectDisk(4))
        self.model = model
        self.chance = chance
        self.living: dict[BrokerId, tuple[EmbeddedStore, Cluster, asyncio.Task[None]]] = {}

    async def join(self, id: BrokerId) -> None:
        store = self.store.new_session()
        cluster = await Cluster.open(
            store, id, FixedClock(), random.Random(id), TopicDefaults(1, 1), no_bad_config
        )
        cluster.subscribe(self.model.look)
        await cluster.register_broker(BrokerImage(id, "h", 1))
        self.living[id] = store, cluster, asyncio.ensure_future(cluster.run())

    async def leave(self, id: BrokerId, *, orderly: bool) -> None:
        store, cluster, task = self.living.pop(id)
        if orderly:
            await cluster.depart(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()

    def controller(self) -> Cluster | None:
        for _, cluster, _ in self.living.values():
            if cluster.controller.epoch is not None:
                return cluster
        return None

    async def act(self) -> None:
        chance = self.chance
        kind = chance.random()
        gone = [id for id in IDS if id not in self.living]
        if kind < 0.15 and self.living:
            await self.leave(chance.choice(sorted(self.living)), orderly=chance.random() < 0.4)
        elif kind < 0.35 and gone:
            await self.join(chance.choice(gone))
        elif kind < 0.42 and self.living:
            id = chance.choice(sorted(self.living))
            await self.leave(id, orderly=False)
            await self.join(id)
        else:
            await self.replicate(chance.randrange(len(PLACED)))
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)

    async def replicate(self, index: int) -> None:
        """The leader of a partition writes, and tells who is in sync."""
        controller = self.controller()
        if controller is None:
            return
        state = controller.image.topics[NAME].partitions[index]
        newest = self.model.newest[index]
        is_sure = newest == (state.leader_epoch, state.partition_epoch)
        if state.leader not in self.living or not is_sure:
            return
        if controller.image.brokers.keys() != self.living.keys():
            return
        self.model.write(state)
        wanted = [id for id in state.replicas if id == state.leader or self.chance.random() < 0.7]
        held = self.model.held[index]
        for id in wanted:
            if id in self.living:
                held[id] = held[state.leader]
        try:
            await controller.controller.change_isr(
                NAME, index, wanted, state.leader_epoch, state.partition_epoch
            )
        except AnabranchError:
            return  # somebody is gone meanwhile


@pytest.mark.parametrize("seed", SEEDS)
async def test_who_leads_has_what_was_committed(tmp_path: Path, seed: int) -> None:
    model = Model()
    brokers = Brokers(tmp_path / "metadata", model, Random(seed))
    for id in IDS:
        await brokers.join(id)
    first = brokers.living[IDS[0]][1]
    await until(lambda: set(first.image.brokers) == set(IDS))
    await first.create_topic(NewTopic(NAME, assignments=list(enumerate(PLACED))))
    for _ in range(STEPS):
        await brokers.act()
    for id in IDS:
        if id not in brokers.living:
            await brokers.join(id)
    await until(
        lambda: (
            (controller := brokers.controller()) is not None
            and all(state.leader in brokers.living for state in controller.image.topics[NAME].partitions)
        ),
        f"a partition has no leader, seed {seed}",
    )
    for id in list(brokers.living):
        await brokers.leave(id, orderly=False)
    await brokers.store.close()
