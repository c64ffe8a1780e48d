import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.transacting import END, Client
from tests.unit.server.kafka.whole_broker import WholeBroker

A = ("orders", 0)


@pytest.fixture
async def client(broker: WholeBroker) -> Client:
    await broker.create("orders")
    return await Client.introduced(broker, "copy")


@pytest.mark.parametrize("version", range(5))
async def test_the_first_protocol(client: Client, version: int) -> None:
    assert await client.end(commit=True, version=version) == ErrorCode.invalid_txn_state
    await client.add(A)
    assert await client.end(commit=True, version=version) == 0
    assert await client.end(commit=True, version=version) == 0
    assert await client.end(commit=False, version=version) == ErrorCode.invalid_txn_state


async def test_the_second_protocol(broker: WholeBroker) -> None:
    await broker.create("orders")
    client = await Client.introduced(broker, "copy", second=True)
    assert await client.produce("orders", "a") == 0
    before = client.epoch
    assert await client.end(commit=True) == 0
    assert client.epoch == before + 1
    client.epoch = before  # the answer was lost
    assert await client.end(commit=True) == 0
    assert client.epoch == before + 1
    assert await client.end(commit=True) == ErrorCode.invalid_txn_state
    assert await client.end(commit=False) == 0  # nothing was added, and that is fine
    assert client.epoch == before + 2


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced), (5, ErrorCode.producer_fenced)],
)
async def test_a_fence_by_version(client: Client, version: int, code: ErrorCode) -> None:
    await client.add(A)
    await Client.introduced(client.broker, "copy")
    assert await client.end(commit=True, version=version) == code


async def test_what_is_not_an_end(client: Client) -> None:
    answer = await client.broker.ask(END, 5, transactional_id="", producer_id=1, producer_epoch=0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
        ErrorCode.invalid_request,
        -1,
        -1,
    )
    client.id = "unknown"
    assert await client.end(commit=True) == ErrorCode.invalid_producer_id_mapping


async def test_without_the_topic_there_is_no_coordinator(broker: WholeBroker) -> None:
    assert await Client(broker, "copy").end(commit=True) == ErrorCode.not_coordinator
