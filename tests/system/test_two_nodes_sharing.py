"""Share groups over two nodes: group, states and records each led by another than the next, and moved.

The group is on the first node, what is kept of its share partitions on the second; of the topic's partitions
each node leads one.  So a leader has its state elsewhere, and the group all of them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.aio import AsyncClient
from anabranch.client.destinations import ANY, GROUPS, Coordinator, Leader, TopicPartition
from anabranch.client.requests import (
    ALTER_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    FIND_COORDINATOR,
    Request,
)
from anabranch.groups.coordinator import OFFSETS_TOPIC, partition_for
from anabranch.groups.share_state import ShareKey
from anabranch.groups.share_states import SHARE_STATE_TOPIC, share_key_text
from tests.support.logs import records
from tests.support.two_nodes import BOTH, TwoNodes, two_nodes
from tests.support.waiting import until

WORK = TopicName.from_kafka("work")
GROUP = "sharers"
FIRST, SECOND = BOTH
GROUPS_TOPIC, STATES_TOPIC = TopicName.from_kafka(OFFSETS_TOPIC), TopicName.from_kafka(SHARE_STATE_TOPIC)
SHARE_FETCH, SHARE_ACKNOWLEDGE, SHARE_HEARTBEAT, DELETE_OFFSETS = 78, 79, 76, 92
ACCEPT, RELEASE = 1, 2
SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "2",
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_state_topic_replication_factor": "2",
}


class Member:
    """A share consumer that reads both partitions."""

    def __init__(self, client: AsyncClient, topic_id: Any, name: str) -> None:
        self.client = client
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0
        self.sessions = {0: 0, 1: 0}

    async def join(self) -> None:
        """Returns when it is assigned both."""
        while not await self._beat():
            pass

    async def _beat(self) -> bool:
        values = {
            "group_id": GROUP,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "rack_id": None,
            "subscribed_topic_names": ["work"],
        }
        answer = await self._ask(Coordinator(GROUPS, GROUP), SHARE_HEARTBEAT, values)
        self.epoch = answer.member_epoch
        topics = answer.assignment.topic_partitions if answer.assignment is not None else []
        return any(len(topic.partitions) == 2 for topic in topics)

    async def leave(self) -> None:
        for index in self.sessions:
            await self._fetch(index, epoch=-1)
            self.sessions[index] = 0
        values = {
            "group_id": GROUP,
            "member_id": self.name,
            "member_epoch": -1,
            "rack_id": None,
            "subscribed_topic_names": None,
        }
        await self._ask(Coordinator(GROUPS, GROUP), SHARE_HEARTBEAT, values)
        self.epoch = 0

    async def take(self, index: int) -> list[tuple[int, int, int]]:
        """What is acquired of a partition: first and last offset, and the deliveries so far."""
        answer = await self._fetch(index, epoch=self.sessions[index])
        self.sessions[index] += 1
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for topic in answer.responses
            for part in topic.partitions
            for one in part.acquired_records
        ]

    async def _fetch(self, index: int, epoch: int) -> Any:
        part = {"partition_index": index, "acknowledgement_batches": []}
        topics = [{"topic_id": self.topic_id, "partitions": [part]}]
        values = {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": epoch,
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": topics if epoch == 0 else [],
            "forgotten_topics_data": [],
            "share_acquire_mode": 0,
            "is_renew_ack": False,
        }
        return await self._ask(Leader(TopicPartition("work", index)), SHARE_FETCH, values)

    async def acknowledge(self, index: int, first: int, last: int, kind: int = ACCEPT) -> None:
        batch = {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
        part = {"partition_index": index, "acknowledgement_batches": [batch]}
        values = {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": self.sessions[index],
            "topics": [{"topic_id": self.topic_id, "partitions": [part]}],
            "is_renew_ack": False,
        }
        await self._ask(Leader(TopicPartition("work", index)), SHARE_ACKNOWLEDGE, values)
        self.sessions[index] += 1

    async def _ask(self, to: Any, api: int, values: dict[str, Any]) -> Any:
        request = Request(api, values)
        answer = await self.client.send(to, request, 60)
        assert list(request.codes(answer)) == []
        return answer


class Sharing:
    def __init__(self, nodes: TwoNodes, client: AsyncClient, topic_id: Any) -> None:
        self.nodes = nodes
        self.client = client
        self.topic_id = topic_id

    def shard(self, index: int) -> int:
        return partition_for(share_key_text(ShareKey(GROUP, self.topic_id, index)), 2)

    async def put(self, name: TopicName, index: int, leader: BrokerId) -> None:
        if self.nodes.state(name, index).leader != leader:
            await self.nodes.elect(name, index, leader)
        await until(
            lambda: all(
                node.parts.cluster.image.topics[name].partitions[index].leader == leader
                for node in self.nodes.nodes.values()
            )
        )

    def write(self, index: int, *values: str) -> None:
        leader = self.nodes.state(WORK, index).leader
        partition = self.nodes.nodes[leader].parts.host.partition("work", index)
        partition.append(memoryview(records(*values)), 1)

    async def offsets(self) -> dict[int, tuple[int, int]]:
        """By partition, where the group starts and how much it has before it."""
        parts = [{"topic_name": "work", "partitions": [0, 1]}]
        values = {"groups": [{"group_id": GROUP, "topics": parts}]}
        request = Request(DESCRIBE_SHARE_GROUP_OFFSETS, values)
        answer = await self.client.send(Coordinator(GROUPS, GROUP), request, 60)
        assert list(request.codes(answer)) == []
        (topic,) = answer.groups[0].topics
        return {one.partition_index: (one.start_offset, one.lag) for one in topic.partitions}

    async def alter(self, offset: int) -> None:
        parts = [{"partition_index": index, "start_offset": offset} for index in (0, 1)]
        values = {"group_id": GROUP, "topics": [{"topic_name": "work", "partitions": parts}]}
        request = Request(ALTER_SHARE_GROUP_OFFSETS, values)
        answer = await self.client.send(Coordinator(GROUPS, GROUP), request, 60)
        assert list(request.codes(answer)) == []


@asynccontextmanager
async def sharing(folder: Path) -> AsyncIterator[Sharing]:
    async with two_nodes(folder, **SETTINGS) as nodes:
        client = nodes.client("c")
        try:
            await nodes.create(WORK, 2)
            topic_id = nodes.nodes[FIRST].parts.cluster.image.topics[WORK].id
            here = Sharing(nodes, client, topic_id)
            keys = [share_key_text(ShareKey(GROUP, topic_id, 0))]
            for kind, key in ((0, GROUP), (2, keys[0])):
                values = {"key": key, "key_type": kind, "coordinator_keys": [key]}
                await client.send(ANY, Request(FIND_COORDINATOR, values), 60)
            await until(
                lambda: all(
                    {GROUPS_TOPIC, STATES_TOPIC} <= set(node.parts.cluster.image.topics)
                    for node in nodes.nodes.values()
                )
            )
            await here.put(GROUPS_TOPIC, partition_for(GROUP, 2), FIRST)
            for index in (0, 1):
                await here.put(STATES_TOPIC, index, SECOND)
            await here.put(WORK, 0, FIRST)
            await here.put(WORK, 1, SECOND)
            yield here
        finally:
            client.close()


async def test_states_are_kept_elsewhere(tmp_path: Path) -> None:
    async with sharing(tmp_path) as here:
        await here.alter(0)
        member = Member(here.client, here.topic_id, "a" * 22)
        await member.join()
        for index in (0, 1):
            here.write(index, *"abcdef")
            assert await member.take(index) == [(0, 5, 1)]
            await member.acknowledge(index, 0, 1)
            await member.acknowledge(index, 2, 3, RELEASE)
        assert await here.offsets() == {0: (2, 4), 1: (2, 4)}
        for index in (0, 1):
            assert await member.take(index) == [(2, 3, 2)]
            await member.acknowledge(index, 2, 5)
        assert await here.offsets() == {0: (6, 0), 1: (6, 0)}


async def test_nothing_accepted_comes_again_when_leaders_and_keepers_move(tmp_path: Path) -> None:
    async with sharing(tmp_path) as here:
        await here.alter(0)
        member = Member(here.client, here.topic_id, "a" * 22)
        await member.join()
        done = {0: 0, 1: 0}
        for number in range(6):
            for index in (0, 1):
                here.write(index, *"abc")
                await here.nodes.settled(WORK, index)
                taken = await member.take(index)
                assert [(first, last) for first, last, _ in taken] == [(done[index], done[index] + 2)]
                moved = BOTH[number % 2]
                await here.put(STATES_TOPIC, here.shard(index), moved)
                await member.acknowledge(index, done[index], done[index] + 2)
                done[index] += 3
                member.sessions[index] = 0  # whoever leads next has not heard of it
                await here.put(WORK, index, BOTH[(number // 2 + index) % 2])
        assert await here.offsets() == {index: (end, 0) for index, end in done.items()}


async def test_a_reset_reaches_leaders_that_are_not_told(tmp_path: Path) -> None:
    async with sharing(tmp_path) as here:
        await here.alter(0)
        member = Member(here.client, here.topic_id, "a" * 22)
        await member.join()
        for index in (0, 1):
            here.write(index, *"abcdef")
            assert await member.take(index) == [(0, 5, 1)]
            await member.acknowledge(index, 0, 5)
        await member.leave()
        await here.alter(3)
        assert await here.offsets() == {0: (3, 3), 1: (3, 3)}
        again = Member(here.client, here.topic_id, "b" * 22)
        await again.join()
        for index in (0, 1):
            assert await again.take(index) == [(3, 5, 1)]
            await again.acknowledge(index, 3, 5)
