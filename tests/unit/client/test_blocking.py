"""The client for programs that wait: connections, requests on their way, what is tried again."""

import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from anabranch.base.errors import Invalid, Unavailable
from anabranch.client.blocking import Client
from anabranch.client.destinations import ANY, GROUPS, Address, Coordinator, Leader, TopicPartition
from anabranch.client.requests import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    LIST_GROUPS,
    METADATA,
    PRODUCE,
    WRITE_TXN_MARKERS,
    Request,
)
from anabranch.client.settings import Settings
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.fake_brokers import FakeBrokers

B1, B2 = Address("b1", 9092), Address("b2", 9092)
PLACE = TopicPartition("orders", 0)
LISTING = Request(LIST_GROUPS, {"states_filter": [], "types_filter": []})
QUIET: dict[str, Any] = {"transactional_id": None, "acks": 0, "timeout": 1, "topic_data": []}


def listed(error_code: int = 0) -> dict[str, Any]:
    return {"error_code": error_code, "groups": []}


class VirtualTime:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses = 0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        self.now_s += seconds


@pytest.fixture
def brokers() -> FakeBrokers:
    made = FakeBrokers({1: B1, 2: B2})
    made.topics = {"orders": [(1, 3)]}
    made.coordinators = {"g": 2}
    made.answers[LIST_GROUPS] = lambda address, request: listed()
    return made


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def client(brokers: FakeBrokers, time: VirtualTime) -> Iterator[Client]:
    settings = Settings("b1:9092,b2:9092", timeout_s=10)
    with Client(settings, brokers.dial, time.monotonic, time.sleep, Random(1)) as made:
        yield made


def test_one_connection_per_broker_and_one_greeting(client: Client, brokers: FakeBrokers) -> None:
    for _ in range(3):
        client.send(ANY, LISTING)
        client.send(Leader(PLACE), LISTING)
        client.send(Coordinator(GROUPS, "g"), LISTING)
    assert brokers.opened == [B1, B2]
    assert brokers.of(API_VERSIONS) == ["b1", "b2"]
    assert brokers.of(METADATA) == ["b1"]
    assert len(brokers.of(FIND_COORDINATOR)) == 1


def test_a_leader_that_moves(client: Client, brokers: FakeBrokers, time: VirtualTime) -> None:
    def not_here(address: Address, request: Any) -> Any:
        brokers.topics["orders"] = [(2, 4)]
        return listed(0 if address == B2 else int(ErrorCode.not_leader_or_follower))

    brokers.answers[LIST_GROUPS] = not_here
    client.send(Leader(PLACE), LISTING)
    assert brokers.of(LIST_GROUPS) == ["b1", "b2"]
    assert time.pauses == 1


def test_a_broker_that_goes_and_comes_back(client: Client, brokers: FakeBrokers, time: VirtualTime) -> None:
    client.send(Leader(PLACE), LISTING)
    brokers.away = {B1, B2}
    with pytest.raises(Unavailable, match="cannot be reached"):
        client.send(Leader(PLACE), LISTING)
    assert 1009 < time.now_s < 1011
    brokers.away = set()
    client.send(Leader(PLACE), LISTING)
    assert brokers.opened.count(B1) == 2


def test_requests_on_their_way_are_answered_in_order(client: Client, brokers: FakeBrokers) -> None:
    numbers = iter(range(100))
    brokers.answers[LIST_GROUPS] = lambda address, request: listed(next(numbers))
    pending = [client.start(Leader(PLACE), LISTING) for _ in range(4)]
    assert client.send(B1, LISTING._replace(codes=lambda answer: iter(()))).error_code == 4
    assert [one.take(1).error_code for one in pending] == [0, 1, 2, 3]


def test_what_is_fetched_uses_the_same_memory_unless_it_waits(client: Client, brokers: FakeBrokers) -> None:
    fills = iter(range(1, 100))

    def fetched(address: Address, request: Any) -> Any:
        part = {
            "partition_index": 0,
            "error_code": 0,
            "high_watermark": 9,
            "last_stable_offset": 9,
            "log_start_offset": 0,
            "aborted_transactions": [],
            "preferred_read_replica": -1,
            "records": bytes((next(fills),)) * 200_000,
        }
        return {"error_code": 0, "session_id": 0, "responses": [{"topic": "t", "partitions": [part]}]}

    brokers.answers[FETCH] = fetched
    values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [], "forgotten_topics_data": []}
    fetching = Request(FETCH, {"replica_id": -1, "isolation_level": 0, **values})

    def records(answer: Any) -> memoryview:
        found = answer.responses[0].partitions[0].records
        assert type(found) is memoryview
        return found

    first, second, third = (client.start(B1, fetching) for _ in range(3))
    of_third = records(third.take(1))
    assert (records(first.take(1))[0], records(second.take(1))[0], of_third[0]) == (1, 2, 3)
    fourth = records(client.start(B1, fetching).take(1))
    assert (of_third[0], fourth[0]) == (4, 4)


def test_what_needs_no_answer(client: Client, brokers: FakeBrokers) -> None:
    brokers.answers[PRODUCE] = lambda address, request: {"responses": []}
    assert client.send(Leader(PLACE), Request(PRODUCE, QUIET)) is None
    client.start(Leader(PLACE), Request(PRODUCE, QUIET))
    client.send(Leader(PLACE), LISTING)
    assert brokers.of(PRODUCE) == ["b1", "b1"]


def test_what_is_started_is_tried_once(client: Client, brokers: FakeBrokers, time: VirtualTime) -> None:
    pending = client.start(Leader(PLACE), LISTING)
    lost = client.start(Leader(PLACE), LISTING)
    pending.take(1)
    brokers.away = {B1}
    lost.take(1)  # it came with the other
    with pytest.raises(Unavailable, match="does not take a request"):
        client.start(Leader(PLACE), LISTING)
    with pytest.raises(Unavailable, match="cannot be reached"):
        client.start(Leader(PLACE), LISTING)
    assert time.pauses == 0
    brokers.topics["orders"] = [(2, 4)]
    client.start(Leader(PLACE), LISTING).take(1)


def test_an_answer_that_is_lost(client: Client, brokers: FakeBrokers) -> None:
    brokers.spoil = lambda api_key, frame: b"" if api_key == LIST_GROUPS else frame
    first, second = client.start(B1, LISTING), client.start(B1, LISTING)
    with pytest.raises(Unavailable, match="closed the connection"):
        first.take(1)
    with pytest.raises(Unavailable, match="closed the connection"):
        second.take(1)


def test_persisting(client: Client, brokers: FakeBrokers, time: VirtualTime) -> None:
    tries: list[float] = []

    def ask() -> str:
        tries.append(time.now_s)
        client.send(Leader(PLACE), LISTING)
        if len(tries) < 4:
            raise Unavailable("not yet")
        return "now"

    assert client.persist(ask) == "now"
    assert len(brokers.of(METADATA)) == 4  # who leads is looked up again each time
    tries.clear()
    with pytest.raises(Unavailable, match="never"):
        client.persist(lambda: _raise(Unavailable("never")), 5)
    assert 1004 < time.now_s < 1007


def _raise(error: Exception) -> None:
    raise error


def test_what_the_broker_does_not_know_is_the_callers_mistake(client: Client, brokers: FakeBrokers) -> None:
    del brokers.versions[WRITE_TXN_MARKERS]
    with pytest.raises(Invalid, match="does not know write_txn_markers"):
        client.send(ANY, Request(WRITE_TXN_MARKERS, {"markers": []}))


def test_a_server_that_says_nothing(brokers: FakeBrokers) -> None:
    """On a real socket: it takes the connection and never answers."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        with (
            Client(Settings(f"{host}:{port}", timeout_s=0.3)) as client,
            pytest.raises(Unavailable, match="does not answer: timed out"),
        ):
            client.send(ANY, LISTING)


def test_a_server_that_speaks_otherwise() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            taken, _ = other.accept()
            with taken:
                taken.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                taken.recv(1000)

        thread = threading.Thread(target=greet)
        thread.start()
        host, port = other.getsockname()
        with (
            Client(Settings(f"{host}:{port}", timeout_s=0.01)) as client,
            pytest.raises(Unavailable, match=r"gave no answer: an answer of \d+ bytes|timed out"),
        ):
            client.send(ANY, LISTING)
        thread.join()
