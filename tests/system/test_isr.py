"""The ISR between nodes: who leaves when it cannot fetch, what clients are told meanwhile, and the way back.

Nodes are in one process; what is between them is cut and mended.  The lag that is allowed is short, so that
nobody waits for ten seconds.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.destinations import Address, Leader, TopicPartition
from anabranch.client.requests import DELETE_RECORDS, PRODUCE, Request
from anabranch.log.truncation import truncate_fully_and_start_at
from anabranch.meta.session import Session
from anabranch.partition.partition import Partition
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import batches, records
from tests.support.two_nodes import THREE, TwoNodes, two_nodes
from tests.support.waiting import until

ORDERS = TopicName.from_kafka("orders")
B1, B2, B3 = map(BrokerId, (1, 2, 3))
LAG = {
    "replica_fetch_max_bytes": "10000",
    "replica_lag_time_max_ms": "1500",
    "replica_lag_max_messages": "-1",
    "replica_socket_timeout_ms": "500",
}


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[TwoNodes]:
    async with two_nodes(tmp_path, THREE, **LAG) as nodes:
        yield nodes


def leader(nodes: TwoNodes, id: BrokerId = B1) -> Partition:
    return nodes.nodes[id].parts.host.partition(ORDERS, 0)


def isr(nodes: TwoNodes) -> tuple[BrokerId, ...]:
    """As all of them know it."""
    known = {node.parts.cluster.image.topics[ORDERS].partitions[0].isr for node in nodes.nodes.values()} | {
        leader(nodes).state.isr
    }
    return known.pop() if len(known) == 1 else ()


async def produce(nodes: TwoNodes, *values: str, acks: int = -1, timeout_ms: int = 20_000) -> int:
    """The error code of the answer to who asks once."""
    client = nodes.client("x")
    try:
        place = TopicPartition(ORDERS.kafka, 0)
        parts = [{"index": 0, "records": records(*values)}]
        values_of: dict[str, Any] = {
            "transactional_id": None,
            "acks": acks,
            "timeout": timeout_ms,
            "topic_data": [{"name": ORDERS.kafka, "partition_data": parts}],
        }
        request = Request(PRODUCE, values_of, codes=lambda answer: iter(()))
        answer = await client.send(Leader(place), request)
        return int(answer.responses[0].partition_responses[0].error_code)
    finally:
        client.close()


async def check_same(nodes: TwoNodes) -> None:
    await nodes.settled(ORDERS, 0)
    first, *others = [batches(one.log) for one in nodes.replicas(ORDERS, 0)]
    assert all(other == first for other in others)


async def test_a_follower_that_is_cut_off_leaves_and_comes_back(
    three: TwoNodes, caplog: pytest.LogCaptureFixture
) -> None:
    await three.create(ORDERS, 1)
    assert await produce(three, "a") == 0
    caplog.set_level("INFO")
    three.wire.cut("a", "c")
    assert await produce(three, "b") == 0, "once it has left"
    await until(lambda: isr(three) == (B1, B2))
    assert await produce(three, "c") == 0
    assert leader(three).high_watermark == 3
    assert "orders-0: ISR shrunk from [1, 2, 3] to [1, 2], leader epoch 0: broker 3 is 1 messages behind" in (
        caplog.text
    )
    counted = three.nodes[B1].parts.host.replication
    changes = three.nodes[B1].parts.isr_changes
    assert (counted.isr_shrinks, counted.isr_expands, changes.under_replicated) == (1, 0, 1)
    three.wire.mend("a", "c")
    await until(lambda: isr(three) == (B1, B2, B3))
    led, brokers = leader(three).led, three.nodes[B1].parts.cluster.image.brokers
    assert led is not None
    assert led.in_sync.followers[B3].epoch == brokers[B3].epoch
    assert (
        "orders-0: ISR grown from [1, 2] to [1, 2, 3], leader epoch 0: broker 3 has caught up" in caplog.text
    )
    assert (counted.isr_shrinks, counted.isr_expands, changes.under_replicated) == (1, 1, 0)
    await check_same(three)


async def test_too_few_are_in_sync(three: TwoNodes) -> None:
    await three.create(ORDERS, 1, min_insync_replicas="3")
    assert await produce(three, "a") == 0
    three.wire.cut("a", "b")
    late = await produce(three, "b", timeout_ms=3_000)
    assert late == ErrorCode.not_enough_replicas_after_append, "not before its time is over"
    await until(lambda: isr(three) == (B1, B3))
    assert await produce(three, "c") == ErrorCode.not_enough_replicas
    assert await produce(three, "d", acks=1) == 0
    assert (leader(three).high_watermark, leader(three).log_end) == (1, 3)
    assert three.nodes[B1].parts.isr_changes.under_min_isr == 1
    three.wire.mend("a", "b")
    await until(lambda: isr(three) == (B1, B2, B3))
    assert await produce(three, "e") == 0
    await check_same(three)


async def test_who_does_not_reach_the_controller_shrinks_nothing(three: TwoNodes) -> None:
    """Broker 2 leads, and is cut off from both others, of which one is the controller."""
    await three.create(ORDERS, 2)
    role = three.nodes[B2].parts.host.partition(ORDERS, 1)
    for other in "ac":
        three.wire.cut("b", other)
    appended = role.append(memoryview(records("x")), -1)
    assert appended.acknowledged is not None
    await until(lambda: role.led is not None and role.led.in_sync.asked_for == {B2})
    await asyncio.sleep(1.0)  # there is nothing to wait for: nothing happens
    assert role.state.isr == (B2, B3, B1)
    assert not appended.acknowledged.done()
    assert role.high_watermark == 0
    for other in "ac":
        three.wire.mend("b", other)
    await asyncio.wait_for(appended.acknowledged, 60)
    await until(lambda: set(role.state.isr) == {B1, B2, B3})


async def test_a_slow_link_is_no_reason_to_leave(three: TwoNodes) -> None:
    await three.create(ORDERS, 1)
    three.wire.delay("a", "b", 0.03)
    for number in range(30):
        assert await produce(three, f"{number}") == 0
    assert isr(three) == (B1, B2, B3)
    assert three.nodes[B1].parts.host.replication.isr_shrinks == 0
    await check_same(three)


async def test_isr_changes_of_a_leader_that_is_not_the_controller(three: TwoNodes) -> None:
    """They go by AlterPartition."""
    await three.create(ORDERS, 2)
    role = three.nodes[B2].parts.host.partition(ORDERS, 1)
    assert three.nodes[B1].parts.cluster.controller.epoch is not None
    three.wire.cut("b", "c")
    role.append(memoryview(records("x")), 1)
    await until(lambda: set(role.state.isr) == {B1, B2})
    three.wire.mend("b", "c")
    await until(lambda: set(role.state.isr) == {B1, B2, B3})


async def test_a_leader_in_doubt_takes_and_acknowledges_nothing(three: TwoNodes) -> None:
    await three.create(ORDERS, 1)
    role = leader(three)
    certain_until = [float("inf")]
    certainty = three.nodes[B1].parts.host.replication.certainty
    certainty.depend_on(Session(1, lambda id: certain_until[0]))
    waits = role.append(memoryview(records("a")), -1).acknowledged
    assert waits is not None
    certain_until[0] = 0.0
    sent = asyncio.create_task(produce(three, "b", acks=1))
    await until(lambda: role.high_watermark == 1)  # readers go on
    assert not waits.done()
    assert await produce(three, "c", acks=-1) == ErrorCode.not_leader_or_follower
    assert await sent == ErrorCode.not_leader_or_follower
    certain_until[0] = float("inf")
    await asyncio.wait_for(waits, 60)
    assert await produce(three, "d") == 0
    await check_same(three)
    assert role.log_end == 2


async def test_records_are_deleted_from_all_replicas_before_it_is_said(three: TwoNodes) -> None:
    await three.create(ORDERS, 1)
    assert await produce(three, "a", "b") == 0
    host = three.nodes[B1].parts.host
    part = {"partition_index": 0, "offset": 1}
    asker = three.client("x")
    try:

        async def delete(offset: int, timeout_ms: int) -> tuple[int, int]:
            topics = [{"name": ORDERS.kafka, "partitions": [part | {"offset": offset}]}]
            request = Request(DELETE_RECORDS, {"topics": topics, "timeout": timeout_ms})
            answer = (await asker.ask(Address("a", 9092), request, 60)).topics[0].partitions[0]
            return answer.error_code, answer.low_watermark

        assert await delete(1, 30_000) == (0, 1)
        assert [one.log.log_start for one in three.replicas(ORDERS, 0)] == [1, 1, 1]
        three.wire.cut("a", "c")
        assert await delete(2, 100) == (ErrorCode.request_timed_out, 1)
        assert host.partition(ORDERS, 0).log_start == 2
        three.wire.mend("a", "c")
        await until(lambda: [one.log.log_start for one in three.replicas(ORDERS, 0)] == [2, 2, 2])
        assert await delete(2, 30_000) == (0, 2)
    finally:
        asker.close()


async def test_a_follower_whose_log_is_gone_catches_up(three: TwoNodes) -> None:
    """From where its leader's log starts, which is not at 0 any more."""
    await three.create(ORDERS, 1)
    assert await produce(three, "a", "b", "c") == 0
    await check_same(three)
    leader(three).trim(2)
    three.wire.cut("a", "c")
    assert await produce(three, "x", acks=1) == 0
    await until(lambda: isr(three) == (B1, B2))
    replica = three.replicas(ORDERS, 0)[2]
    parts = three.nodes[B3].parts
    await parts.upkeep.truncated(replica, truncate_fully_and_start_at(parts.disk, replica.log, 0))
    replica.truncated()
    three.wire.mend("a", "c")
    assert await produce(three, "d") == 0
    await until(lambda: isr(three) == (B1, B2, B3))
    await three.settled(ORDERS, 0)
    assert replica.log.log_start == 2
    assert batches(leader(three).log)[-len(batches(replica.log)) :] == batches(replica.log)


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_who_catches_up_is_throttled_and_who_is_in_sync_is_not(three: TwoNodes, side: str) -> None:
    throttled = {f"{side}_replication_throttled_replicas": "*"}
    await three.create(ORDERS, 1, **throttled)
    assert await produce(three, "a") == 0
    three.wire.cut("a", "c")
    for _ in range(300):
        leader(three).append(memoryview(records("x" * 1000)), 1)
    await until(lambda: isr(three) == (B1, B2))
    cluster = three.nodes[B1].parts.cluster
    rate = f"{side}.replication.throttled.rate"
    await cluster.replace_broker_config(None, {rate: "0"})
    await until(
        lambda: all(rate in node.parts.cluster.image.default_broker_config for node in three.nodes.values())
    )
    three.wire.mend("a", "c")
    assert await produce(three, "b") == 0
    await asyncio.sleep(1.0)  # nothing happens, so there is nothing to wait for
    assert three.replicas(ORDERS, 0)[2].log.log_end < 100
    assert isr(three) == (B1, B2)
    await cluster.replace_broker_config(None, {rate: "10000000"})
    await until(lambda: isr(three) == (B1, B2, B3))
    await check_same(three)
