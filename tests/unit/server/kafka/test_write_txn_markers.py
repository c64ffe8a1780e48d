from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.transacting import MARKERS, Client
from tests.unit.server.kafka.whole_broker import WholeBroker


async def write(client: Client, version: int, *places: tuple[str, int], **fields: Any) -> dict[Any, int]:
    marker = {
        "producer_id": client.producer_id,
        "producer_epoch": client.epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [index]} for topic, index in places],
        "coordinator_epoch": 0,
    }
    answer = await client.broker.ask(MARKERS, version, markers=[marker | fields])
    return {
        (topic.name, part.partition_index): int(part.error_code)
        for one in answer.markers
        for topic in one.topics
        for part in topic.partitions
    }


@pytest.fixture
async def client(broker: WholeBroker) -> Client:
    await broker.create("orders", 2)
    client = await Client.introduced(broker, "copy")
    await client.add(("orders", 0))
    assert await client.produce("orders", "a") == 0
    return client


@pytest.mark.parametrize("version", [1, 2])
async def test_an_operator_ends_a_transaction_that_hangs(client: Client, version: int) -> None:
    partition = client.broker.partition("orders")
    assert partition.last_stable == 0
    places = [("orders", 0), ("orders", 1), ("orders", 9), ("nothing", 0)]
    unknown = ErrorCode.unknown_topic_or_partition
    assert await write(client, version, *places) == dict(zip(places, (0, 0, unknown, unknown), strict=True))
    assert partition.last_stable == partition.log_end == 2


async def test_a_late_marker_is_refused(client: Client) -> None:
    place = ("orders", 0)
    late = ErrorCode.invalid_producer_epoch
    assert await write(client, 2, place, transaction_version=2) == {place: late}
    assert await write(client, 2, place, producer_epoch=-1) == {place: late}
    assert client.broker.partition("orders").last_stable == 0
    assert await write(client, 2, place, transaction_version=2, producer_epoch=client.epoch + 1) == {place: 0}


async def test_an_old_coordinator_is_refused(client: Client) -> None:
    place = ("orders", 0)
    assert await write(client, 1, place, coordinator_epoch=5) == {place: 0}
    assert await write(client, 1, place) == {place: ErrorCode.transaction_coordinator_fenced}


async def test_offsets_of_groups(client: Client) -> None:
    groups = client.broker.services.groups
    await groups.ensure_topic()
    place = ("__consumer_offsets", groups.shard_of("g"))
    assert await write(client, 1, place) == {place: 0}
    assert client.broker.partition(*place).log_end == 1
