"""Share groups and what is kept of them: beginning, reset, end, and what is cut off in between."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch.groups.share_group import ShareGroup
from anabranch.groups.share_records import TopicShare
from anabranch.groups.share_state import DeliveryState, ShareKey, ShareState, StateBatch
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker

HEARTBEAT, DESCRIBE, DESCRIBE_OFFSETS, ALTER, DELETE, DELETE_GROUPS = 76, 77, 90, 91, 92, 42
GROUP = "team"
DONE = DeliveryState.ACKNOWLEDGED


class Member:
    def __init__(self, broker: WholeBroker, member_id: str = "m", topic: str = "orders") -> None:
        self.broker, self.member_id, self.topic = broker, member_id, topic
        self.epoch = 0
        self.partitions: list[int] = []

    async def beat(self, epoch: int | None = None) -> Any:
        answer = await self.broker.ask(
            HEARTBEAT,
            1,
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=[self.topic] if self.epoch == 0 else None,
        )
        assert answer.error_code == 0, answer
        self.epoch = max(0, answer.member_epoch)
        if answer.assignment is not None:
            self.partitions = sorted(
                p for topic in answer.assignment.topic_partitions for p in topic.partitions
            )
        return answer

    async def join(self, partitions: list[int]) -> None:
        """Beat until these are the member's; a thread writes the store, so turns of the loop say nothing."""
        async with asyncio.timeout(30):
            while self.partitions != partitions or group_of(self.broker).topics.initialising:
                await self.beat()
                self.broker.clock.advance(1000)
                await asyncio.sleep(0.001)

    async def leave(self) -> None:
        await self.beat(epoch=-1)


@pytest.fixture
async def orders(broker: WholeBroker) -> Any:
    return (await broker.create("orders", 2)).id


def group_of(broker: WholeBroker) -> ShareGroup:
    group = broker.services.groups.known(GROUP).groups[GROUP]
    assert isinstance(group, ShareGroup)
    return group


async def set_start(broker: WholeBroker, **offsets: int) -> Any:
    parts = [{"partition_index": int(index[1:]), "start_offset": at} for index, at in offsets.items()]
    return await broker.ask(ALTER, 0, group_id=GROUP, topics=[{"topic_name": "orders", "partitions": parts}])


async def starts(broker: WholeBroker) -> dict[int, int]:
    asked = {"group_id": GROUP, "topics": None}
    (found,) = (await broker.ask(DESCRIBE_OFFSETS, 1, groups=[asked])).groups
    return {part.partition_index: part.start_offset for topic in found.topics for part in topic.partitions}


async def test_partitions_begin_and_are_assigned(broker: WholeBroker, orders: Any) -> None:
    member = Member(broker)
    await member.join([0, 1])
    state = await broker.services.share_groups.states.read(ShareKey(GROUP, orders, 1))
    assert state == ShareState(group_of(broker).epoch - 1, -1, ())
    assert await starts(broker) == {0: -1, 1: -1}
    (described,) = (await broker.ask(DESCRIBE, 1, group_ids=[GROUP])).groups
    assert (described.group_state, len(described.members), described.error_code) == ("Stable", 1, 0)


async def test_what_begins_is_known_after_a_restart(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        topic = await broker.create("orders", 2)
        await broker.services.groups.ensure_topic()
        shares = {topic.id: TopicShare("orders", frozenset({0, 1}))}
        await broker.services.groups.submit(  # and the node dies
            GROUP, lambda shard, token, now_ms: shard.share.begin(GROUP, shares, token, now_ms)
        )
    async with open_broker(tmp_path) as broker:
        member = Member(broker)
        await member.join([0, 1])
        assert not group_of(broker).topics.initialising


async def test_a_reset_that_is_cut_off_leaves_what_was(broker: WholeBroker, orders: Any) -> None:
    states = broker.services.share_groups.states
    await set_start(broker, p0=3, p1=4)
    key = ShareKey(GROUP, orders, 0)
    epoch = (await states.read(key)).state_epoch
    await states.write(key, epoch, 5, [StateBatch(7, 8, DONE, 1)], 2)
    shares = {orders: TopicShare("orders", frozenset({0}))}
    await broker.services.groups.submit(
        GROUP, lambda shard, token, now_ms: shard.share.begin(GROUP, shares, token, now_ms)
    )
    member = Member(broker)
    await member.join([0, 1])
    assert not group_of(broker).topics.initialising
    assert await states.read(key) == ShareState(epoch, 5, (StateBatch(7, 8, DONE, 1),))


async def test_a_topic_that_is_named_twice_is_reset_wherever_that_is_said(
    broker: WholeBroker, orders: Any
) -> None:
    parts = [[{"partition_index": 0, "start_offset": 3}], [{"partition_index": 1, "start_offset": 4}]]
    topics = [{"topic_name": "orders", "partitions": each} for each in parts]
    answer = await broker.ask(ALTER, 0, group_id=GROUP, topics=topics)
    assert [topic.partitions[0].error_code for topic in answer.responses] == [0, 0]
    assert await starts(broker) == {0: 3, 1: 4}


async def test_who_joins_during_a_reset_reads_from_there(broker: WholeBroker, orders: Any) -> None:
    await set_start(broker, p0=1)
    member = Member(broker)
    answer, _ = await asyncio.gather(set_start(broker, p0=7, p1=8), member.beat())
    assert answer.error_code == 0
    await member.join([0, 1])
    assert await starts(broker) == {0: 7, 1: 8}


async def test_who_joins_during_a_deletion_begins_anew(broker: WholeBroker, orders: Any) -> None:
    await set_start(broker, p0=1, p1=1)
    member = Member(broker)
    deletion = broker.ask(DELETE, 0, group_id=GROUP, topics=[{"topic_name": "orders"}])
    answer, _ = await asyncio.gather(deletion, member.beat())
    assert answer.error_code == 0
    await member.join([0, 1])
    assert await starts(broker) == {0: -1, 1: -1}
    assert group_of(broker).topics.deleting == {}
    for index in (0, 1):
        assert await broker.services.share_groups.state_of(ShareKey(GROUP, orders, index)) is not None


async def test_a_deleted_group_leaves_nothing(broker: WholeBroker, orders: Any) -> None:
    member = Member(broker)
    await member.join([0, 1])
    assert (await broker.ask(DELETE_GROUPS, 2, groups_names=[GROUP])).results[0].error_code == 68
    await member.leave()
    await set_start(broker, p0=6)
    assert (await broker.ask(DELETE_GROUPS, 2, groups_names=[GROUP])).results[0].error_code == 0
    assert await broker.services.share_groups.state_of(ShareKey(GROUP, orders, 0)) is None
    assert GROUP not in broker.services.groups.known(GROUP).groups
    assert await starts(broker) == {}


async def test_a_deleted_topic_is_forgotten(broker: WholeBroker, orders: Any) -> None:
    await broker.create("other")
    member = Member(broker)
    await member.join([0, 1])
    await broker.services.cluster.delete_topic(orders)
    async with asyncio.timeout(30):
        while group_of(broker).topics != ({}, {}, {}):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert await broker.services.share_groups.state_of(ShareKey(GROUP, orders, 0)) is None
    await member.join([])


async def test_lag_is_what_is_not_done_with(broker: WholeBroker, orders: Any) -> None:
    broker.put("orders", *"abcdefghij")
    await set_start(broker, p0=2)
    states = broker.services.share_groups.states
    key = ShareKey(GROUP, orders, 0)
    epoch = (await states.read(key)).state_epoch
    await states.write(key, epoch, 3, [StateBatch(5, 8, DONE, 1)], 4)
    asked = {"group_id": GROUP, "topics": [{"topic_name": "orders", "partitions": [0, 1, 9]}]}
    (found,) = (await broker.ask(DESCRIBE_OFFSETS, 1, groups=[asked])).groups
    parts = [(part.partition_index, part.start_offset, part.lag) for part in found.topics[0].partitions]
    assert parts == [(0, 3, 3), (1, -1, -1), (9, -1, -1)]
    broker.partition("orders").trim(10)
    (found,) = (await broker.ask(DESCRIBE_OFFSETS, 1, groups=[asked])).groups
    assert found.topics[0].partitions[0].lag == 0


async def test_an_offset_that_is_none_is_refused(broker: WholeBroker, orders: Any) -> None:
    answer = await set_start(broker, p0=-1, p1=2)
    assert [(part.partition_index, part.error_code) for part in answer.responses[0].partitions] == [
        (0, 42),
        (1, 0),
    ]
    assert await starts(broker) == {1: 2}
