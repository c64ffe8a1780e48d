"""Requests sent by hand: to whom they go, at which version, and what is said of answers that are none."""

import io
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from anabranch.cli import exchange as module
from anabranch.cli.exchange import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, Exchange
from anabranch.cli.failure import CommandError
from anabranch.wire.kafka.decoder import Cursor, decode, skip_tags
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import ErrorCode, answers_flexibly, is_flexible

Answers = dict[int, Callable[[Any], Mapping[str, Any]]]
VERSIONS = {3: (0, 12), 10: (0, 6), 18: (0, 4), 65: (0, 0), 66: (0, 1)}
BROKERS = [{"node_id": n, "host": f"b{n}", "port": 9092, "rack": None} for n in (1, 2)]


class FakeSocket:
    """A connection to a broker that answers each request as it arrives."""

    def __init__(self, broker: "FakeBrokers", host: str) -> None:
        self._broker = broker
        self._host = host
        self._answers = io.BytesIO()
        self.closed = False

    def sendall(self, data: bytes) -> None:
        api_key, version, correlation, _ = struct.unpack_from(">hhih", data, 4)
        cursor = Cursor(memoryview(bytes(data)), 4 + 10 + len(b"anabranch-cli"))
        if is_flexible(api_key, version):
            skip_tags(cursor)
        request = decode(api_key, version, cursor.frame, cursor.at)
        self._broker.asked.append((self._host, api_key, version))
        body = bytearray(struct.pack(">i", correlation))
        body += b"\0" if answers_flexibly(api_key, version) else b""
        encoder(api_key, version)(body, self._broker.answers[api_key](request))
        self._say(self._broker.spoil(bytes(body)))

    def _say(self, frame: bytes) -> None:
        at = self._answers.tell()
        self._answers.seek(0, io.SEEK_END)
        self._answers.write(struct.pack(">i", len(frame)) + frame if frame else b"")
        self._answers.seek(at)

    def makefile(self, mode: str) -> io.BytesIO:
        return self._answers

    def close(self) -> None:
        self.closed = True


class FakeBrokers:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.sockets: list[FakeSocket] = []
        self.away: set[str] = set()
        self.spoil: Callable[[bytes], bytes] = lambda frame: frame
        self.answers: Answers = {
            3: lambda request: {"brokers": BROKERS, "controller_id": 1, "topics": [self._topic()]},
            10: lambda request: {"coordinators": [self._coordinator(request.coordinator_keys[0])]},
            18: lambda request: {
                "api_keys": [
                    {"api_key": key, "min_version": least, "max_version": most}
                    for key, (least, most) in VERSIONS.items()
                ]
            },
            65: lambda request: {"transaction_states": []},
            66: lambda request: {"transaction_states": [], "unknown_state_filters": []},
        }
        monkeypatch.setattr(module, "reach", lambda bootstrap: None)
        monkeypatch.setattr(module.socket, "create_connection", self._connect)

    def _connect(self, address: tuple[str, int], timeout: float) -> FakeSocket:
        if address[0] in self.away:
            raise ConnectionRefusedError("nobody is there")
        self.sockets.append(FakeSocket(self, address[0]))
        return self.sockets[-1]

    @staticmethod
    def _topic() -> dict[str, Any]:
        parts = [
            {
                "partition_index": index,
                "leader_id": index + 1,
                "leader_epoch": 0,
                "replica_nodes": [],
                "isr_nodes": [],
                "offline_replicas": [],
            }
            for index in (1, 0)
        ]
        return {"name": "t", "topic_id": None, "is_internal": False, "partitions": parts}

    @staticmethod
    def _coordinator(key: str) -> dict[str, Any]:
        code = ErrorCode.coordinator_not_available if key == "lost" else ErrorCode.none
        return {"key": key, "node_id": 2, "host": "b2", "port": 9092, "error_code": code, "error_message": ""}

    def of(self, api_key: int) -> list[tuple[str, int]]:
        return [(host, version) for host, key, version in self.asked if key == api_key]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    return FakeBrokers(monkeypatch)


def test_the_newest_version_that_both_know_and_one_connection_a_broker(brokers: FakeBrokers) -> None:
    with Exchange("b1:9092") as exchange:
        for _ in range(2):
            exchange.to_any(LIST_TRANSACTIONS, {"state_filters": [], "producer_id_filters": []})
    assert brokers.of(LIST_TRANSACTIONS) == [("b1", 1)] * 2
    assert brokers.of(18) == [("b1", 0)]
    assert [one.closed for one in brokers.sockets] == [True]


def test_who_is_asked(brokers: FakeBrokers) -> None:
    values = {"transactional_ids": ["payments"], "state_filters": [], "producer_id_filters": []}
    with Exchange("b1:9092") as exchange:
        exchange.to_coordinator(DESCRIBE_TRANSACTIONS, "payments", values)
        exchange.to_all(LIST_TRANSACTIONS, values)
        exchange.to_leader(LIST_TRANSACTIONS, "t", 1, values)
        assert exchange.partitions("t") == [0, 1]
    assert brokers.of(DESCRIBE_TRANSACTIONS) == [("b2", 0)]
    assert [host for host, _ in brokers.of(LIST_TRANSACTIONS)] == ["b1", "b2", "b2"]


def test_the_next_address_if_one_is_away(brokers: FakeBrokers) -> None:
    values = {"state_filters": [], "producer_id_filters": []}
    brokers.away = {"b1"}
    with Exchange("b1:9092, b2:9092") as exchange:
        exchange.to_any(LIST_TRANSACTIONS, values)
    assert brokers.of(LIST_TRANSACTIONS) == [("b2", 1)]
    brokers.away = {"b1", "b2"}
    with Exchange("b1:9092,b2:9092") as exchange, pytest.raises(CommandError, match="b2:9092 gave no answer"):
        exchange.to_any(LIST_TRANSACTIONS, values)


def test_what_cannot_be_done_is_said(brokers: FakeBrokers) -> None:
    with Exchange("b1:9092") as exchange:
        with pytest.raises(CommandError, match="'lost': COORDINATOR_NOT_AVAILABLE"):
            exchange.to_coordinator(DESCRIBE_TRANSACTIONS, "lost", {"transactional_ids": []})
        with pytest.raises(CommandError, match="t has no partition 7"):
            exchange.to_leader(LIST_TRANSACTIONS, "t", 7, {})
        with pytest.raises(CommandError, match="does not know"):
            exchange.to_any(module.DESCRIBE_PRODUCERS, {"topics": []})
    assert module.error_name(9999) == "error 9999"


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda frame: b"", "closed the connection"),
        (lambda frame: frame[:1], "an answer of 1 bytes"),
        (lambda frame: b"\0\0\0\x63" + frame[4:], "the answer to request 99, not 1"),
        (lambda frame: frame[:-1], "gave no answer"),
    ],
)
def test_an_answer_that_is_none(
    brokers: FakeBrokers, spoil: Callable[[bytes], bytes], complaint: str
) -> None:
    brokers.spoil = spoil
    with Exchange("b1:9092") as exchange, pytest.raises(CommandError, match=complaint):
        exchange.to_any(LIST_TRANSACTIONS, {})
