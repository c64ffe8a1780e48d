"""Durable subscriptions on real coordinators and logs, without a cluster around them.

kept = Kept(folder)
kept.topic("orders", 100)                # a log that ends at offset 100
cursor = await kept.create("s", at=3)
kept.kill(); kept.start()                # as after kill -9: nothing is flushed or closed cleanly
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

from anabranch.base.disk import DirectDisk
from anabranch.base.ids import TopicName
from anabranch.cluster.positions import StoredPositions, SubscribedGroups
from anabranch.cluster.subscription_calls import KeptSubscriptions, SubscriptionCalls
from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.config import GroupConfig
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC
from anabranch.subscriptions.durable import CursorName, DurableCursor, SubscriptionDocument
from anabranch.subscriptions.positions import Positions
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.coordinators import Coordinators, HostTopics, add_topic
from tests.support.hosts import a_host
from tests.support.logs import SetClock, records, release
from tests.support.offsets import in_columns

PARTITIONS = 3


class Kept:
    def __init__(self, data: Path, config: GroupConfig | None = None) -> None:
        self.data = data
        self.clock = SetClock()
        self.config = config or GroupConfig()
        self._ids: dict[str, UUID] = {}
        self.ends: dict[str, int] = {}
        """Where logs are said to end that do not end there."""
        self.leader_epoch = 0
        """Of all partitions, as the keeper of the shards knows it."""
        self.start()

    def _add(self, name: str) -> None:
        self._ids.setdefault(name, uuid4())
        policy = "compact" if name.startswith("__") else "delete"
        add_topic(self.host, name, self._ids[name], PARTITIONS, cleanup_policy=policy)

    async def _make(self, name: str) -> None:
        await asyncio.sleep(0)
        self._add(name)

    # --- as the node lives

    def start(self) -> None:
        self.disk = DirectDisk()
        self.host = host = a_host(self.data, self.clock, self.disk)
        for name in self._ids:
            self._add(name)
        host.recover()
        made = Coordinators(host, self.clock)
        self.states = made.subscription_states(lambda: self._make(SUBSCRIPTION_TOPIC))
        seen = SubscribedGroups(self.states, lambda topic, partition: self.leader_epoch)
        self.groups = made.groups(lambda: self._make(OFFSETS_TOPIC), lambda: self.config, seen)
        self.subscriptions = KeptSubscriptions(
            self.groups, self.states, lambda topic, partition: self.leader_epoch
        )
        self.stored = StoredPositions(
            SubscriptionCalls(self.subscriptions, None, Random(1)), HostTopics(host)
        )
        self.positions = Positions(self.stored, self.stored, self.bounds)
        seen.positions = self.positions

    def kill(self) -> None:
        self.groups.close()
        self.states.close()
        for replica in self.host.open_replicas():
            replica.close()
        release(self.disk)

    def bounds(self, topic: str, index: int) -> tuple[int, int]:
        partition = self.host.partition(topic, index)
        return partition.log_start, self.ends.get(topic, partition.log_end)

    # --- what tests do

    def topic(self, name: str, end: int) -> None:
        """A topic whose partition 0 ends at `end`."""
        if name not in self._ids:
            self._add(name)
        partition = self.host.partition(name, 0)
        partition.append(memoryview(records(*["x"] * (end - partition.log_end))), -1)

    def delete_topic(self, name: str) -> None:
        topic_id = self._ids.pop(name)
        self.host.remove_topic(TopicName.from_kafka(name))
        self.groups.topics_deleted({name: topic_id})
        self.states.topics_deleted([name])
        self.positions.topic_deleted(name)

    async def create(self, subscription: str, *, at: int, topic: str = "orders") -> DurableCursor:
        document = SubscriptionDocument(self.clock.now_ms(), properties={"made": "here"})
        return await self.positions.create(CursorName(subscription, topic, 0), document, at)

    async def find(self, subscription: str, topic: str = "orders") -> DurableCursor | None:
        return (await self.positions.of_topic(topic, 0)).get(subscription)

    async def kafka_commits(self, group_id: str, offset: int, topic: str = "orders") -> ErrorCode:
        request = Commit(
            group_id, "", -1, None, [TopicCommit(topic, self._ids[topic], in_columns((0, offset)))], 8
        )
        answer = await self.groups.submit(
            group_id, lambda shard, token, now_ms: shard.offsets.commit(request, token, now_ms)
        )
        return ErrorCode(answer["topics"][0]["partitions"][0]["error_code"])

    async def committed(self, group_id: str, topic: str = "orders") -> int | None:
        return await self.stored.position(CursorName(group_id, topic, 0))


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until it does."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never did")
