"""Pulsar's transactions on a real coordinator: which producer ids they take, when they end by themselves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.base.errors import Throttled
from anabranch.groups.effects import Producer
from anabranch.groups.transaction_ids import TxnId
from anabranch.groups.transactions import LAST_EPOCH
from anabranch.topics.errors import (
    InvalidTransactionStatus,
    NotAllowed,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)
from anabranch.topics.transactions import Transactions
from tests.support.coordinators import Coordinators
from tests.support.transactions import Transacting

OUT, OTHER = ("out", 0), ("out", 1)


def front(node: Transacting, most: int = 0) -> Transactions:
    async def nothing() -> None:
        raise AssertionError("the topic is not needed")

    states = Coordinators(node.host, node.clock).subscription_states(nothing)
    return Transactions(node.coordinator, node._new_id, node.clock, lambda: most, states)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Transacting]:
    made = Transacting(tmp_path)
    yield made
    made.stop()


async def test_ids_are_used_again_when_they_are_free(node: Transacting) -> None:
    transactions = front(node)
    first, second = await transactions.begin(0, 1000), await transactions.begin(0, 1000)
    assert first.producer.producer_id != second.producer.producer_id
    await transactions.end(first, commit=True)
    third = await transactions.begin(0, 1000)
    assert third.producer == Producer(first.producer.producer_id, 1)
    elsewhere = await transactions.begin(1, 1000)  # another coordinator has ids of its own
    assert elsewhere.producer.epoch == 0
    transactions.close()


async def test_an_id_whose_epochs_are_used_up_is_left(node: Transacting) -> None:
    transactions = front(node)
    txn = await transactions.begin(0, 1000)
    for _ in range(3):
        await transactions.end(txn, commit=False)
        txn = await transactions.begin(0, 1000)
    shard = node.coordinator._runtime.read(node.coordinator.shard_of(txn.transactional_id))
    id = txn.transactional_id
    shard.transactions[id] = shard.transactions[id]._replace(epoch=LAST_EPOCH - 2)
    last = TxnId.of(0, Producer(txn.producer.producer_id, LAST_EPOCH - 2))
    transactions._timers[last] = transactions._timers.pop(txn)
    await transactions.end(last, commit=True)
    following = await transactions.begin(0, 1000)
    assert following.producer.producer_id != last.producer.producer_id
    transactions.close()


async def test_a_restart_finds_what_is_open_and_what_is_free(node: Transacting) -> None:
    transactions = front(node)
    free, kept = await transactions.begin(2, 60_000), await transactions.begin(2, 60_000)
    await transactions.end(free, commit=True)
    await transactions.add(kept, [OUT])
    await node.coordinator.initialize("__pulsar-transaction-2-999", 1000, None)
    transactions.close()
    node.kill()
    node.start()
    await node.look_after()
    after = front(node)
    await after.load()
    assert list(after) == [kept]
    assert after.coordinator(2).open_transactions == 1
    after.check(kept, OUT)
    assert (await after.begin(2, 1000)).producer == Producer(free.producer.producer_id, 1)
    after.close()


async def test_time_runs_on_while_the_broker_is_away(node: Transacting) -> None:
    transactions = front(node)
    txn = await transactions.begin(0, 60_000)
    transactions.close()
    node.kill()
    node.clock.advance(60_001)
    node.start()
    await node.look_after()
    after = front(node)
    await after.load()
    for _ in range(50):
        await asyncio.sleep(0)
    with pytest.raises(TransactionNotFound):
        await after.end(txn, commit=True)
    after.close()


async def test_what_is_not_open_is_not_found(node: Transacting) -> None:
    transactions = front(node)
    for made_up in (TxnId(0, 0), TxnId(0, 1 << 70), TxnId(99, 5)):
        with pytest.raises(TransactionNotFound):
            transactions.check(made_up, OUT)
        with pytest.raises(TransactionNotFound):
            await transactions.end(made_up, commit=True)
    txn = await transactions.begin(0, 1000)
    await transactions.add(txn, [OUT])
    transactions.check(txn, OUT)
    with pytest.raises(NotAllowed):
        transactions.check(txn, OTHER)
    with pytest.raises(NotAllowed):
        transactions.check_subscription(txn, "s")
    with pytest.raises(TransactionCoordinatorNotFound):
        await transactions.begin(16, 1000)
    transactions.close()


async def test_one_that_is_on_its_way(node: Transacting, monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_yet(*_: object) -> bool:
        return False

    transactions = front(node)
    txn = await transactions.begin(0, 1000)
    with monkeypatch.context() as patch:
        patch.setattr(node.coordinator.markers, "write_all", not_yet)
        await transactions.end(txn, commit=True)
        assert transactions.is_undecided(txn)
        with pytest.raises(InvalidTransactionStatus):
            await transactions.end(txn, commit=False)
        with pytest.raises(InvalidTransactionStatus):
            await transactions.add(txn, [OUT])
        await transactions.end(txn, commit=True)
    await node.look_after()
    assert not transactions.is_undecided(txn)
    await transactions.end(txn, commit=True)
    with pytest.raises(TransactionNotFound):
        await transactions.end(txn, commit=False)
    transactions.close()


async def test_as_many_as_a_coordinator_may_have(node: Transacting) -> None:
    transactions = front(node, most=2)
    txn = await transactions.begin(0, 1000)
    await transactions.begin(0, 1000)
    with pytest.raises(Throttled):
        await transactions.begin(0, 1000)
    await transactions.begin(1, 1000)
    await transactions.end(txn, commit=False)
    await transactions.begin(0, 1000)
    transactions.close()
