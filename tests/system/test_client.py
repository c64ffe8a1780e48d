"""The client, both shells, on a real broker: records there and back, a broker that is killed meanwhile."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from anabranch.base.clock import SystemClock
from anabranch.base.errors import UnknownTopic
from anabranch.base.network import TcpNetwork
from anabranch.client.aio import AsyncClient
from anabranch.client.blocking import Client
from anabranch.client.destinations import ANY, CONTROLLER, GROUPS, Coordinator, Leader, TopicPartition
from anabranch.client.requests import CREATE_TOPICS, FETCH, LIST_OFFSETS, OFFSET_FETCH, PRODUCE, Request
from anabranch.client.sending import metadata
from anabranch.client.settings import Settings
from anabranch.records.batch import read_header
from anabranch.records.builder import build_batch
from anabranch.records.record import Record
from tests.support.broker import BrokerProcess

PLACE = TopicPartition("orders", 0)
LARGE = b"x" * 100_000
RECORDS = 30


def creating(name: str) -> Request:
    topic = {"name": name, "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
    return Request(CREATE_TOPICS, {"topics": [topic], "timeout": 10_000, "validate_only": False})


def producing(first: int) -> Request:
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(0, now_ms, b"%d" % first, LARGE)])
    parts = [{"index": 0, "records": batch}]
    topics = [{"name": PLACE.topic, "partition_data": parts}]
    return Request(PRODUCE, {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": topics})


def fetching(offset: int) -> Request:
    part = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 8 << 20,
    }
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 8 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": PLACE.topic, "partitions": [part]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return Request(FETCH, values)


def ending() -> Request:
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": PLACE.topic, "partitions": [part]}]
    return Request(LIST_OFFSETS, {"replica_id": -1, "isolation_level": 0, "topics": topics})


def check_fetched(answer: Any) -> None:
    """One frame with all batches as they are stored."""
    records = answer.responses[0].partitions[0].records
    assert type(records) is memoryview
    at = found = 0
    while at < len(records):
        header = read_header(records, at)
        assert header.base_offset == found
        at += header.size_bytes
        found += 1
    assert found == RECORDS


def test_programs_that_wait(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Client(Settings(broker.bootstrap, timeout_s=60)) as client:
        client.send(CONTROLLER, creating(PLACE.topic))
        pending = [client.start(Leader(PLACE), producing(number)) for number in range(RECORDS)]
        stored = [one.take(60).responses[0].partition_responses[0] for one in pending]
        assert [(one.error_code, one.base_offset) for one in stored] == [(0, n) for n in range(RECORDS)]
        check_fetched(client.send(Leader(PLACE), fetching(0)))
        broker.kill()
        broker.start()
        assert client.send(Leader(PLACE), ending()).topics[0].partitions[0].offset == RECORDS
        with pytest.raises(UnknownTopic):
            client.send(Leader(TopicPartition("absent", 0)), ending())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_brokers(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with BrokerProcess(tmp_path) as broker, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_there_and_back(broker))


async def _there_and_back(broker: BrokerProcess) -> None:
    client = AsyncClient(Settings(broker.bootstrap, timeout_s=60), TcpNetwork(), SystemClock(), Random(1))
    await client.send(CONTROLLER, creating(PLACE.topic))
    asked: list[Coroutine[Any, Any, Any]] = [
        client.send(Leader(PLACE), producing(number)) for number in range(RECORDS)
    ]
    await asyncio.gather(*asked)
    check_fetched(await client.send(Leader(PLACE), fetching(0)))
    committed = Request(OFFSET_FETCH, {"group_id": "g", "topics": None, "require_stable": True})
    assert (await client.send(Coordinator(GROUPS, "g"), committed)).error_code == 0
    broker.kill()
    underway = asyncio.ensure_future(client.send(Leader(PLACE), ending()))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(broker.start)
    assert (await underway).topics[0].partitions[0].offset == RECORDS
    assert (await client.send(ANY, metadata(None))).topics
    client.close()
    await asyncio.sleep(0)
