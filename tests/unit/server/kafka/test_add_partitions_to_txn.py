from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.transacting import ADD, Client, added
from tests.unit.server.kafka.whole_broker import WholeBroker

A, B, NOWHERE = ("orders", 0), ("orders", 1), ("orders", 2)


@pytest.fixture
async def client(broker: WholeBroker) -> Client:
    await broker.create("orders", 2)
    return await Client.introduced(broker, "copy")


@pytest.mark.parametrize("version", range(4))
async def test_clients_add_partitions(client: Client, version: int) -> None:
    assert await client.add(A, B, version=version) == {A: 0, B: 0}
    found = client.broker.services.transactions.find("copy")
    assert found is not None
    assert found.partitions == {A, B}


async def test_one_that_is_not_there_spoils_all(client: Client) -> None:
    assert await client.add(A, NOWHERE) == {
        A: ErrorCode.operation_not_attempted,
        NOWHERE: ErrorCode.unknown_topic_or_partition,
    }
    assert await client.add(("no such", 0)) == {("no such", 0): ErrorCode.unknown_topic_or_partition}
    assert await client.end(commit=True) == ErrorCode.invalid_txn_state


async def test_internal_topics_are_not_for_clients(client: Client) -> None:
    place = ("__transaction_state", 0)
    assert await client.add(place) == {place: ErrorCode.topic_authorization_failed}


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)]
)
async def test_a_fence_by_version(client: Client, version: int, code: ErrorCode) -> None:
    await Client.introduced(client.broker, "copy")
    assert await client.add(A, version=version) == {A: code}


async def test_who_is_not_known(client: Client) -> None:
    client.producer_id += 1
    assert await client.add(A) == {A: ErrorCode.invalid_producer_id_mapping}
    client.id = ""
    assert await client.add(A) == {A: ErrorCode.invalid_request}
    client.id = "never introduced"
    assert await client.add(A) == {A: ErrorCode.invalid_producer_id_mapping}


async def batched(client: Client, version: int, *transactions: dict[str, Any]) -> dict[str, Any]:
    answer = await client.broker.ask(ADD, version, transactions=list(transactions))
    assert answer.error_code == ErrorCode.none
    return {one.transactional_id: added(one.topic_results) for one in answer.results_by_transaction}


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_ask_for_several_and_may_only_ask(client: Client, version: int) -> None:
    other = await Client.introduced(client.broker, "other")
    await client.add(A)

    def asked(one: Client, verify_only: bool) -> dict[str, Any]:
        return {
            "transactional_id": one.id,
            "producer_id": one.producer_id,
            "producer_epoch": one.epoch,
            "verify_only": verify_only,
            "topics": [{"name": "orders", "partitions": [0, 1]}],
        }

    codes = await batched(client, version, asked(client, True), asked(other, False))
    assert codes == {"copy": {A: 0, B: ErrorCode.transaction_abortable}, "other": {A: 0, B: 0}}
    other.epoch += 1
    codes = await batched(client, version, asked(other, True))
    assert codes == {"other": dict.fromkeys((A, B), ErrorCode.producer_fenced)}
