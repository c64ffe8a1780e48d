"""Produce: records of transactions are stored while theirs is open, and else refused by Kafka's codes."""

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.transacting import Client
from tests.unit.server.kafka.whole_broker import WholeBroker

A, B = ("orders", 0), ("orders", 1)


@pytest.fixture
async def client(broker: WholeBroker) -> Client:
    await broker.create("orders", 2)
    return await Client.introduced(broker, "copy")


@pytest.fixture
async def second(broker: WholeBroker) -> Client:
    await broker.create("orders", 2)
    return await Client.introduced(broker, "copy", second=True)


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.invalid_txn_state), (11, ErrorCode.transaction_abortable)]
)
async def test_a_partition_that_was_not_added(client: Client, version: int, code: ErrorCode) -> None:
    assert await client.produce("orders", "a", version=version) == code
    assert await client.add(B) == {B: 0}
    assert await client.produce_to([A, B], "a", version=version) == {A: code, B: 0}
    assert await client.add(A) == {A: 0}
    assert await client.produce("orders", "a", version=version) == 0
    assert await client.produce("orders", "b", version=version) == 0
    assert await client.end(commit=True) == 0
    assert await client.produce("orders", "late", version=version) == code


async def test_the_second_protocol_adds_partitions_itself(second: Client) -> None:
    assert await second.produce_to([A, B], "a") == {A: 0, B: 0}
    assert await second.produce("orders", "b") == 0
    before = second.epoch
    assert await second.end(commit=True) == 0
    assert second.epoch == before + 1
    assert await second.produce("orders", "c") == 0
    assert await second.end(commit=False) == 0
    partition = second.broker.partition("orders")
    assert partition.last_stable == partition.log_end == 5  # a b commit c abort


async def test_who_was_fenced_writes_no_more(client: Client) -> None:
    await client.add(A)
    assert await client.produce("orders", "a") == 0
    await Client.introduced(client.broker, "copy")
    assert await client.produce("orders", "b") == ErrorCode.invalid_producer_epoch
    assert await client.produce("orders", "b", version=12) == ErrorCode.invalid_producer_epoch
    assert await client.produce("orders", "b", index=1) == ErrorCode.invalid_producer_epoch


async def test_who_is_not_known(client: Client) -> None:
    client.producer_id += 7
    for version in (10, 11, 12):
        assert await client.produce("orders", "a", version=version) == ErrorCode.invalid_producer_id_mapping


async def test_without_a_transactional_id(client: Client) -> None:
    code = ErrorCode.transactional_id_authorization_failed
    assert await client.produce("orders", "a", transactional_id=None) == code


async def test_verification_can_be_switched_off(client: Client) -> None:
    services = client.broker.services
    services.config.apply({"transaction.partition.verification.enable": "false"}, {})
    assert await client.produce("orders", "a", version=9) == 0


async def test_a_large_batch_takes_the_same_checks(client: Client) -> None:
    await client.broker.create("packed", 1, compression_type="gzip")
    value = "x" * 200_000
    assert await client.produce("packed", value) == ErrorCode.transaction_abortable
    await client.add(("packed", 0))
    assert await client.produce("packed", value) == 0


async def test_a_batch_that_comes_twice_is_stored_once(client: Client) -> None:
    await client.add(A)
    assert await client.produce("orders", "a") == 0
    assert await client.produce("orders", "a", base_sequence=0) == 0
    assert client.broker.partition("orders").log_end == 1


async def test_plain_producers_are_not_asked(client: Client) -> None:
    plain = {"transactional": False, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    for value in ("a", "b", "c"):
        assert await client.produce("orders", value, transactional_id=None, **plain) == 0


async def test_internal_topics_are_not_for_clients(client: Client) -> None:
    plain = {"transactional": False, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    code = await client.produce("__transaction_state", "a", transactional_id=None, **plain)
    assert code == ErrorCode.invalid_topic_exception
