"""Transactions over HTTP, with a client that has some open."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.groups.transaction_ids import TxnId
from tests.support.http import Answer, Http, http_broker
from tests.support.pulsar_socket import connected
from tests.support.pulsar_transactions import Refused, Transacting

TOPIC = "public/default/t"
SHARED = 1


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with http_broker(tmp_path, transactionCoordinatorEnabled="true") as broker:
        yield broker


@pytest.fixture
async def who(http: Http) -> AsyncIterator[Transacting]:
    async with connected(http.node.addresses["pulsar"]) as client:
        one = Transacting(client)
        await one.produce(1, "t")
        await one.consume(2, "t", kind=SHARED)
        yield one


async def ask(http: Http, path: str, method: str = "GET", body: object = None) -> Answer:
    return await http.ask(method, f"/admin/v3/transactions{path}", body)


async def told(http: Http, path: str) -> Any:
    answer = await ask(http, path)
    assert answer.status == 200, answer
    return answer.json


def at(txn: TxnId) -> str:
    return f"{txn.coordinator}/{txn.number}"


async def test_coordinators(http: Http, who: Transacting) -> None:
    listed = await told(http, "/coordinators")
    assert [each["id"] for each in listed] == list(range(16))
    assert {each["brokerServiceUrl"] for each in listed} == {f"pulsar://{http.node.addresses['pulsar']}"}
    txn = await who.begin(coordinator=5)
    stats = await told(http, "/coordinatorStats")
    assert len(stats) == 16
    assert (stats["5"]["ongoingTxnSize"], stats["4"]["ongoingTxnSize"]) == (1, 0)
    one = await told(http, "/coordinatorStats?coordinatorId=5")
    assert one["state"] == "Ready"
    assert one["leastSigBits"] == txn.number == one["lowWaterMark"] + 1
    assert (await ask(http, "/coordinatorStats?coordinatorId=16")).status == 404
    kept = (await told(http, "/coordinatorInternalStats/5"))["transactionLogStats"]
    assert kept["managedLedgerInternalStats"]["numberOfEntries"] == 1
    assert (await ask(http, "/coordinatorInternalStats/16")).status == 404
    assert (await ask(http, "/transactionCoordinator/replicas", "POST", 16)).status == 406
    assert (await ask(http, "/transactionCoordinator/replicas", "POST", 17)).status == 405


async def test_what_a_transaction_has_done(http: Http, who: Transacting) -> None:
    await who.plain(1, b"a")
    message, _ = await who.received()
    txn = await who.begin(timeout_ms=30_000)
    sent = await who.send(txn, 1, b"b")
    await who.ack(txn, 2, message)
    found = await told(http, f"/transactionMetadata/{at(txn)}")
    name = "persistent://public/default/t"
    place = f"{sent.ledger_id}:{sent.entry_id}"
    assert found["txnId"] == str(txn)
    assert (found["status"], found["timeoutAt"]) == ("OPEN", 30_000)
    assert found["producedPartitions"] == {name: {"startPosition": place, "aborted": False}}
    assert found["ackedPartitions"] == {name: {"s": {}}}
    assert list(await told(http, "/slowTransactions/0")) == [str(txn)]
    assert await told(http, "/slowTransactions/3600000") == {}
    assert await told(http, "/slowTransactions/0?coordinatorId=7") == {}
    in_buffer = f"/transactionInBufferStats/{TOPIC}/{at(txn)}"
    assert await told(http, in_buffer) == {"startPosition": place, "aborted": False}
    assert (await ask(http, f"/abortTransaction/{at(txn)}", "POST")).status == 204
    with pytest.raises(Refused):
        await who.end(txn, commit=True)
    assert await told(http, in_buffer) == {"aborted": True}
    assert (await ask(http, f"/transactionMetadata/{at(txn)}")).status == 404
    assert (await ask(http, "/abortTransaction/0/12345", "POST")).status == 404
    assert (await who.received())[1] == b"a"


async def test_topics_and_subscriptions(http: Http, who: Transacting) -> None:
    await who.plain(1, b"a", b"b")
    message, _ = await who.received()
    txn = await who.begin()
    await who.send(txn, 1, b"c")
    await who.ack(txn, 2, type(message)(ledger_id=0, entry_id=0, ack_set=[0b10]))
    buffer = await told(http, f"/transactionBufferStats/{TOPIC}?lowWaterMarks=true")
    assert (buffer["state"], buffer["ongoingTxnSize"], buffer["maxReadPosition"]) == ("Ready", 1, "0:0")
    assert len(buffer["lowWaterMarks"]) == 16
    pending = await told(http, f"/pendingAckStats/{TOPIC}/s")
    assert (pending["state"], pending["ongoingTxnSize"]) == ("Ready", 1)
    position = f"/positionStatsInPendingAck/{TOPIC}/s/0/0"
    assert await told(http, position) == {"state": "PendingAck"}
    assert await told(http, f"{position}?batchIndex=0") == {"state": "PendingAck"}
    assert await told(http, f"{position}?batchIndex=1") == {"state": "NotInPendingAck"}
    assert await told(http, f"{position}?batchIndex=2") == {"state": "InvalidPosition"}
    stats = await http.get(f"/persistent/{TOPIC}/stats")
    assert [stats[f"{what}TxnCount"] for what in ("ongoing", "committed", "aborted")] == [1, 0, 0]
    await who.end(txn, commit=True)
    stats = await http.get(f"/persistent/{TOPIC}/stats")
    assert [stats[f"{what}TxnCount"] for what in ("ongoing", "committed", "aborted")] == [0, 1, 0]
    kept = (await told(http, f"/pendingAckInternalStats/{TOPIC}/s"))["pendingAckLogStats"]
    assert kept["managedLedgerName"].startswith("__subscription_state-")
    assert (await ask(http, f"/transactionBufferInternalStats/{TOPIC}")).status == 404
    assert (await ask(http, f"/pendingAckStats/{TOPIC}/nobody")).status == 404
    assert (await ask(http, "/transactionBufferStats/public/default/nowhere")).status == 404


async def test_how_far_a_cumulative_one_goes(http: Http, who: Transacting) -> None:
    await who.consume(3, "t", "exclusive")
    for value in (b"a", b"b"):
        await who.plain(1, value)
    txn = await who.begin()
    asked = f"/transactionInPendingAckStats/{TOPIC}/exclusive/{at(txn)}"
    assert await told(http, asked) == {}
    ids = [said.command.message.message_id for said in [await who.client.message() for _ in range(4)]]
    await who.ack(txn, 3, max(ids, key=lambda id: id.entry_id), cumulative=True)
    assert await told(http, asked) == {"cumulativeAckPosition": "0:1"}


async def test_where_they_are_switched_off(tmp_path: Path) -> None:
    async with http_broker(tmp_path) as http:
        for path in ("/coordinators", "/coordinatorStats", f"/transactionBufferStats/{TOPIC}"):
            answer = await ask(http, path)
            assert (answer.status, "transactionCoordinatorEnabled" in answer.reason) == (503, True)


async def test_numbers_that_are_none(http: Http) -> None:
    for path in (
        "/transactionMetadata/a/1",
        "/transactionMetadata/0/b",
        "/slowTransactions/x",
        "/coordinatorStats?coordinatorId=x",
    ):
        assert (await ask(http, path)).status == 400
    for path in (
        "/transactionMetadata/-1/1",
        "/transactionMetadata/0/-5",
        f"/transactionMetadata/0/{1 << 64}",
    ):
        assert (await ask(http, path)).status == 404
