from typing import Any

import pytest

from anabranch.base.errors import DiskFull
from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


async def ask(broker: WholeBroker, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    answer = await broker.ask(22, version, **{"transaction_timeout": 60_000, **fields})
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
async def test_every_call_gives_a_fresh_id(broker: WholeBroker, version: int) -> None:
    assert [await ask(broker, version) for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


@pytest.mark.parametrize("timeout_ms", [0, -5])
async def test_the_time_limit_is_about_transactions(broker: WholeBroker, timeout_ms: int) -> None:
    assert await ask(broker, transaction_timeout=timeout_ms) == (0, 0, 0)


async def test_what_the_producer_had_before(broker: WholeBroker) -> None:
    assert await ask(broker, producer_id=500, producer_epoch=3) == (0, 0, 0)
    for half in ({"producer_id": 5, "producer_epoch": -1}, {"producer_id": -1, "producer_epoch": 3}):
        assert await ask(broker, **half) == (ErrorCode.invalid_request, -1, -1)


async def test_a_transactional_id_keeps_its_producer_id(broker: WholeBroker) -> None:
    assert await ask(broker, transactional_id="t") == (ErrorCode.not_coordinator, -1, -1)
    assert await ask(broker, transactional_id="") == (ErrorCode.invalid_request, -1, -1)
    await broker.services.transactions.ensure_topic()
    code, producer_id, epoch = await ask(broker, transactional_id="t")
    assert (code, epoch) == (0, 0)
    for version in range(6):
        assert await ask(broker, version, transactional_id="t") == (0, producer_id, version + 1)


async def test_going_on_from_what_one_had(broker: WholeBroker) -> None:
    await broker.services.transactions.ensure_topic()
    _, producer_id, _ = await ask(broker, transactional_id="t")
    had = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": 0}
    assert await ask(broker, **had) == (0, producer_id, 1)
    assert await ask(broker, **had) == (0, producer_id, 1)  # the answer was lost
    assert await ask(broker, transactional_id="t") == (0, producer_id, 2)
    assert await ask(broker, **had) == (ErrorCode.producer_fenced, -1, -1)
    assert await ask(broker, 3, **had) == (ErrorCode.invalid_producer_epoch, -1, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_timeouts_have_bounds(broker: WholeBroker, timeout_ms: int) -> None:
    await broker.services.transactions.ensure_topic()
    answer = await ask(broker, transactional_id="t", transaction_timeout=timeout_ms)
    assert answer == (ErrorCode.invalid_transaction_timeout, -1, -1)


async def test_no_id_to_be_had(broker: WholeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full() -> range:
        raise DiskFull("no room")

    monkeypatch.setattr(broker.services.cluster, "allocate_producer_ids", full)
    assert await ask(broker) == (ErrorCode.coordinator_load_in_progress, -1, -1)
    monkeypatch.undo()
    assert await ask(broker) == (0, 0, 0)


async def test_no_id_for_a_transactional_id(broker: WholeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full() -> range:
        raise DiskFull("no room")

    await broker.services.transactions.ensure_topic()
    monkeypatch.setattr(broker.services.cluster, "allocate_producer_ids", full)
    answer = await ask(broker, transactional_id="t")
    assert answer == (ErrorCode.coordinator_load_in_progress, -1, -1)
