"""From PRODUCER to SEND_RECEIPT: names, order, refusals, and what a client may not do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.base.errors import NotOwner
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from tests.support.acknowledgements import Follower
from tests.support.entries import batch_of, entry_of
from tests.support.pulsar_wire import Client, PulsarBroker, frame, pulsar_broker

C = BaseCommand


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PulsarBroker]:
    async with pulsar_broker(tmp_path) as running:
        yield running


async def producer(client: Client, id: int = 1, topic: str = "t", **fields: object) -> pb.ProducerSuccess:
    answer = await client.ask(C.PRODUCER, topic=topic, producer_id=id, request_id=100 + id, **fields)
    assert answer.type == C.PRODUCER_SUCCESS, answer
    return answer.producer_success


async def refusal(client: Client, id: int = 2, topic: str = "t", **fields: object) -> str:
    answer = await client.ask(C.PRODUCER, topic=topic, producer_id=id, request_id=100 + id, **fields)
    assert answer.type == C.ERROR, answer
    return pb.ServerError.Name(answer.error.error)


async def test_names(broker: PulsarBroker) -> None:
    client = await broker.connect()
    first, second = await producer(client, 1), await producer(client, 2)
    assert first.producer_name
    assert second.producer_name not in ("", first.producer_name)
    assert (await producer(client, 3, producer_name="mine")).producer_name == "mine"
    assert await refusal(client, 4, producer_name="mine") == "ProducerBusy"
    assert first.last_sequence_id == -1
    assert first.producer_ready


async def test_receipts_come_in_order_and_in_one_write(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await producer(client)
    sends = client.link.sends
    client.send(
        b"".join(frame(C.SEND, entry_of(b"x", sequence=n), producer_id=1, sequence_id=n) for n in range(20))
    )
    receipts = [(await client.hear(C.SEND_RECEIPT)).send_receipt for _ in range(20)]
    assert [receipt.sequence_id for receipt in receipts] == list(range(20))
    assert [receipt.message_id.entry_id for receipt in receipts] == list(range(20))
    assert client.link.sends == sends + 1


async def test_sends_do_not_wait_for_each_others_acknowledgements(broker: PulsarBroker) -> None:
    """They are all in the log before the first is acknowledged; receipts keep the order of the sends."""
    held = Follower(broker.node.parts.host)
    client = await broker.connect()
    await producer(client)
    for n in range(3):
        client.tell(C.SEND, entry_of(b"x", sequence=n), producer_id=1, sequence_id=n)
    assert len(held.waiting) == 3
    assert client.heard() == []
    held.release(1)
    receipt = (await client.hear(C.SEND_RECEIPT)).send_receipt
    assert receipt.sequence_id == 0
    await asyncio.sleep(0)
    assert client.heard() == []
    held.refuse(NotOwner("broker 2 leads it"))
    errors = [(await client.hear(C.SEND_ERROR)).send_error for _ in range(2)]
    assert [error.sequence_id for error in errors] == [1, 2]
    held.is_holding = False


async def test_sends_to_different_topics_do_not_wait_for_each_other(broker: PulsarBroker) -> None:
    held = Follower(broker.node.parts.host)
    client = await broker.connect()
    for id, topic in enumerate("ab"):
        await producer(client, id, topic)
        client.tell(C.SEND, entry_of(b"x", sequence=0), producer_id=id, sequence_id=0)
    (_, (second, _)) = held.waiting
    held.release(partition=second)
    assert (await client.hear(C.SEND_RECEIPT)).send_receipt.producer_id == 1
    assert client.heard() == []
    held.release()
    assert (await client.hear(C.SEND_RECEIPT)).send_receipt.producer_id == 0
    held.is_holding = False


async def test_a_batch_takes_an_offset_a_message(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await producer(client)
    client.tell(C.SEND, batch_of(b"a", b"b", b"c"), producer_id=1, sequence_id=0, num_messages=3)
    client.tell(C.SEND, entry_of(b"d"), producer_id=1, sequence_id=3, highest_sequence_id=5)
    first, second = [(await client.hear(C.SEND_RECEIPT)).send_receipt for _ in range(2)]
    assert (first.message_id.entry_id, second.message_id.entry_id) == (0, 3)
    assert first.highest_sequence_id == (1 << 64) - 1
    assert second.highest_sequence_id == 5


async def test_a_wrong_checksum_is_refused_in_its_place(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await producer(client)
    damaged = bytearray(entry_of(b"hello"))
    damaged[-1] ^= 1
    client.send(
        frame(C.SEND, entry_of(b"a"), producer_id=1, sequence_id=0)
        + frame(C.SEND, bytes(damaged), producer_id=1, sequence_id=1)
        + frame(C.SEND, entry_of(b"b"), producer_id=1, sequence_id=2)
    )
    assert client.heard() == ["SEND_RECEIPT", "SEND_ERROR", "SEND_RECEIPT"]


async def test_metadata_that_is_none_ends_the_connection(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await producer(client)
    client.tell(C.SEND, b"\x00\x00\x00\x63nothing", producer_id=1, sequence_id=0)
    await client.closed()


async def test_a_message_in_a_transaction_is_refused(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await producer(client)
    client.tell(C.SEND, entry_of(b"x"), producer_id=1, sequence_id=0, txnid_least_bits=1, txnid_most_bits=1)
    error = (await client.hear(C.SEND_ERROR)).send_error
    assert error.error == pb.ServerError.NotAllowedError


async def test_the_same_id_again_is_the_same_producer(broker: PulsarBroker) -> None:
    client = await broker.connect()
    first = await producer(client)
    answer = await client.ask(C.PRODUCER, topic="t", producer_id=1, request_id=9)
    assert answer.producer_success.producer_name == first.producer_name


async def test_an_id_that_is_being_opened_is_taken(broker: PulsarBroker) -> None:
    client = await broker.connect()
    client.send(2 * frame(C.PRODUCER, topic="t", producer_id=1, request_id=1))
    first, second = await client.answer(1), await client.answer(1)
    assert first.error.error == pb.ServerError.ServiceNotReady
    assert second.type == C.PRODUCER_SUCCESS


async def test_closed_while_it_is_being_opened(broker: PulsarBroker) -> None:
    client = await broker.connect()
    client.tell(C.PRODUCER, topic="t", producer_id=1, request_id=1, producer_name="p")
    answer = await client.ask(C.CLOSE_PRODUCER, producer_id=1, request_id=2)
    assert answer.type == C.SUCCESS
    assert (await producer(client, 1, producer_name="p")).producer_name == "p"


async def test_closing_frees_the_name(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await producer(client, producer_name="p")
    assert (await client.ask(C.CLOSE_PRODUCER, producer_id=1, request_id=5)).type == C.SUCCESS
    await producer(client, 2, producer_name="p")
    assert (await client.ask(C.CLOSE_PRODUCER, producer_id=77, request_id=6)).type == C.SUCCESS


async def test_a_lost_connection_frees_the_name(broker: PulsarBroker) -> None:
    lost, client = await broker.connect(), await broker.connect()
    await producer(lost, producer_name="p")
    lost.leave()
    await asyncio.sleep(0)
    await producer(client, producer_name="p")


async def test_waiting_for_exclusive_access(broker: PulsarBroker) -> None:
    holder, waiting = await broker.connect(), await broker.connect()
    await producer(holder, producer_access_mode=pb.ProducerAccessMode.Exclusive)
    assert await refusal(waiting) == "ProducerBusy"
    first = await producer(waiting, 3, producer_access_mode=pb.ProducerAccessMode.WaitForExclusive)
    assert not first.producer_ready
    await holder.ask(C.CLOSE_PRODUCER, producer_id=1, request_id=7)
    second = (await waiting.answer(103)).producer_success
    assert second.producer_ready
    assert second.topic_epoch > 0


async def test_one_that_waits_can_be_closed(broker: PulsarBroker) -> None:
    holder, waiting = await broker.connect(), await broker.connect()
    await producer(holder)
    mode = pb.ProducerAccessMode.WaitForExclusive
    assert not (await producer(waiting, producer_access_mode=mode)).producer_ready
    assert (await waiting.ask(C.CLOSE_PRODUCER, producer_id=1, request_id=2)).type == C.SUCCESS
    await holder.ask(C.CLOSE_PRODUCER, producer_id=1, request_id=7)
    await producer(holder, 2)


async def test_fencing_closes_the_others(broker: PulsarBroker) -> None:
    old, new = await broker.connect(), await broker.connect()
    await producer(old)
    await producer(new, producer_access_mode=pb.ProducerAccessMode.ExclusiveWithFencing)
    assert (await old.hear(C.CLOSE_PRODUCER)).close_producer.producer_id == 1
    old.tell(C.SEND, entry_of(b"late"), producer_id=1, sequence_id=0)  # it has not heard yet
    old.tell(C.PING)
    assert old.heard() == ["PONG"]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("persistent://nobody/nowhere/t", "TopicNotFound"),
        ("persistent://a/b/c/d", "InvalidTopicName"),
        ("other://public/default/t", "InvalidTopicName"),
        ("persistent://public/default/", "InvalidTopicName"),
        ("a" * 300, "InvalidTopicName"),
    ],
)
async def test_topics_that_cannot_be(broker: PulsarBroker, topic: str, error: str) -> None:
    assert await refusal(await broker.connect(), topic=topic) == error


async def test_metadata_has_a_limit(broker: PulsarBroker) -> None:
    client = await broker.connect()
    pairs = [{"key": "k", "value": "v" * 2000}]
    assert await refusal(client, metadata=pairs) == "MetadataError"


async def test_names_have_a_limit(broker: PulsarBroker) -> None:
    client = await broker.connect()
    assert await refusal(client, producer_name="x" * 5000) == "NotAllowedError"
    assert await refusal(client, initial_subscription_name="x" * 5000) == "NotAllowedError"
    for long in ({"subscription": "x" * 5000}, {"subscription": "s", "consumer_name": "x" * 5000}):
        answer = await client.ask(C.SUBSCRIBE, topic="t", consumer_id=1, type=0, request_id=9, **long)
        assert answer.error.error == pb.ServerError.NotAllowedError


async def test_a_schema_is_refused_clearly(broker: PulsarBroker) -> None:
    client = await broker.connect()
    schema = pb.Schema(name="s", schema_data=b"{}", type=pb.Schema.Avro)
    assert await refusal(client, schema=schema) == "IncompatibleSchema"


async def test_a_subscription_from_the_first_message_on(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await producer(client, initial_subscription_name="s")
    client.tell(C.SEND, entry_of(b"x"), producer_id=1, sequence_id=0)
    await client.ask(
        C.SUBSCRIBE, topic="t", subscription="s", type=0, consumer_id=1, request_id=5, initial_position=0
    )
    client.tell(C.FLOW, consumer_id=1, message_permits=1)
    assert (await client.message()).command.message.message_id.entry_id == 0
    flying = "non-persistent://public/default/t"
    await producer(client, 2, topic=flying, initial_subscription_name="s")


async def test_no_subscription_where_none_may_be_made(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path, allowAutoSubscriptionCreation="false") as broker:
        client = await broker.connect()
        assert await refusal(client, initial_subscription_name="s") == "NotAllowedError"


async def test_receipts_wait_for_the_disk_in_order(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path, log_flush_interval_messages="1") as broker:
        client = await broker.connect()
        await producer(client)
        damaged = bytearray(entry_of(b"hello"))
        damaged[-1] ^= 1
        entries = [entry_of(b"a"), bytes(damaged), entry_of(b"b"), entry_of(b"c")]
        for n, entry in enumerate(entries):
            client.tell(C.SEND, entry, producer_id=1, sequence_id=n)
        assert client.heard() == []
        closing = client.ask(C.CLOSE_PRODUCER, producer_id=1, request_id=5)
        assert (await closing).type == C.SUCCESS  # the last of all
        assert client.heard() == ["SEND_RECEIPT", "SEND_ERROR", "SEND_RECEIPT", "SEND_RECEIPT"]


async def test_too_many_messages_without_receipts_pause_the_connection(tmp_path: Path) -> None:
    settings = {"maxPendingPublishRequestsPerConnection": "5", "log_flush_interval_messages": "1"}
    async with pulsar_broker(tmp_path, **settings) as broker:
        client = await broker.connect()
        await producer(client)
        for n in range(5):
            client.tell(C.SEND, entry_of(b"x"), producer_id=1, sequence_id=n)
        assert client.link.paused
        for _ in range(5):
            await client.hear(C.SEND_RECEIPT)
        assert not client.link.paused


async def test_a_publish_rate_pauses_the_connection(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path, maxPublishRatePerTopicInMessages="10") as broker:
        client = await broker.connect()
        await producer(client)
        for n in range(40):
            if client.link.paused:
                break
            client.tell(C.SEND, entry_of(b"x"), producer_id=1, sequence_id=n)
        assert client.link.paused
        assert n < 40


async def test_many_producers_are_closed_in_no_time(broker: PulsarBroker) -> None:
    client = await broker.connect()
    for id in range(2000):
        await producer(client, id)
    topics = broker.node.parts.topics
    [topic] = topics
    await topics.unload(topic.name)
    for id in range(2000):
        assert (await client.hear(C.CLOSE_PRODUCER)).close_producer.producer_id == id
    client.tell(C.SEND, entry_of(b"late"), producer_id=7, sequence_id=0)
    client.tell(C.PING)
    await client.hear(C.PONG)


async def test_a_connection_that_is_not_read_is_not_taken_for_dead(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path, maxPublishRatePerTopicInMessages="1") as broker:
        client, other = await broker.connect(), await broker.connect()
        await producer(client, producer_name="p")
        for n in range(20):
            client.tell(C.SEND, entry_of(b"x"), producer_id=1, sequence_id=n)
        assert client.link.paused
        assert await refusal(other, producer_name="p") == "ProducerBusy"
