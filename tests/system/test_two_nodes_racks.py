"""A consumer is sent to the follower in its rack, and reads there what is safe, as soon as it is."""

import asyncio
from pathlib import Path
from typing import Any

from anabranch.base.ids import TopicName
from anabranch.client.aio import AsyncClient
from anabranch.client.destinations import Address
from anabranch.client.requests import FETCH, PRODUCE, Request
from anabranch.partition.config import RACK_AWARE
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import records
from tests.support.two_nodes import two_nodes

ORDERS = TopicName.from_kafka("orders")
LEADER, FOLLOWER = Address("a", 9092), Address("b", 9092)
RACKS = {"a": {"broker_rack": "r1"}, "b": {"broker_rack": "r2"}}


async def put(client: AsyncClient, *values: str) -> None:
    part = {"index": 0, "records": bytes(records(*values))}
    topics = [{"name": "orders", "partition_data": [part]}]
    asked = {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": topics}
    answer = await client.ask(LEADER, Request(PRODUCE, asked), 20)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.none


async def read(client: AsyncClient, at: Address, offset: int, rack: str = "r2", wait_ms: int = 0) -> Any:
    part = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    asked = {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "orders", "partitions": [part]}],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
    answer = await client.ask(at, Request(FETCH, asked), 40)
    return answer.responses[0].partitions[0]


async def test_a_consumer_reads_from_the_follower_in_its_rack(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, each=RACKS, replica_selector_class=RACK_AWARE) as nodes:
        await nodes.create(ORDERS, 1)
        writer, reader = nodes.client("x"), nodes.client("y")
        await put(writer, "one", "two")
        await nodes.settled(ORDERS, 0)

        assert (await read(reader, LEADER, 0, "r1")).preferred_read_replica == -1
        sent = await read(reader, LEADER, 0)
        assert (sent.preferred_read_replica, bytes(sent.records or b"")) == (2, b"")
        stored = bytes((await read(reader, LEADER, 0, "r1")).records)
        found = await read(reader, FOLLOWER, 0)
        assert (found.error_code, found.high_watermark) == (ErrorCode.none, 2)
        assert bytes(found.records) == stored

        waiting = asyncio.create_task(read(reader, FOLLOWER, 2, wait_ms=30_000))
        await put(writer, "three")
        assert (await waiting).high_watermark == 3
        writer.close()
        reader.close()
