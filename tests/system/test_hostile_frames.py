"""Frames that are no requests, against a live broker: the protocol's error or the end of that connection.

A bystander goes on producing and reading through all of it, and the log has no traceback in the end.
"""

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.clients import raw
from tests.support.broker import BrokerProcess
from tests.support.hostile import Bystander, Requests, memory_mb, unexpected

MAX_BYTES = 1 << 20
UNSUPPORTED_VERSION = 35


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"socket.request.max.bytes": str(MAX_BYTES), "num.partitions": "4"}
    with BrokerProcess(tmp_path_factory.mktemp("hostile"), settings) as running:
        yield running
        assert running.running, running.last_lines()
        assert not unexpected(running.log), unexpected(running.log)


@pytest.fixture(scope="module")
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    with Bystander(broker.bootstrap) as other:
        yield other


@pytest.fixture(autouse=True)
def unharmed(bystander: Bystander) -> Iterator[None]:
    yield
    bystander.check()


def connected(broker: BrokerProcess) -> socket.socket:
    host, port = broker.bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 60)


def ends(client: socket.socket) -> bool:
    """Whether the broker closes the connection without a word."""
    try:
        return client.recv(1000) == b""
    except ConnectionResetError:
        return True


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, correlation: int = 1, client: bytes = b"x") -> bytes:
    return struct.pack(">hhih", key, version, correlation, len(client)) + client


FRAMES = {
    "negative length": struct.pack(">i", -1),
    "least length": struct.pack(">i", -(2**31)),
    "greatest length": struct.pack(">i", 2**31 - 1),
    "one byte too many": struct.pack(">i", MAX_BYTES + 1),
    "empty": framed(b""),
    "one byte": framed(b"\0"),
    "half a header": framed(b"\0\3\0\1\0"),
    "unknown api": framed(header(999, 0)),
    "negative api": framed(header(-1, 0)),
    "controller's api": framed(header(4, 0)),
    "version too high": framed(header(3, 99)),
    "version too low": framed(header(1, 0)),
    "negative version": framed(header(3, -1)),
    "produce of before batches": framed(header(0, 0) + bytes(20)),
    "no body": framed(header(3, 1)),
    "array of two billion": framed(header(3, 1) + struct.pack(">i", 2**31 - 1)),
    "name that is not UTF-8": framed(header(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "tags without an end": framed(header(3, 12) + b"\xff" * 200),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c403032b") + bytes(190),
}


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES)
def test_what_is_no_request_ends_the_connection(broker: BrokerProcess, data: bytes) -> None:
    for chunk in (len(data), 1):
        with connected(broker) as client:
            try:
                for at in range(0, len(data), chunk):
                    client.sendall(data[at : at + chunk])
            except (BrokenPipeError, ConnectionResetError):
                continue
            if data.startswith((b"GET", b"\x16")):
                continue  # their first four bytes may be a length; what matters is that nobody is harmed
            assert ends(client)


def test_the_log_says_why(broker: BrokerProcess) -> None:
    """Not every time: what comes again and again is said once a second."""
    before = broker.log.stat().st_size
    deadline = time.monotonic() + 60
    while b"API 999 is unknown" not in broker.log.read_bytes()[before:]:
        assert time.monotonic() < deadline, broker.last_lines()
        time.sleep(1.1)
        with connected(broker) as client:
            client.sendall(FRAMES["unknown api"])
            assert ends(client)


def test_answers_before_a_bad_frame_arrive(broker: BrokerProcess) -> None:
    with raw.Connection(broker.bootstrap) as client:
        first = client.send(raw.API_VERSIONS, 0)
        client.send_frame(b"\0")
        client.receive(raw.API_VERSIONS, 0, first)
        assert client.receive_frame() is None


@pytest.mark.parametrize("seed", range(3))
def test_answers_in_order_whatever_is_pipelined_in_whatever_pieces(broker: BrokerProcess, seed: int) -> None:
    """Some wait, some hold the connection, some are large, some are prepared in a thread."""
    chance = random.Random(seed)
    with raw.Connection(broker.bootstrap) as client:
        ids = {
            name: raw.create_topic(client, f"{name}-{seed}", **config)
            for name, config in (("plain", {}), ("repacked", {"compression_type": "gzip"}))
        }
    kinds = [
        (raw.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"}),
        (raw.METADATA, 12, {"topics": None}),
        (raw.FETCH, 16, raw.fetch_request([(ids["plain"], [(0, 0)])], max_wait=30, min_bytes=1 << 30)),
        (raw.LIST_OFFSETS, 7, {"replica_id": -1, "topics": []}),
        (raw.CREATE_TOPICS, 7, {"topics": [], "timeout": 100}),
        *(
            (
                raw.PRODUCE,
                9,
                {
                    "acks": -1,
                    "timeout": 1000,
                    "topic_data": [
                        {
                            "name": f"{name}-{seed}",
                            "partition_data": [{"index": 0, "records": raw.batch([bytes(size)])}],
                        }
                    ],
                },
            )
            for name in ids
            for size in (10, 200_000)
        ),
    ]
    requests = Requests()
    sent: list[tuple[int, int]] = []
    for _ in range(200):
        key, version, values = chance.choice(kinds)
        sent.append((key, version))
        requests.send(key, version, values)
    data = requests.data
    with raw.Connection(broker.bootstrap, timeout_s=60) as client:
        sender = threading.Thread(target=send_in_pieces, args=(client, data, chance))
        sender.start()
        for number, (key, version) in enumerate(sent, 1):
            client.receive(key, version, number)
        sender.join()


def send_in_pieces(client: raw.Connection, data: bytes, chance: random.Random) -> None:
    at = 0
    while at < len(data):
        size = chance.choice((1, 3, 4, 100, 5000, 300_000))
        client.send_bytes(data[at : at + size])
        at += size


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 10, 100, 5000])
def test_a_client_that_leaves_in_the_middle(broker: BrokerProcess, size: int) -> None:
    data = framed(header(0, 9) + bytes(10_000))[:size]
    for _ in range(5):
        client = connected(broker)
        client.sendall(data)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_of_a_version_to_come(broker: BrokerProcess, version: int) -> None:
    with connected(broker) as client:
        client.sendall(framed(header(18, version, 7) + b"who knows"))
        answer = client.recv(1000)
        assert struct.unpack_from(">iih", answer)[1:] == (7, UNSUPPORTED_VERSION)
    with raw.Connection(broker.bootstrap) as again:
        assert again.call(raw.API_VERSIONS, 0).error_code == 0


def test_noise(broker: BrokerProcess) -> None:
    chance = random.Random(5)
    for _ in range(150):
        with connected(broker) as client:
            data = chance.randbytes(chance.randrange(1, 3000))
            if chance.random() < 0.5:
                data = framed(data[: MAX_BYTES - 1])
            try:
                client.sendall(data)
                client.settimeout(0.01)
                client.recv(100)
            except (TimeoutError, ConnectionError):
                pass


def test_slow_senders_hold_nobody_up(broker: BrokerProcess) -> None:
    """Each sends a byte now and then, some of a large frame, some of a small one."""
    before = memory_mb(broker.pid)
    frames = [framed(header(3, 1) + struct.pack(">i", 0)), framed(header(0, 9) + bytes(MAX_BYTES - 100))]
    clients = [(connected(broker), frames[number % 2]) for number in range(300)]
    for at in range(16):
        for client, data in clients:
            client.sendall(data[at : at + 1])
        time.sleep(0.05)
    assert memory_mb(broker.pid) - before < 60
    small = clients[0]
    small[0].sendall(small[1][16:])
    assert len(small[0].recv(1000)) > 10
    for client, _ in clients:
        client.close()


NAMES = {
    "dots": "..",
    "a dot": ".",
    "up": "../../etc",
    "slash": "a/b",
    "absolute": "/tmp/x",
    "NUL": "a\0b",
    "newline": "a\nb",
    "too long": "x" * 250,
    "far too long": "x" * 32_000,
    "unicode": "Größe",
    "emoji": "🐟",
    "spaces": "a b",
    "namespace up": "persistent://../../x",
    "topic up": "persistent://a/b/..",
    "nothing": "",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_illegal_topic_names(broker: BrokerProcess, name: str) -> None:
    invalid = 17
    before = sorted(path.name for path in broker.data.rglob("*") if path.is_dir())
    with raw.Connection(broker.bootstrap) as client:
        for version in (2, 7):
            wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
            made = client.call(raw.CREATE_TOPICS, version, {"topics": [wanted], "timeout": 5000})
            assert made.topics[0].error_code == invalid
        for version in (4, 12):
            asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
            assert client.call(raw.METADATA, version, asked).topics[0].error_code == invalid
        assert raw.produce(client, name, raw.batch([b"x"])).error_code in (3, invalid)
        deleted = client.call(raw.DELETE_TOPICS, 4, {"topic_names": [name], "timeout": 5000})
        assert deleted.responses[0].error_code in (3, invalid)
    assert sorted(path.name for path in broker.data.rglob("*") if path.is_dir()) == before
    assert not Path("/tmp/x-0").exists()


def test_a_name_as_long_as_names_may_be(broker: BrokerProcess) -> None:
    name = "l" * 249
    with raw.Connection(broker.bootstrap) as client:
        raw.create_topic(client, name)
        assert raw.produce(client, name, raw.batch([b"x"])).error_code == 0
        deleted = client.call(raw.DELETE_TOPICS, 4, {"topic_names": [name], "timeout": 5000})
        assert deleted.responses[0].error_code == 0
