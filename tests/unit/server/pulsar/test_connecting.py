"""A connection's beginning and end: CONNECT, signs of life, what breaks the protocol, the broker's stop."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from tests.support.entries import entry_of
from tests.support.pulsar_wire import PulsarBroker, frame, pulsar_broker

C = BaseCommand


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PulsarBroker]:
    async with pulsar_broker(tmp_path) as running:
        yield running


@pytest.mark.parametrize(("asked", "told"), [(21, 21), (20, 20), (40, 21), (0, 0)])
async def test_the_lower_protocol_version_holds(broker: PulsarBroker, asked: int, told: int) -> None:
    answer = await broker.meet().connect(asked)
    assert answer.protocol_version == told
    assert answer.max_message_size == 5 << 20
    assert answer.server_version
    assert answer.feature_flags.supports_topic_watchers


async def test_ping_is_answered(broker: PulsarBroker) -> None:
    client = await broker.connect()
    client.tell(C.PING)
    await client.hear(C.PONG)


@pytest.mark.parametrize(
    "first",
    [
        frame(C.PING),
        frame(C.LOOKUP, topic="t", request_id=1),
        frame(C.SEND, entry_of(b"x"), producer_id=1, sequence_id=0),
    ],
)
async def test_nothing_comes_before_connect(broker: PulsarBroker, first: bytes) -> None:
    client = broker.meet()
    client.send(first)
    await client.closed()
    assert client.heard() == []


@pytest.mark.parametrize(
    "wrong",
    [
        frame(C.CONNECT, client_version="again"),
        b"\x00\x00\x00\x06\x00\x00\x00\x02\x08\x63",  # command 99
        b"\x00\x00\x00\x06\x00\x00\x00\x02\x08\x17",  # LOOKUP with nothing in it
        b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff",  # not protobuf
        b"\x00\x00\x00\x08\x00\x00\xff\xff\x08\x12\x00\x00",  # a command larger than its frame
        b"\x00\x00\x00\x02\x00\x00",  # no room for a size
        b"\x7f\xff\xff\xff",  # a frame of 2 GB
        b"\xff\xff\xff\xff",
        frame(C.SUCCESS, request_id=1),  # not for a broker to hear
        frame(C.SEND, producer_id=1, sequence_id=0),  # without a message
        frame(C.SEND, entry_of(b"x"), producer_id=1, sequence_id=0),  # of a producer that is not there
        frame(C.AUTH_RESPONSE),
    ],
)
async def test_what_breaks_the_protocol_ends_the_connection(broker: PulsarBroker, wrong: bytes) -> None:
    other, client = await broker.connect(), await broker.connect()
    client.send(wrong)
    await client.closed()
    other.tell(C.PING)
    await other.hear(C.PONG)


async def test_commands_in_pieces(broker: PulsarBroker) -> None:
    client = broker.meet()
    said = frame(C.CONNECT, client_version="c", protocol_version=21) + 2 * frame(C.PING)
    for byte in said:
        client.send(bytes((byte,)))
    await client.hear(C.CONNECTED)
    assert client.heard() == ["PONG", "PONG"]


async def test_the_answers_of_a_read_leave_in_one_write(broker: PulsarBroker) -> None:
    client = await broker.connect()
    before = client.link.sends
    client.send(50 * frame(C.PING))
    assert client.link.sends == before + 1
    assert client.heard() == ["PONG"] * 50


async def test_a_stop_tells_clients_to_look_elsewhere(tmp_path: Path) -> None:
    async with pulsar_broker(tmp_path) as broker:
        client = await broker.connect()
        await client.ask(C.PRODUCER, topic="t", producer_id=1, request_id=1)
        await client.ask(
            C.SUBSCRIBE, topic="t", subscription="s", type=0, consumer_id=1, request_id=2, consumer_name="c"
        )
        client.heard()
    assert client.heard() == ["CLOSE_PRODUCER", "CLOSE_CONSUMER"]
    assert client.link.aborted
