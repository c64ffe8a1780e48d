"""Random changes of a cluster, with restarts, against dictionaries."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.errors import (
    Exists,
    InvalidPartitions,
    InvalidTopicName,
    UnknownTopic,
    UnknownTopicId,
)
from anabranch.base.ids import BrokerId, TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import NewTopic, TopicDefaults
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import NO_BROKER, BrokerImage, ImageChange
from tests.support.tenancy import make_namespace

SEEDS = range(200 if os.environ.get("ANABRANCH_SOAK") else 12)
STEPS = 80
NAMES = ["plain", "a.b", "a_b", "a.b.c", "a_b.c", "persistent://t/n/a.b", "persistent://t/n/plain"]


class Twin:
    """A cluster, and what it should hold: {name: (partitions, config)}, {name: {index: (leader, epoch)}}."""

    def __init__(self, seed: int, path: Path) -> None:
        self._chance = random.Random(seed)
        self._path = path
        self.topics: dict[TopicName, tuple[int, dict[str, str]]] = {}
        self.ids: dict[TopicName, Any] = {}
        self.elected: dict[TopicName, dict[int, tuple[BrokerId, int]]] = {}
        self.announced: dict[Any, TopicName] = {}
        self.taken: list[int] = []

    async def open(self) -> None:
        self.store = EmbeddedStore.open(self._path, DirectDisk(4))
        self.cluster = await Cluster.open(
            self.store, BrokerId(1), SystemClock(), self._chance, TopicDefaults(2, 1), lambda config: None
        )
        await self.cluster.register_broker(BrokerImage(BrokerId(1), "h", 1))
        await make_namespace(self.cluster, "t/n")
        self.cluster.subscribe(self._image_changed)

    def _image_changed(self, change: ImageChange) -> None:
        for before, after in change.topics:
            if after is None:
                assert before is not None
                del self.announced[before.id]
            else:
                self.announced[after.id] = after.name

    def check(self) -> None:
        image = self.cluster.image
        shown = {name: (len(t.partitions), dict(t.config)) for name, t in image.topics.items()}
        assert shown == self.topics
        assert {name: topic.id for name, topic in image.topics.items()} == self.ids
        for name, topic in image.topics.items():
            elected = self.elected.get(name, {})
            assert [(p.leader, p.leader_epoch) for p in topic.partitions] == [
                elected.get(index, (BrokerId(1), 0)) for index in range(len(topic.partitions))
            ]
        assert {name.kafka for name in self.topics} == set(image.topics_by_kafka_name)
        assert self.announced == {id: topic.name for id, topic in image.topics_by_id.items()}

    async def step(self) -> None:
        action = self._chance.choice(
            [self.create, self.create, self.delete, self.grow, self.configure, self.elect, self.ids_block]
        )
        await action(TopicName.from_kafka(self._chance.choice(NAMES)))

    async def create(self, name: TopicName) -> None:
        count = self._chance.randint(1, 5)
        new = NewTopic(name, count, 1, config={"k": str(count)})
        collides = any(
            (name.tenant, name.local.replace(".", "_")) == (other.tenant, other.local.replace(".", "_"))
            for other in self.topics
        )
        if name in self.topics or collides:
            with pytest.raises(Exists if name in self.topics else InvalidTopicName):
                await self.cluster.create_topic(new)
            return
        made = await self.cluster.create_topic(new)
        assert made.id not in self.ids.values()
        self.topics[name], self.ids[name] = (count, {"k": str(count)}), made.id

    async def delete(self, name: TopicName) -> None:
        by_id = self._chance.random() < 0.5 and name in self.topics
        target = self.ids[name] if by_id else name
        if name not in self.topics:
            with pytest.raises(UnknownTopic):
                await self.cluster.delete_topic(target)
            return
        await self.cluster.delete_topic(target)
        del self.topics[name], self.ids[name]
        self.elected.pop(name, None)
        with pytest.raises(UnknownTopicId if by_id else UnknownTopic):
            await self.cluster.delete_topic(target)

    async def grow(self, name: TopicName) -> None:
        total = self._chance.randint(1, 8)
        count, config = self.topics.get(name, (0, {}))
        if total <= count or not count:
            with pytest.raises(InvalidPartitions if count else UnknownTopic):
                await self.cluster.add_partitions(name, total)
            return
        await self.cluster.add_partitions(name, total)
        self.topics[name] = (total, config)

    async def configure(self, name: TopicName) -> None:
        overrides = {"x": str(self._chance.randint(0, 9))} if self._chance.random() < 0.7 else {}
        if name not in self.topics:
            with pytest.raises(UnknownTopic):
                await self.cluster.replace_topic_config(name, overrides)
            return
        await self.cluster.replace_topic_config(name, overrides)
        self.topics[name] = (self.topics[name][0], overrides)

    async def elect(self, name: TopicName) -> None:
        index, leader = self._chance.randrange(8), self._chance.choice([BrokerId(1), NO_BROKER])
        if name not in self.topics or index >= self.topics[name][0]:
            with pytest.raises(UnknownTopic):
                await self.cluster.controller.elect_leader(name, index, leader, "a test")
            return
        elected = self.elected.setdefault(name, {})
        epoch = elected.get(index, (BrokerId(1), 0))[1] + 1
        state = await self.cluster.controller.elect_leader(name, index, leader, "a test")
        assert (state.leader, state.leader_epoch) == (leader, epoch)
        elected[index] = (leader, epoch)

    async def ids_block(self, name: TopicName) -> None:
        self.taken.extend(await self.cluster.allocate_producer_ids())


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_cluster_is_what_was_done_to_it(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    twin = Twin(seed, tmp_path / "metadata")
    await twin.open()
    for _ in range(STEPS):
        await twin.step()
        twin.check()
        if chance.random() < 0.1:
            await twin.store.close()
            await twin.open()
            twin.check()
    assert len(set(twin.taken)) == len(twin.taken)
    await twin.store.close()
