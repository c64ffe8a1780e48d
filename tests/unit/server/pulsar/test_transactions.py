"""Transactions of Pulsar's clients: what readers of both protocols see of them, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.base.errors import DiskFull
from anabranch.base.ids import TopicName
from anabranch.cluster.pending_acks import StoredPendingAcks
from anabranch.groups.records import OffsetKey
from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.durable import CursorName
from anabranch.subscriptions.pending_acks import PendingAck, encode
from anabranch.wire.pulsar import commands_pb2 as pb
from tests.support.pulsar_transactions import Refused, Transacting
from tests.support.pulsar_wire import PulsarBroker, pulsar_broker

C = pb.BaseCommand
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
ENABLED = {"transactionCoordinatorEnabled": "true"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PulsarBroker]:
    async with pulsar_broker(tmp_path, **ENABLED) as running:
        yield running


@pytest.fixture
async def who(broker: PulsarBroker) -> Transacting:
    one = Transacting(await broker.connect())
    await one.produce(1, "t")
    await one.consume(2, "t", kind=SHARED)
    return one


async def quiet(who: Transacting) -> list[str]:
    """What was said though nobody asked, after a while."""
    for _ in range(30):
        await asyncio.sleep(0)
    return who.client.heard()


async def values(who: Transacting, count: int) -> list[bytes]:
    return [(await who.received())[1] for _ in range(count)]


async def refusal(work: object) -> str:
    with pytest.raises(Refused) as refused:
        await work  # type: ignore[misc]
    return pb.ServerError.Name(refused.value.code)


# --- messages


async def test_messages_are_seen_when_their_transaction_commits(who: Transacting) -> None:
    txn = await who.begin()
    await who.send(txn, 1, b"a")
    await who.send(txn, 1, b"b", b"c")
    assert await quiet(who) == []
    await who.end(txn, commit=True)
    assert await values(who, 2) == [b"a", b"c"]
    assert await quiet(who) == []


async def test_messages_of_an_aborted_transaction_are_never_seen(who: Transacting) -> None:
    txn = await who.begin()
    await who.send(txn, 1, b"a")
    await who.end(txn, commit=False)
    await who.plain(1, b"b")
    assert await values(who, 1) == [b"b"]
    assert await quiet(who) == []


async def test_messages_after_an_open_transaction_wait_for_it(who: Transacting) -> None:
    txn = await who.begin()
    await who.plain(1, b"a")
    await who.send(txn, 1, b"b")
    await who.plain(1, b"c")
    assert await values(who, 1) == [b"a"]
    assert await quiet(who) == []
    await who.end(txn, commit=True)
    assert await values(who, 2) == [b"b", b"c"]


async def test_transactions_side_by_side(who: Transacting) -> None:
    first, second = await who.begin(coordinator=3), await who.begin(coordinator=3)
    assert first.coordinator == second.coordinator == 3
    for value in (b"1", b"3"):
        await who.send(first, 1, value)
        await who.send(second, 1, bytes((value[0] + 1,)))
    await who.end(second, commit=False)
    assert await quiet(who) == []
    await who.end(first, commit=True)
    assert await values(who, 2) == [b"1", b"3"]
    assert await quiet(who) == []


async def test_one_after_the_other_share_a_producer_id(who: Transacting) -> None:
    before = await who.begin()
    await who.send(before, 1, b"a")
    await who.end(before, commit=True)
    after = await who.begin()
    assert after.producer == (before.producer.producer_id, before.producer.epoch + 1)
    await who.send(after, 1, b"b")
    await who.end(after, commit=False)
    assert await values(who, 1) == [b"a"]
    assert await quiet(who) == []


async def test_the_last_message_is_one_that_is_seen(who: Transacting) -> None:
    async def last() -> int:
        answer = await who.client.ask(C.GET_LAST_MESSAGE_ID, consumer_id=2, request_id=1)
        return answer.get_last_message_id_response.last_message_id.entry_id

    there = await who.plain(1, b"a")
    for commit in (False, True):
        txn = await who.begin()
        sent = await who.send(txn, 1, b"b")
        assert await last() == there.entry_id
        await who.end(txn, commit=commit)
        assert await last() == (sent if commit else there).entry_id


async def test_nothing_in_it(who: Transacting) -> None:
    for commit in (True, False):
        await who.end(await who.begin(), commit=commit)


# --- acknowledgements


async def test_an_acknowledgement_counts_when_its_transaction_commits(
    broker: PulsarBroker, who: Transacting
) -> None:
    for value in (b"a", b"b"):
        await who.plain(1, value)
    (first, _), _ = await who.received(), await who.received()
    txn = await who.begin()
    await who.ack(txn, 2, first)
    topics = broker.node.parts.topics
    subscription = topics.find(next(iter(topics._open))).subscriptions.find("s")
    assert subscription.cursor.mark_delete == 0
    await who.end(txn, commit=True)
    assert subscription.cursor.mark_delete == 1
    assert await quiet(who) == []


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
async def test_what_an_aborted_transaction_acknowledged_comes_again(broker: PulsarBroker, kind: int) -> None:
    who = Transacting(await broker.connect())
    await who.produce(1, "t")
    await who.consume(2, "t", kind=kind)
    await who.plain(1, b"a")
    message, _ = await who.received()
    txn = await who.begin()
    await who.ack(txn, 2, message)
    assert [said for said in await quiet(who) if said == "MESSAGE"] == []
    await who.end(txn, commit=False)
    assert await values(who, 1) == [b"a"]


async def test_what_a_transaction_acknowledged_goes_to_nobody_meanwhile(
    broker: PulsarBroker, who: Transacting
) -> None:
    await who.plain(1, b"a")
    await who.plain(1, b"b")
    first, _ = await who.received()
    await who.received()
    txn = await who.begin()
    await who.ack(txn, 2, first)
    other = Transacting(await broker.connect())
    await other.consume(9, "t", kind=SHARED)
    who.client.tell(C.CLOSE_CONSUMER, consumer_id=2, request_id=5)
    assert await values(other, 1) == [b"b"]
    assert await quiet(other) == []
    await other.end(txn, commit=False)  # a transaction is not of a connection
    assert await values(other, 1) == [b"a"]


async def test_messages_of_a_batch(who: Transacting) -> None:
    await who.plain(1, b"a", b"b", b"c")
    batch, _ = await who.received()
    first, rest = await who.begin(), await who.begin()
    await who.ack(first, 2, _some_of(batch, 0b110))
    assert await refusal(who.ack(rest, 2, _some_of(batch, 0b010))) == "TransactionConflict"
    await who.ack(rest, 2, _some_of(batch, 0b001))
    await who.end(first, commit=True)
    await who.end(rest, commit=False)
    said = await who.client.message()
    assert list(said.command.message.ack_set) == [0b110]
    assert await quiet(who) == []


async def test_two_transactions_cannot_acknowledge_one_message(who: Transacting) -> None:
    await who.plain(1, b"a")
    message, _ = await who.received()
    first, second = await who.begin(), await who.begin()
    await who.ack(first, 2, message)
    assert await refusal(who.ack(second, 2, message)) == "TransactionConflict"
    await who.end(first, commit=False)
    message, _ = await who.received()
    await who.ack(second, 2, message)
    await who.end(second, commit=True)
    third = await who.begin()
    assert await refusal(who.ack(third, 2, message)) == "TransactionConflict"


async def test_cumulative_acknowledgements(broker: PulsarBroker) -> None:
    who = Transacting(await broker.connect())
    await who.produce(1, "t")
    await who.consume(2, "t", kind=EXCLUSIVE)
    for value in (b"a", b"b", b"c"):
        await who.plain(1, value)
    ids = [(await who.received())[0] for _ in range(3)]
    first, second = await who.begin(), await who.begin()
    await who.ack(first, 2, ids[1], cumulative=True)
    assert await refusal(who.ack(second, 2, ids[2], cumulative=True)) == "TransactionConflict"
    assert await refusal(who.ack(first, 2, ids[0], cumulative=True)) == "TransactionConflict"
    await who.end(first, commit=False)
    assert await values(who, 3) == [b"a", b"b", b"c"]
    await who.ack(second, 2, ids[1], cumulative=True)
    await who.end(second, commit=True)
    third = await who.begin()
    assert await refusal(who.ack(third, 2, ids[0], cumulative=True)) == "TransactionConflict"
    await who.client.ask(C.CLOSE_CONSUMER, consumer_id=2, request_id=5)
    await who.consume(2, "t", kind=EXCLUSIVE)
    assert await values(who, 1) == [b"c"]


async def test_a_seek_forgets_what_transactions_acknowledged(broker: PulsarBroker, who: Transacting) -> None:
    sent = await who.plain(1, b"a")
    message, _ = await who.received()
    txn = await who.begin()
    await who.ack(txn, 2, message)
    await who.client.ask(C.SEEK, consumer_id=2, request_id=5, message_id=sent)
    await who.consume(3, "t", kind=SHARED)
    assert await values(who, 1) == [b"a"]
    await who.end(txn, commit=True)
    who.client.tell(C.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=3)
    assert await values(who, 1) == [b"a"]


# --- topics that come and go meanwhile


async def test_a_topic_that_is_unloaded_knows_them_again(broker: PulsarBroker, who: Transacting) -> None:
    await who.plain(1, b"a")
    await who.plain(1, b"b", b"c")
    single, batch = (await who.received())[0], (await who.received())[0]
    txn, other = await who.begin(), await who.begin()
    await who.send(txn, 1, b"d")
    await who.ack(txn, 2, single)
    await who.ack(other, 2, _some_of(batch, 0b10))
    await broker.node.parts.topics.unload(TopicName.from_pulsar("t"))
    await who.consume(3, "t", kind=SHARED)
    said = await who.client.message()
    assert list(said.command.message.ack_set) == [0b10]
    assert await refusal(who.ack(other, 3, single)) == "TransactionConflict"
    await who.end(txn, commit=True)
    await who.end(other, commit=False)
    assert sorted(await values(who, 2)) == [b"c", b"d"]


async def test_a_topic_that_is_deleted_takes_them_along(broker: PulsarBroker, who: Transacting) -> None:
    await who.plain(1, b"a")
    message, _ = await who.received()
    txn = await who.begin()
    await who.send(txn, 1, b"b")
    await who.ack(txn, 2, message)
    await broker.node.parts.topics.delete(TopicName.from_pulsar("t"), force=True)
    await who.end(txn, commit=True)
    await who.produce(5, "t")
    await who.consume(6, "t", kind=SHARED)
    await who.plain(5, b"c")
    assert await values(who, 1) == [b"c"]


async def test_a_subscription_that_is_deleted(who: Transacting) -> None:
    await who.plain(1, b"a")
    message, _ = await who.received()
    txn = await who.begin()
    await who.ack(txn, 2, message)
    await who.client.ask(C.UNSUBSCRIBE, consumer_id=2, request_id=5)
    await who.consume(3, "t", kind=SHARED)
    assert await values(who, 1) == [b"a"]
    await who.end(txn, commit=True)
    who.client.tell(C.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=3)
    assert await values(who, 1) == [b"a"]


async def test_a_topic_that_takes_no_more_messages_still_has_their_ends(
    broker: PulsarBroker, who: Transacting
) -> None:
    txn = await who.begin()
    await who.send(txn, 1, b"a")
    topic = await broker.node.parts.topics.open(TopicName.from_pulsar("t"))
    await topic.terminate()  # type: ignore[union-attr]
    await who.end(txn, commit=True)
    assert await values(who, 1) == [b"a"]


async def test_what_could_not_be_kept_is_delivered_again(
    broker: PulsarBroker, who: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise DiskFull("no room")

    await who.plain(1, b"a")
    message, _ = await who.received()
    txn = await who.begin()
    with monkeypatch.context() as patch:
        patch.setattr(StoredPendingAcks, "write", full)
        assert await refusal(who.ack(txn, 2, message)) == "PersistenceError"
    assert await values(who, 1) == [b"a"]
    await who.ack(txn, 2, message)
    await who.end(txn, commit=True)
    assert await quiet(who) == []


async def test_what_is_left_of_a_transaction_that_nobody_knows(
    broker: PulsarBroker, who: Transacting
) -> None:
    """As after a power failure that took the end of `__transaction_state`."""
    await who.plain(1, b"a")
    await who.received()
    name = CursorName("s", "t", 0)
    lost = encode(PendingAck([(0, [(0, 1)])]))
    parts = broker.node.parts
    await parts.states.write_pending_ack(OffsetKey(*name), TxnId(0, 77 << 15), 0, lost)
    await broker.node.parts.topics.unload(TopicName.from_pulsar("t"))
    await who.consume(3, "t", kind=SHARED)
    assert await values(who, 1) == [b"a"]


# --- the end, by whoever


async def test_time_is_over(who: Transacting) -> None:
    await who.plain(1, b"a")
    message, _ = await who.received()
    txn = await who.begin(timeout_ms=500)
    await who.send(txn, 1, b"b")
    await who.ack(txn, 2, message)
    await who.plain(1, b"c")
    assert sorted(await values(who, 2)) == [b"a", b"c"]
    assert await refusal(who.end(txn, commit=True)) == "TransactionNotFound"
    assert await refusal(who.send(txn, 1, b"d")) == "NotAllowedError"


async def test_who_repeats_an_end_is_told_that_it_is_done(who: Transacting) -> None:
    txn = await who.begin()
    await who.send(txn, 1, b"a")
    await who.end(txn, commit=True)
    await who.end(txn, commit=True)
    assert await refusal(who.end(txn, commit=False)) == "TransactionNotFound"
    await who.begin()
    assert await refusal(who.end(txn, commit=True)) == "TransactionNotFound"
    assert await values(who, 1) == [b"a"]
    assert await quiet(who) == []


async def test_transactions_that_are_none(who: Transacting) -> None:
    txn = await who.begin()
    for made_up in (
        TxnId(0, txn.number + 1),
        TxnId(1, txn.number),
        TxnId(0, (1 << 64) - 1),
        TxnId((1 << 64) - 1, 0),
        TxnId(0, 99 << 15),
    ):
        assert await refusal(who.end(made_up, commit=False)) == "TransactionNotFound"
        assert await refusal(who.send(made_up, 1, b"x")) == "TransactionNotFound"
    await who.end(txn, commit=True)
    following = TxnId(0, txn.number + 1)  # the one that would be next, but nobody has begun it
    assert await refusal(who.end(following, commit=False)) == "TransactionNotFound"
    assert await refusal(who.send(following, 1, b"x")) == "TransactionNotFound"


async def test_a_transaction_must_be_told_first(who: Transacting) -> None:
    txn = await who.begin()
    who._told |= {(txn, "t"), (txn, ("t", "s"))}
    assert await refusal(who.send(txn, 1, b"x")) == "NotAllowedError"
    message = await who.plain(1, b"a")
    assert await refusal(who.ack(txn, 2, message)) == "NotAllowedError"


async def test_there_are_sixteen_coordinators(who: Transacting) -> None:
    client = who.client
    answer = await client.ask(
        C.PARTITIONED_METADATA,
        topic="persistent://pulsar/system/transaction_coordinator_assign",
        request_id=1,
    )
    assert answer.partitioned_metadata_response.partitions == 16
    for number in (0, 15):
        answer = await client.ask(C.TC_CLIENT_CONNECT_REQUEST, coordinator_id=number, request_id=2)
        assert not answer.coordinator_connect_response.HasField("error")
    answer = await client.ask(C.TC_CLIENT_CONNECT_REQUEST, coordinator_id=16, request_id=3)
    assert answer.coordinator_connect_response.error == pb.ServerError.TransactionCoordinatorNotFound
    assert await refusal(who.begin(coordinator=16)) == "TransactionCoordinatorNotFound"


async def test_a_coordinator_elsewhere_hears_what_was_decided(who: Transacting) -> None:
    txn = await who.begin()
    bits = {"txnid_most_bits": txn.coordinator, "txnid_least_bits": txn.number, "action": pb.COMMIT}

    async def told() -> list[bool]:
        answers = [
            (await who.client.ask(C.END_TXN_ON_PARTITION, topic="t", request_id=1, **bits)),
            (await who.client.ask(C.END_TXN_ON_SUBSCRIPTION, request_id=2, **bits)),
        ]
        return [
            answers[0].end_transaction_on_partition_response.HasField("error"),
            answers[1].end_transaction_on_subscription_response.HasField("error"),
        ]

    assert await told() == [True, True]
    await who.end(txn, commit=True)
    assert await told() == [False, False]


async def test_no_more_than_are_allowed(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path, maxActiveTransactionsPerCoordinator="1", **ENABLED) as broker:
        who = Transacting(await broker.connect())
        txn = await who.begin()
        assert await refusal(who.begin()) == "TooManyRequests"
        await who.begin(coordinator=1)
        await who.end(txn, commit=True)
        await who.begin()


async def test_without_transactions_they_are_refused(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path) as broker:
        who = Transacting(await broker.connect())
        await who.produce(1, "t")
        await who.consume(2, "t")
        assert await refusal(who.begin()) == "NotAllowedError"
        assert await refusal(who.send(TxnId(0, 1), 1, b"a")) == "NotAllowedError"
        assert (
            await refusal(who.ack(TxnId(0, 1), 2, pb.MessageId(ledger_id=0, entry_id=0))) == "NotAllowedError"
        )


async def test_topics_that_store_nothing_are_in_no_transaction(who: Transacting) -> None:
    await who.produce(5, "non-persistent://public/default/n")
    txn = await who.begin()
    assert await refusal(who.send(txn, 5, b"a")) == "NotAllowedError"


async def test_deduplication_knows_messages_of_transactions(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path, brokerDeduplicationEnabled="true", **ENABLED) as broker:
        who = Transacting(await broker.connect())
        await who.produce(1, "t", producer_name="p", user_provided_producer_name=True)
        await who.consume(2, "t")
        txn = await who.begin()
        await who.send(txn, 1, b"a")
        who._sequences = iter([0, 1])  # type: ignore[assignment]
        again = await who.send(txn, 1, b"a")
        assert again.entry_id == (1 << 64) - 1
        await who.end(txn, commit=True)
        assert await values(who, 1) == [b"a"]
        assert await quiet(who) == []


def _some_of(id: pb.MessageId, left: int) -> pb.MessageId:
    """The messages of a batch whose bits are not in `left`."""
    return pb.MessageId(ledger_id=id.ledger_id, entry_id=id.entry_id, ack_set=[left])
