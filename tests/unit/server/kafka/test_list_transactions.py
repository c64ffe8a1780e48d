from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.transacting import LIST, Client
from tests.unit.server.kafka.whole_broker import WholeBroker


@pytest.fixture
async def transactions(broker: WholeBroker) -> dict[str, Client]:
    await broker.create("orders")
    await broker.services.transactions._load_all()
    clients = {name: await Client.introduced(broker, name) for name in ("idle", "open", "done")}
    await clients["open"].add(("orders", 0))
    await clients["done"].add(("orders", 0))
    assert await clients["done"].end(commit=True) == 0
    return clients


async def listed(broker: WholeBroker, version: int = 2, **filters: Any) -> dict[str, str]:
    answer = await broker.ask(LIST, version, **filters)
    assert answer.error_code == ErrorCode.none
    assert list(answer.unknown_state_filters) == [
        name for name in filters.get("state_filters", ()) if name == "Sleeping"
    ]
    return {one.transactional_id: one.transaction_state for one in answer.transaction_states}


@pytest.mark.parametrize("version", range(3))
async def test_all_of_them(broker: WholeBroker, transactions: dict[str, Client], version: int) -> None:
    assert await listed(broker, version) == {"idle": "Empty", "open": "Ongoing", "done": "CompleteCommit"}


async def test_filters(broker: WholeBroker, transactions: dict[str, Client]) -> None:
    assert set(await listed(broker, state_filters=["Ongoing", "Empty"])) == {"idle", "open"}
    assert set(await listed(broker, state_filters=["Ongoing", "Sleeping"])) == {"open"}
    assert set(await listed(broker, state_filters=["Sleeping"])) == set()
    wanted = transactions["done"].producer_id
    assert set(await listed(broker, producer_id_filters=[wanted, 999])) == {"done"}
    assert set(await listed(broker, transactional_id_pattern="i.*|op..")) == {"idle", "open"}
    assert set(await listed(broker, transactional_id_pattern="i")) == set()
    broker.clock.advance(5_000)
    assert set(await listed(broker, duration_filter=4_999, state_filters=["Ongoing"])) == {"open"}
    assert set(await listed(broker, duration_filter=5_000, state_filters=["Ongoing"])) == set()


async def test_what_is_no_expression(broker: WholeBroker, transactions: dict[str, Client]) -> None:
    answer = await broker.ask(LIST, 2, transactional_id_pattern="(")
    assert answer.error_code == ErrorCode.invalid_regular_expression


async def test_not_before_all_are_read(broker: WholeBroker) -> None:
    answer = await broker.ask(LIST, 2)
    assert answer.error_code == ErrorCode.coordinator_load_in_progress
