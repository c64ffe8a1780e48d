"""Clients that speak the protocol and abuse it: never read, never leave, send bombs.

Memory is looked at from outside, in /proc, and a bystander must not notice.
"""

import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from anabranch.records.builder import build_batch
from anabranch.records.record import Record
from tests.compat.clients import raw
from tests.support.broker import BrokerProcess
from tests.support.hostile import Bystander, Requests, memory_mb, open_files, unexpected
from tests.support.logs import START_MS

IDLE_CONNECTIONS = 2000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))  # ours and the broker's
    with BrokerProcess(tmp_path_factory.mktemp("abused")) as running:
        yield running
        assert running.running, running.last_lines()
        assert not unexpected(running.log), unexpected(running.log)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    with Bystander(broker.bootstrap) as other:
        yield other


@pytest.fixture(autouse=True)
def unharmed(bystander: Bystander) -> Iterator[None]:
    yield
    bystander.check()


def connected(broker: BrokerProcess, receive_bytes: int = 0) -> socket.socket:
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    host, port = broker.bootstrap.rsplit(":", 1)
    client.settimeout(60)
    client.connect((host, int(port)))
    return client


def request(key: int, version: int, values: dict[str, object]) -> bytes:
    requests = Requests()
    requests.send(key, version, values)
    return requests.data


def closes(broker: BrokerProcess, most: int) -> bool:
    """Whether the broker has no more descriptors than so many, at last."""
    deadline = time.monotonic() + 60
    while open_files(broker.pid) > most and time.monotonic() < deadline:
        time.sleep(0.05)
    return open_files(broker.pid) <= most


def push(client: socket.socket, data: bytes, seconds: float) -> int:
    """Send `data` again and again without reading anything.  How many times it went out."""
    client.settimeout(0.2)
    sent, deadline = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            client.sendall(data)
            sent += 1
    except (TimeoutError, ConnectionError):
        pass
    return sent


@pytest.fixture(scope="module")
def large_topic(broker: BrokerProcess) -> object:
    """60 MB in one partition."""
    with raw.Connection(broker.bootstrap) as client:
        topic_id = raw.create_topic(client, "large")
        batch = raw.batch([bytes(900_000)])
        for _ in range(70):
            assert raw.produce(client, "large", batch).error_code == 0
        return topic_id


# --- clients that do not read


def test_fetches_whose_answers_nobody_reads(broker: BrokerProcess, large_topic: object) -> None:
    fetch = raw.fetch_request([(large_topic, [(0, 0)])], partition_max_bytes=50 << 20)
    data = request(raw.FETCH, 16, fetch | {"max_bytes": 50 << 20})
    before = memory_mb(broker.pid)
    clients = [connected(broker, 4096) for _ in range(20)]
    threads = [threading.Thread(target=push, args=(client, data, 3)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory_mb(broker.pid) - before < 60
    for client in clients:
        client.close()


def test_metadata_whose_answers_nobody_reads(broker: BrokerProcess) -> None:
    with raw.Connection(broker.bootstrap) as client:
        for number in range(60):
            raw.create_topic(client, f"many-{number}", partitions=50)
    data = request(raw.METADATA, 12, {"topics": None}) * 200
    before = memory_mb(broker.pid)
    clients = [connected(broker, 4096) for _ in range(20)]
    threads = [threading.Thread(target=push, args=(client, data, 3)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory_mb(broker.pid) - before < 100
    for client in clients:
        client.close()


def test_answers_that_pile_up_behind_one_that_waits(broker: BrokerProcess, bystander: Bystander) -> None:
    """A fetch that waits for an hour, and behind it what it keeps from being sent."""
    with raw.Connection(broker.bootstrap) as client:
        topic_id = raw.create_topic(client, "quiet")
    wait = raw.fetch_request([(topic_id, [(0, 0)])], max_wait=3_600_000)
    before = memory_mb(broker.pid)
    clients = [connected(broker) for _ in range(20)]
    for client in clients:
        client.sendall(request(raw.FETCH, 16, wait))
        push(client, request(raw.METADATA, 12, {"topics": None}) * 50, 0.2)
    assert memory_mb(broker.pid) - before < 100
    bystander.check()
    for client in clients:
        client.close()


def test_one_connection_does_not_keep_the_broker_busy(broker: BrokerProcess, bystander: Bystander) -> None:
    """Thousands of expensive requests in one go, all answers read: others are served before they are done."""
    count = 2000
    client = connected(broker)
    client.sendall(request(raw.METADATA, 12, {"topics": None}))
    with client.makefile("rb") as answers:
        (answer_bytes,) = struct.unpack(">i", answers.read(4))
        answers.read(answer_bytes)
    stop = threading.Event()
    got_bytes = 0

    def read() -> None:
        nonlocal got_bytes
        client.settimeout(0.5)
        while not stop.is_set():
            try:
                data = client.recv(1 << 20)
                got_bytes += len(data)
                if not data:
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    reader = threading.Thread(target=read)
    reader.start()
    client.sendall(request(raw.METADATA, 12, {"topics": None}) * count)
    seen, began = bystander.rounds, time.monotonic()
    while bystander.rounds <= seen + 5 and time.monotonic() < began + 60:
        time.sleep(0.01)
    assert bystander.rounds > seen + 5
    answered = got_bytes // (4 + answer_bytes)
    assert answered < count or time.monotonic() - began < 2, "served when all the others were answered"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stop.set()
    reader.join()
    client.close()


# --- clients that do not leave


def test_thousands_of_idle_connections(broker: BrokerProcess, bystander: Bystander) -> None:
    before, files = memory_mb(broker.pid), open_files(broker.pid)
    hello = request(raw.API_VERSIONS, 0, {})
    clients = []
    for _ in range(IDLE_CONNECTIONS):
        client = connected(broker)
        client.sendall(hello)
        assert len(client.recv(4096)) > 100
        clients.append(client)
    assert memory_mb(broker.pid) - before < IDLE_CONNECTIONS * 0.02
    bystander.check()
    for client in clients[::10]:
        client.sendall(hello)
        assert len(client.recv(4096)) > 100
    for client in clients:
        client.close()
    assert closes(broker, files + 50)


def test_connections_that_come_and_go(broker: BrokerProcess) -> None:
    files = open_files(broker.pid)
    hello = request(raw.API_VERSIONS, 0, {})
    for number in range(150):
        client = connected(broker)
        client.sendall(hello[: number % (len(hello) + 1)])
        client.close()
    assert closes(broker, files + 20)


# --- bombs


def bomb(codec: int, size: int = 120 << 20) -> bytes:
    """A batch with one record of zeros, more of them than a broker unpacks."""
    return bytes(build_batch([Record(0, START_MS, b"k", bytes(size))], codec=codec))


@pytest.mark.parametrize("codec", [1, 4], ids=["gzip", "zstd"])
def test_bombs_where_records_are_unpacked(broker: BrokerProcess, bystander: Bystander, codec: int) -> None:
    data = bomb(codec)
    assert len(data) < 1_000_000
    with raw.Connection(broker.bootstrap, timeout_s=60) as client:
        raw.create_topic(client, f"compacted-{codec}", cleanup_policy="compact")
        raw.create_topic(client, f"repacked-{codec}", compression_type="lz4")
        before = memory_mb(broker.pid)
        highest = [before]
        watch = threading.Event()

        def look() -> None:
            while not watch.wait(0.01):
                highest.append(memory_mb(broker.pid))

        watcher = threading.Thread(target=look)
        watcher.start()
        others = [raw.Connection(broker.bootstrap, timeout_s=60) for _ in range(6)]
        for topic in (f"compacted-{codec}", f"repacked-{codec}"):
            told = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
            sent = [
                (other, other.send(raw.PRODUCE, 9, {"acks": -1, "timeout": 9000, "topic_data": told}))
                for other in others
            ]
            for other, correlation in sent:
                answer = other.receive(raw.PRODUCE, 9, correlation)
                assert answer.responses[0].partition_responses[0].error_code in (2, 10)
        bystander.check()
        watch.set()
        watcher.join()
        assert max(highest) - before < 350
        for other in others:
            other.close()
        for topic in (f"compacted-{codec}", f"repacked-{codec}"):
            good = raw.batch([b"v"], keys=[b"k"])
            assert raw.produce(client, topic, good).base_offset == 0


def test_a_bomb_that_is_only_stored_harms_nobody(broker: BrokerProcess) -> None:
    """On an ordinary topic it is bytes like any others; looking for a time in it is limited too."""
    with raw.Connection(broker.bootstrap, timeout_s=60) as client:
        raw.create_topic(client, "stored")
        before = memory_mb(broker.pid)
        assert raw.produce(client, "stored", bomb(4)).error_code == 0
        asked = {"partition_index": 0, "timestamp": START_MS}
        for _ in range(5):
            client.call(
                raw.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [{"name": "stored", "partitions": [asked]}]}
            )
        assert memory_mb(broker.pid) - before < 150


def test_requests_that_name_the_same_thing_again_and_again(broker: BrokerProcess) -> None:
    with raw.Connection(broker.bootstrap, timeout_s=60) as client:
        topic_id = raw.create_topic(client, "repeated")
        fetch = raw.fetch_request([(topic_id, [(0, 0)] * 20_000)], max_wait=0)
        answer = client.call(raw.FETCH, 16, fetch)
        assert sum(len(topic.partitions) for topic in answer.responses) == 1
        names = [{"name": "repeated"}] * 20_000
        client.call(raw.METADATA, 12, {"topics": names})
