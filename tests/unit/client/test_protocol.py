"""Bytes of a connection: any chunking gives the same answers, what is none is Corrupt, memory is bounded."""

import struct
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from anabranch.base.errors import Corrupt, Invalid
from anabranch.client.destinations import Address
from anabranch.client.protocol import ClientProtocol
from anabranch.client.requests import (
    API_VERSIONS,
    DESCRIBE_PRODUCERS,
    END_TXN,
    FETCH,
    LIST_GROUPS,
    METADATA,
    PRODUCE,
    Request,
)
from anabranch.wire.kafka.decoder import decode
from tests.support.fake_brokers import FakeBrokers

HERE = Address("b1", 9092)
GROUPS = Request(LIST_GROUPS, {"states_filter": [], "types_filter": []})


@pytest.fixture
def brokers() -> FakeBrokers:
    made = FakeBrokers({1: HERE})
    made.answers[LIST_GROUPS] = lambda address, request: {"error_code": 0, "groups": []}
    return made


def opened(brokers: FakeBrokers) -> ClientProtocol:
    protocol = ClientProtocol("tests")
    assert not protocol.is_ready
    feed(protocol, brokers.answer(HERE, bytes(protocol.send(protocol.first)[1])))
    assert protocol.next_answer() is not None
    assert protocol.is_ready
    return protocol


def feed(protocol: ClientProtocol, data: bytes) -> int:
    """What fits goes in; how much that was."""
    room = protocol.buffer()
    size = min(len(room), len(data))
    room[:size] = data[:size]
    protocol.received(size)
    return size


def fetched(size: int, fill: int) -> dict[str, Any]:
    part = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 9,
        "last_stable_offset": 9,
        "log_start_offset": 0,
        "aborted_transactions": [],
        "preferred_read_replica": -1,
        "records": bytes((fill,)) * size,
    }
    return {"error_code": 0, "session_id": 0, "responses": [{"topic": "t", "partitions": [part]}]}


FETCHING = Request(
    FETCH,
    {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [],
        "forgotten_topics_data": [],
        "rack_id": "",
    },
)


@pytest.mark.parametrize("reuses", [False, True])
def test_any_chunking_gives_the_same_answers(brokers: FakeBrokers, reuses: bool) -> None:
    random = Random(3)
    for _ in range(20):
        protocol = opened(brokers)
        sizes = [random.choice((0, 10, 50_000, 65_532, 65_537, 300_000, 2_000_000)) for _ in range(6)]
        stream = b""
        numbers = []
        for index, size in enumerate(sizes):
            brokers.answers[FETCH] = lambda address, request, size=size, index=index: fetched(size, index + 1)
            number, data = protocol.send(FETCHING)
            numbers.append(number)
            stream += brokers.answer(HERE, bytes(data))
        got = []
        while len(got) < len(sizes):
            protocol.reuse_memory(reuses)
            if (answered := protocol.next_answer()) is not None:
                records = answered[1].responses[0].partitions[0].records
                got.append((answered[0], len(records), set(bytes(records[:10]) + bytes(records[-10:]))))
            else:
                piece = random.choice((1, 3, 1000, 65_536, 1 << 20))
                fed = feed(protocol, stream[:piece])
                assert fed
                stream = stream[fed:]
        expected = [
            (number, size, {i + 1} if size else set())
            for i, (number, size) in enumerate(zip(numbers, sizes, strict=True))
        ]
        assert got == expected


def test_large_answers_are_not_copied_and_keep_their_memory(brokers: FakeBrokers) -> None:
    for reuses in (False, True):
        protocol = opened(brokers)
        protocol.reuse_memory(reuses)
        views = []
        for fill in (1, 2):
            brokers.answers[FETCH] = lambda address, request, fill=fill: fetched(3_000_000, fill)
            stream = brokers.answer(HERE, bytes(protocol.send(FETCHING)[1]))
            while (answered := protocol.next_answer()) is None:
                stream = stream[feed(protocol, stream) :]
            views.append(answered[1].responses[0].partitions[0].records)
        assert type(views[0]) is memoryview
        assert (views[0][0], views[1][0]) == ((2, 2) if reuses else (1, 2))


def test_requests_at_the_newest_version_that_both_know(brokers: FakeBrokers) -> None:
    brokers.versions = {API_VERSIONS: (0, 4), METADATA: (0, 5), LIST_GROUPS: (0, 99), END_TXN: (5, 9)}
    protocol = opened(brokers)
    assert protocol.version(Request(METADATA, {})) == 5
    assert protocol.version(GROUPS) == 5
    assert protocol.version(GROUPS._replace(newest=2)) == 2
    with pytest.raises(Invalid, match="does not know describe_producers"):
        protocol.version(Request(DESCRIBE_PRODUCERS, {}))
    with pytest.raises(Invalid, match="does not know end_txn"):
        protocol.version(Request(END_TXN, {}))
    with pytest.raises(Invalid, match="does not know list_groups"):
        ClientProtocol("tests").send(GROUPS)


def test_tags_of_our_own_go_along(brokers: FakeBrokers) -> None:
    protocol = opened(brokers)
    plain = protocol.send(GROUPS)[1]
    tagged = protocol.send(GROUPS._replace(tags={7: b"abc", 300: b""}))[1]
    assert tagged[8:12] == b"\0\0\0\x03"
    assert bytes(tagged[12:]) == bytes(plain[12:-1]) + b"\x02\x07\x03abc\xac\x02\x00"
    assert struct.unpack_from(">i", tagged)[0] == len(tagged) - 4
    decode(LIST_GROUPS, 5, memoryview(bytes(tagged)), 4 + 10 + len("tests") + 1)


def test_what_needs_no_answer_is_not_waited_for(brokers: FakeBrokers) -> None:
    protocol = opened(brokers)
    values = {"transactional_id": None, "acks": 0, "timeout": 1, "topic_data": []}
    protocol.send(Request(PRODUCE, values))
    number, data = protocol.send(GROUPS)
    feed(protocol, brokers.answer(HERE, bytes(data)))
    answered = protocol.next_answer()
    assert answered is not None
    assert answered[0] == number


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda frame: struct.pack(">i", 3) + frame[4:], "an answer of 3 bytes"),
        (lambda frame: struct.pack(">i", -1) + frame[4:], "an answer of -1 bytes"),
        (lambda frame: struct.pack(">i", (256 << 20) + 1) + frame[4:], "an answer of 268435457 bytes"),
        (lambda frame: frame[:4] + b"\0\0\0\x63" + frame[8:], "the answer to request 99, not 2"),
        (lambda frame: struct.pack(">i", len(frame) - 5) + frame[4:-1], "the frame ends|claims"),
    ],
)
def test_an_answer_that_is_none(brokers: FakeBrokers, spoil: Any, complaint: str) -> None:
    protocol = opened(brokers)
    brokers.answers[LIST_GROUPS] = lambda address, request: {
        "error_code": 0,
        "groups": [{"group_id": "g", "protocol_type": "p", "group_state": "s", "group_type": "t"}],
    }
    frame = brokers.answer(HERE, bytes(protocol.send(GROUPS)[1]))
    feed(protocol, spoil(frame))
    with pytest.raises(Corrupt, match=complaint):
        protocol.next_answer()


def test_an_answer_to_nothing(brokers: FakeBrokers) -> None:
    protocol = opened(brokers)
    feed(protocol, b"\0\0\0\x04\0\0\0\x01")
    with pytest.raises(Corrupt, match="an answer of 4 bytes"):
        protocol.next_answer()


def test_a_claim_of_a_gigabyte_takes_no_memory(brokers: FakeBrokers) -> None:
    protocol = opened(brokers)
    protocol.send(FETCHING)
    before = resident()
    feed(protocol, struct.pack(">i", 1 << 30) + b"x" * 100)
    assert protocol.next_answer() is None
    assert len(protocol.buffer()) == (1 << 30) - 100
    assert resident() - before < 50 << 20


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_garbage_gives_corrupt_only(brokers: FakeBrokers) -> None:
    random = Random(5)
    brokers.answers[FETCH] = lambda address, request: fetched(200, 1)
    for _ in range(300):
        protocol = opened(brokers)
        frame = bytearray(brokers.answer(HERE, bytes(protocol.send(FETCHING)[1])))
        for _ in range(random.randrange(1, 6)):
            frame[random.randrange(4, len(frame))] = random.randrange(256)
        feed(protocol, bytes(frame))
        with suppress(Corrupt):
            protocol.next_answer()


def test_a_broker_without_versions(brokers: FakeBrokers) -> None:
    brokers.answers[API_VERSIONS] = lambda address, request: {"error_code": 35, "api_keys": []}
    protocol = ClientProtocol("tests")
    feed(protocol, brokers.answer(HERE, bytes(protocol.send(protocol.first)[1])))
    with pytest.raises(Corrupt, match="error 35"):
        protocol.next_answer()
