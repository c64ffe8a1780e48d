"""From SUBSCRIBE to ACK: delivery by permits, acknowledgement, redelivery, seeking, the end of consumers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.server.pulsar import connection as module
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from tests.support.entries import batch_of, entry_of
from tests.support.pulsar_wire import Client, PulsarBroker, frame, pulsar_broker

C = BaseCommand
EARLIEST = pb.MessageId(ledger_id=(1 << 64) - 1, entry_id=(1 << 64) - 1)
LATEST = pb.MessageId(ledger_id=(1 << 63) - 1, entry_id=(1 << 63) - 1)
EXCLUSIVE, SHARED, FAILOVER = 0, 1, 2


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PulsarBroker]:
    async with pulsar_broker(tmp_path) as running:
        yield running


async def fill(broker: PulsarBroker, *entries: bytes, topic: str = "t") -> None:
    client = await broker.connect()
    await client.ask(C.PRODUCER, topic=topic, producer_id=1, request_id=1)
    for n, entry in enumerate(entries):
        client.tell(C.SEND, entry, producer_id=1, sequence_id=n)
        await client.hear(C.SEND_RECEIPT)
    client.leave()


async def subscribe(client: Client, id: int = 1, kind: int = EXCLUSIVE, **fields: object) -> C:
    told = {"topic": "t", "subscription": "s", "consumer_name": f"c{id}", "initial_position": 1, **fields}
    return await client.ask(C.SUBSCRIBE, type=kind, consumer_id=id, request_id=200 + id, **told)


async def messages(client: Client, count: int) -> list[tuple[int, bytes]]:
    """Entry ids and the last byte of what came."""
    taken = []
    for _ in range(count):
        said = await client.message()
        assert said.entry is not None
        taken.append((said.command.message.message_id.entry_id, bytes(said.entry[-1:])))
    return taken


async def quiet(client: Client) -> list[str]:
    """What was said though nobody asked, after a while."""
    for _ in range(20):
        await asyncio.sleep(0)
    return client.heard()


async def test_as_many_as_there_is_room_for(broker: PulsarBroker) -> None:
    await fill(broker, *(entry_of(b"%d" % n) for n in range(5)))
    client = await broker.connect()
    assert (await subscribe(client)).type == C.SUCCESS
    assert await quiet(client) == []
    client.tell(C.FLOW, consumer_id=1, message_permits=2)
    assert await messages(client, 2) == [(0, b"0"), (1, b"1")]
    assert await quiet(client) == []
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    assert await messages(client, 3) == [(2, b"2"), (3, b"3"), (4, b"4")]


async def test_what_comes_is_delivered_as_it_was_sent(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await subscribe(client)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    sent = batch_of(b"a", b"b")
    await fill(broker, sent)
    said = await client.message()
    assert said.entry is not None
    assert bytes(said.entry) == sent
    assert said.command.message.message_id.partition == -1
    assert not said.command.message.HasField("redelivery_count")


async def test_acknowledged_messages_do_not_come_again(broker: PulsarBroker) -> None:
    await fill(broker, *(entry_of(b"%d" % n) for n in range(4)))
    client = await broker.connect()
    await subscribe(client)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    await messages(client, 4)
    ids = [pb.MessageId(ledger_id=0, entry_id=n) for n in (0, 2)]
    answer = await client.ask(C.ACK, consumer_id=1, type=0, message_id=ids, request_id=7)
    assert answer.type == C.ACK_RESPONSE
    assert not answer.ack_response.HasField("error")
    await client.ask(C.CLOSE_CONSUMER, consumer_id=1, request_id=8)
    await subscribe(client)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    assert await messages(client, 2) == [(1, b"1"), (3, b"3")]


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
async def test_a_great_many_at_once_let_others_have_their_turn(broker: PulsarBroker, kind: int) -> None:
    await fill(broker, *(entry_of(b"%d" % n) for n in range(4)))
    client, other = await broker.connect(), await broker.connect()
    await subscribe(client, kind=kind)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    await messages(client, 4)
    ids = [pb.MessageId(ledger_id=0, entry_id=0)] * 20_000 + [pb.MessageId(ledger_id=0, entry_id=2)]
    client.tell(C.ACK, consumer_id=1, type=0 if kind == SHARED else 1, message_id=ids, request_id=7)
    if kind == SHARED:
        other.tell(C.PING)
        await other.hear(C.PONG)
        assert client.heard() == []
    answer = await client.hear(C.ACK_RESPONSE)
    assert not answer.ack_response.HasField("error")
    await client.ask(C.CLOSE_CONSUMER, consumer_id=1, request_id=8)
    await subscribe(client, kind=kind)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    left = [(1, b"1"), (3, b"3")] if kind == SHARED else [(3, b"3")]
    assert await messages(client, len(left)) == left


async def test_what_makes_no_sense_is_passed_over(broker: PulsarBroker) -> None:
    await fill(broker, entry_of(b"0"))
    client = await broker.connect()
    await subscribe(client, kind=SHARED)
    odd = [
        frame(C.ACK, consumer_id=1, type=1, message_id=[pb.MessageId(ledger_id=0, entry_id=0)]),
        frame(C.ACK, consumer_id=1, type=0, message_id=[pb.MessageId(ledger_id=9, entry_id=1 << 62)]),
        frame(C.ACK, consumer_id=1, type=0, message_id=[EARLIEST, LATEST]),
        frame(C.ACK, consumer_id=1, type=1),
        frame(C.ACK, consumer_id=77, type=0),
        frame(C.FLOW, consumer_id=77, message_permits=1),
        frame(C.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=77),
        frame(
            C.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            consumer_id=1,
            message_ids=[EARLIEST, LATEST, pb.MessageId(ledger_id=0, entry_id=50)],
        ),
    ]
    client.send(b"".join(odd))
    assert await quiet(client) == []
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    assert await messages(client, 1) == [(0, b"0")]


async def test_with_a_receipt_it_is_refused(broker: PulsarBroker) -> None:
    await fill(broker, entry_of(b"0"))
    client = await broker.connect()
    await subscribe(client, kind=SHARED)
    ids = [pb.MessageId(ledger_id=0, entry_id=0)]
    answer = await client.ask(C.ACK, consumer_id=1, type=1, message_id=ids, request_id=7)
    assert answer.ack_response.error == pb.ServerError.NotAllowedError


@pytest.mark.parametrize("permits", [0, (1 << 32) - 1])
async def test_absurd_permits_end_the_connection(broker: PulsarBroker, permits: int) -> None:
    client = await broker.connect()
    await subscribe(client)
    client.tell(C.FLOW, consumer_id=1, message_permits=permits)
    await client.closed()


async def test_a_second_exclusive_consumer(broker: PulsarBroker) -> None:
    client, other = await broker.connect(), await broker.connect()
    await subscribe(client)
    assert (await subscribe(other)).error.error == pb.ServerError.ConsumerBusy
    client.leave()
    await asyncio.sleep(0)
    assert (await subscribe(other)).type == C.SUCCESS


async def test_failover_tells_who_is_active(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await subscribe(client, 1, FAILOVER)
    assert (await client.hear(C.ACTIVE_CONSUMER_CHANGE)).active_consumer_change.consumer_id == 1


async def test_negative_acks_come_again_with_a_count(broker: PulsarBroker) -> None:
    await fill(broker, entry_of(b"0"), entry_of(b"1"))
    client = await broker.connect()
    await subscribe(client, kind=SHARED)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    await messages(client, 2)
    ids = [pb.MessageId(ledger_id=0, entry_id=1)]
    client.tell(C.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=ids)
    again = (await client.message()).command.message
    assert (again.message_id.entry_id, again.redelivery_count) == (1, 1)


async def test_batch_indexes_that_are_left(broker: PulsarBroker) -> None:
    await fill(broker, batch_of(b"a", b"b", b"c"))
    client = await broker.connect()
    await subscribe(client, kind=SHARED)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    await client.message()
    ids = [pb.MessageId(ledger_id=0, entry_id=0, ack_set=[0b101])]
    await client.ask(C.ACK, consumer_id=1, type=0, message_id=ids, request_id=7)
    client.tell(C.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
    assert list((await client.message()).command.message.ack_set) == [0b101]


@pytest.mark.parametrize(("where", "first"), [(EARLIEST, 0), (pb.MessageId(ledger_id=0, entry_id=2), 2)])
async def test_seek_sends_consumers_back_to_subscribe(
    broker: PulsarBroker, where: pb.MessageId, first: int
) -> None:
    await fill(broker, *(entry_of(b"%d" % n) for n in range(4)))
    client = await broker.connect()
    await subscribe(client)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    await messages(client, 4)
    client.tell(C.SEEK, consumer_id=1, request_id=5, message_id=where)
    assert (await client.answer(5)).type == C.SUCCESS
    assert client.heard() == ["CLOSE_CONSUMER"]
    await subscribe(client)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    assert (await messages(client, 1))[0][0] == first


async def test_a_seek_says_where_to(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await subscribe(client)
    assert (await client.ask(C.SEEK, consumer_id=1, request_id=5)).type == C.ERROR
    gone = await client.ask(C.SEEK, consumer_id=9, request_id=6, message_id=EARLIEST)
    assert gone.error.error == pb.ServerError.MetadataError


async def test_last_message_id(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await subscribe(client)
    empty = (
        await client.ask(C.GET_LAST_MESSAGE_ID, consumer_id=1, request_id=1)
    ).get_last_message_id_response
    assert empty.last_message_id.entry_id == (1 << 64) - 1
    await fill(broker, entry_of(b"x"), batch_of(b"a", b"b"))
    said = (await client.ask(C.GET_LAST_MESSAGE_ID, consumer_id=1, request_id=2)).get_last_message_id_response
    assert (said.last_message_id.entry_id, said.last_message_id.batch_index) == (1, 1)


async def test_unsubscribe(broker: PulsarBroker) -> None:
    await fill(broker, entry_of(b"0"))
    client = await broker.connect()
    await subscribe(client, 1, SHARED)
    await subscribe(client, 2, SHARED)
    busy = await client.ask(C.UNSUBSCRIBE, consumer_id=1, request_id=5)
    assert busy.error.error == pb.ServerError.MetadataError
    await client.ask(C.CLOSE_CONSUMER, consumer_id=2, request_id=6)
    assert (await client.ask(C.UNSUBSCRIBE, consumer_id=1, request_id=7)).type == C.SUCCESS
    gone = await client.ask(C.UNSUBSCRIBE, consumer_id=1, request_id=8)
    assert gone.error.error == pb.ServerError.MetadataError


async def test_closed_while_it_is_being_opened(broker: PulsarBroker) -> None:
    client = await broker.connect()
    client.tell(C.SUBSCRIBE, topic="t", subscription="s", type=0, consumer_id=1, request_id=1)
    assert (await client.ask(C.CLOSE_CONSUMER, consumer_id=1, request_id=2)).type == C.SUCCESS
    assert (await subscribe(client)).type == C.SUCCESS


async def test_gone_while_it_is_being_opened(broker: PulsarBroker) -> None:
    lost, client = await broker.connect(), await broker.connect()
    await subscribe(client)  # the subscription is there
    await client.ask(C.CLOSE_CONSUMER, consumer_id=1, request_id=2)
    for turns in range(6):
        lost.tell(C.SUBSCRIBE, topic="t", subscription="s", type=0, consumer_id=1, request_id=1)
        for _ in range(turns):
            await asyncio.sleep(0)
        lost.leave()
        await quiet(client)
        lost = await broker.connect()
        assert (await subscribe(client)).type == C.SUCCESS, turns
        await client.ask(C.CLOSE_CONSUMER, consumer_id=1, request_id=2)


async def test_who_may_read_compacted(broker: PulsarBroker) -> None:
    client = await broker.connect()
    for kind in (pb.Subscribe.Shared, pb.Subscribe.Key_Shared):
        refused = await subscribe(client, kind=kind, read_compacted=True)
        assert refused.error.error == pb.ServerError.NotAllowedError
    refused = await subscribe(client, topic="non-persistent://public/default/t", read_compacted=True)
    assert refused.error.error == pb.ServerError.NotAllowedError
    assert (await subscribe(client, read_compacted=True)).type == C.SUCCESS


async def test_a_subscription_has_a_name(broker: PulsarBroker) -> None:
    client = await broker.connect()
    assert (await subscribe(client, 2, subscription="")).type == C.ERROR


async def test_a_client_that_does_not_read_gets_no_more(broker: PulsarBroker) -> None:
    await fill(broker, *(entry_of(bytes(200_000)) for _ in range(30)))
    client, other = await broker.connect(), await broker.connect()
    await subscribe(client)
    client.link.full = True
    client.tell(C.FLOW, consumer_id=1, message_permits=1000)
    await quiet(other)
    waiting = client.link.unsent
    assert module._FULL_BYTES < waiting < 3 * module._FULL_BYTES
    await quiet(other)
    assert client.link.unsent == waiting
    client.link.drain()
    client._peer.drained()
    assert len(await messages(client, 30)) == 30


async def test_stats_of_a_consumer(broker: PulsarBroker) -> None:
    await fill(broker, entry_of(b"0"), entry_of(b"1"))
    client = await broker.connect()
    await subscribe(client, kind=SHARED)
    client.tell(C.FLOW, consumer_id=1, message_permits=10)
    await messages(client, 2)
    said = (await client.ask(C.CONSUMER_STATS, consumer_id=1, request_id=4)).consumer_stats_response
    assert (said.available_permits, said.unacked_messages, said.msg_backlog) == (8, 2, 2)
    assert (said.type, said.consumer_name) == ("Shared", "c1")
    gone = (await client.ask(C.CONSUMER_STATS, consumer_id=9, request_id=5)).consumer_stats_response
    assert gone.error_code == pb.ServerError.MetadataError
