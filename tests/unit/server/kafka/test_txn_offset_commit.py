from typing import Any

import pytest

from anabranch.groups.offsets import Fetch, TopicPartitions
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.transacting import ADD_OFFSETS, COMMIT, Client
from tests.unit.server.kafka.whole_broker import WholeBroker


@pytest.fixture
async def client(broker: WholeBroker) -> Client:
    await broker.create("orders")
    return await Client.introduced(broker, "copy")


async def add_offsets(client: Client, version: int = 4, **fields: Any) -> int:
    values = {
        "transactional_id": client.id,
        "producer_id": client.producer_id,
        "producer_epoch": client.epoch,
        "group_id": "g",
    }
    return int((await client.broker.ask(ADD_OFFSETS, version, **(values | fields))).error_code)


async def committed(broker: WholeBroker) -> int:
    shard = await broker.services.groups.look("g")
    asked = Fetch("g", None, -1, [TopicPartitions("orders", None, [0])], require_stable=False)
    return int(shard.offsets.fetch(asked)["topics"][0]["partitions"][0]["committed_offset"])


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
async def test_the_first_protocol(client: Client, version: int, commit: bool) -> None:
    code = ErrorCode.transaction_abortable if version == 4 else ErrorCode.invalid_txn_state
    assert await client.commit_offset("g", 5, version) == code
    assert await add_offsets(client, version) == 0
    assert await client.commit_offset("g", 5, version) == 0
    assert await committed(client.broker) == -1
    assert await client.end(commit=commit) == 0
    assert await committed(client.broker) == (5 if commit else -1)


async def test_the_second_protocol_adds_the_group_itself(broker: WholeBroker) -> None:
    await broker.create("orders")
    client = await Client.introduced(broker, "copy", second=True)
    for offset in (5, 6):
        assert await client.commit_offset("g", offset) == 0
        assert await client.end(commit=True) == 0
        assert await committed(broker) == offset


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)]
)
async def test_a_fence_by_version(client: Client, version: int, code: ErrorCode) -> None:
    await add_offsets(client)
    await Client.introduced(client.broker, "copy")
    assert await add_offsets(client, version) == code
    for every in range(6):
        assert await client.commit_offset("g", 5, every) == ErrorCode.invalid_producer_epoch


async def test_what_is_not_there(client: Client) -> None:
    await add_offsets(client)
    answer = await client.broker.ask(
        COMMIT,
        3,
        transactional_id="copy",
        group_id="g",
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        topics=[
            {"name": "orders", "partitions": [{"partition_index": index} for index in (0, 1)]},
            {"name": "nothing", "partitions": [{"partition_index": 0}]},
        ],
    )
    codes = {
        (topic.name, part.partition_index): int(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == {("orders", 0): 0, ("orders", 1): unknown, ("nothing", 0): unknown}


async def test_a_topic_has_one_name_and_its_id_is_kept(client: Client) -> None:
    broker = client.broker
    await add_offsets(client)
    topic = {"partitions": [{"partition_index": 0, "committed_offset": 5}]}
    asked_as = "persistent://public/default/orders"
    assert await client.commit_offset("g", 5, topics=[{"name": asked_as} | topic]) == 0
    assert await client.end(commit=True) == 0
    ((name, _, offset),) = (await broker.services.groups.look("g")).offsets.committed("g")
    image = broker.services.cluster.image.topics_by_kafka_name["orders"]
    assert (name, offset.offset, offset.topic_id) == ("orders", 5, image.id)


async def test_members_and_generations_are_checked(client: Client) -> None:
    await add_offsets(client)
    code = await client.commit_offset("g", 5, generation_id=3, member_id="m")
    assert code == ErrorCode.illegal_generation


async def test_without_a_transactional_id(client: Client) -> None:
    assert await add_offsets(client, transactional_id="") == ErrorCode.invalid_request
    assert await client.commit_offset("g", 5, transactional_id="") == ErrorCode.invalid_request


async def test_a_group_whose_name_no_record_can_hold(client: Client) -> None:
    group_id = "g" * 40_000
    assert await add_offsets(client, group_id=group_id) == 0
    assert await client.commit_offset(group_id, 5, 3) == ErrorCode.unknown_server_error
