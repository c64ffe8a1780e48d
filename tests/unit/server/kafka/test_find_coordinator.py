"""FindCoordinator: one key or several, groups and transactional ids, internal topics made on the way."""

from pathlib import Path

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker

FIND = 10


@pytest.mark.parametrize("version", range(4))
async def test_one_key(broker: WholeBroker, version: int) -> None:
    answer = await broker.ask(FIND, version, key="pay")
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "127.0.0.1", 9092)
    if version:
        assert answer.error_message == "NONE"


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("key_type", [0, 1])
async def test_several_keys(broker: WholeBroker, version: int, key_type: int) -> None:
    answer = await broker.ask(FIND, version, key_type=key_type, coordinator_keys=["a", "", "b"])
    assert [found.key for found in answer.coordinators] == ["a", "", "b"]
    assert {(found.error_code, found.node_id, found.port) for found in answer.coordinators} == {(0, 1, 9092)}
    assert {found.error_message for found in answer.coordinators} == {""}


async def test_no_keys(broker: WholeBroker) -> None:
    assert (await broker.ask(FIND, 6, coordinator_keys=[])).coordinators == ()
    assert not broker.image.topics, "nobody needs the topic yet"


async def test_the_topic_of_groups_is_made_as_kafka_makes_it(broker: WholeBroker) -> None:
    await broker.ask(FIND, 6, coordinator_keys=["a"])
    topic = broker.image.topics_by_kafka_name["__consumer_offsets"]
    assert topic.is_internal
    assert len(topic.partitions) == 50
    assert topic.config == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


async def test_the_topic_of_transactions_is_made_when_one_is_asked_for(broker: WholeBroker) -> None:
    await broker.ask(FIND, 6, key_type=1, coordinator_keys=["a"])
    assert set(broker.image.topics_by_kafka_name) == {"__transaction_state"}


async def test_the_number_of_partitions_is_configured(tmp_path: Path) -> None:
    async with open_broker(tmp_path, offsets_topic_num_partitions="4") as broker:
        await broker.ask(FIND, 6, coordinator_keys=["a"])
        assert len(broker.image.topics_by_kafka_name["__consumer_offsets"].partitions) == 4


@pytest.mark.parametrize("key_type", [-1, 2, 3])
async def test_kinds_of_keys_that_nobody_coordinates(broker: WholeBroker, key_type: int) -> None:
    single = await broker.ask(FIND, 3, key_type=key_type, key="a")
    assert (single.error_code, single.node_id, single.host, single.port) == (42, -1, "", -1)
    (found,) = (await broker.ask(FIND, 6, key_type=key_type, coordinator_keys=["a"])).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.invalid_request, -1)


async def test_there_are_as_many_replicas_as_there_are_brokers(tmp_path: Path) -> None:
    async with open_broker(tmp_path, offsets_topic_replication_factor="3") as broker:
        (found,) = (await broker.ask(FIND, 6, coordinator_keys=["a"])).coordinators
        assert found.error_code == ErrorCode.none
        topic = broker.image.topics_by_kafka_name["__consumer_offsets"]
        assert {part.replicas for part in topic.partitions} == {(1,)}


async def test_a_topic_that_cannot_be_made(broker: WholeBroker) -> None:
    """There is nobody to place it on."""
    await broker.services.cluster.deregister()
    (found,) = (await broker.ask(FIND, 6, coordinator_keys=["a"])).coordinators
    assert found.error_code == ErrorCode.coordinator_not_available
