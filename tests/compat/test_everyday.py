"""What people do all day, with real clients: backlogs, tailing, big messages, many partitions, readers."""

import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.consumers import READERS
from tests.support.double_broker import ON_DOUBLE
from tests.support.stalls import Stalls

COUNTING_PRODUCER = Path(__file__).parents[1] / "support" / "counting_producer.py"


def create(bootstrap: str, topic: str, partitions: int = 1, **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        future.result(timeout=60)


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **conf: Any) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "linger.ms": 5,
        "message.max.bytes": 6_000_000,
    }
    producer = ck.Producer(settings | {key.replace("_", "."): value for key, value in conf.items()})
    failed: list[str] = []
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e.name()) if e else None
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def consumer(bootstrap: str, **conf: Any) -> ck.Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    return ck.Consumer(settings | {key.replace("_", "."): value for key, value in conf.items()})


@pytest.fixture(scope="module")
def backlog(bootstrap: str) -> tuple[str, list[bytes]]:
    """20 MB in one partition, half of it compressed."""
    chance = random.Random(20)
    topic = f"backlog-{time.time_ns()}"
    create(bootstrap, topic, segment_bytes=str(4 << 20))
    values = [chance.randbytes(chance.randrange(2000)) for _ in range(20_000)]
    produce(bootstrap, topic, values[:10_000])
    produce(bootstrap, topic, values[10_000:], compression_type="lz4")
    return topic, values


@pytest.mark.parametrize("client", READERS)
def test_a_backlog_is_read(client: str, bootstrap: str, backlog: tuple[str, list[bytes]]) -> None:
    topic, values = backlog
    rows = READERS[client](bootstrap, topic, 0, len(values))
    assert [offset for offset, _ in rows] == list(range(len(values)))
    assert [value for _, value in rows] == values


@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize("size", [1_000_000, 5_000_000])
def test_big_messages(client: str, size: int, bootstrap: str, name: Callable[[str], str]) -> None:
    topic = name("big")
    create(bootstrap, topic, max_message_bytes="5100000")
    values = [random.Random(i).randbytes(size) for i in range(3)]
    produce(bootstrap, topic, values)
    assert READERS[client](bootstrap, topic, 0, 3) == list(enumerate(values))


def test_two_producers_and_a_tailing_consumer(
    bootstrap: str, name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = name("tail")
    create(bootstrap, topic, 2)
    tail = consumer(bootstrap)
    tail.assign([ck.TopicPartition(topic, p, 0) for p in range(2)])
    command = [sys.executable, str(COUNTING_PRODUCER), "--bootstrap", bootstrap, "--topic", topic]
    command += ["--partitions", "2", "--rate", "1000", *(["--idempotent"] if ON_DOUBLE else [])]
    told = {who: [*command, "--name", who, "--ledger", str(tmp_path / who)] for who in ("one", "two")}
    producers = {who: subprocess.Popen(arguments) for who, arguments in told.items()}
    seen: dict[str, list[int]] = {"one": [], "two": []}
    started = time.monotonic()
    while time.monotonic() - started < 3 or not all(seen.values()):
        assert time.monotonic() - started < 60, {who: len(numbers) for who, numbers in seen.items()}
        for message in tail.consume(500, timeout=0.1):
            assert message.error() is None
            who, number, _ = message.value().split(b" ", 2)
            seen[who.decode()].append(int(number))
    for process in producers.values():
        process.terminate()
    assert [process.wait(90) for process in producers.values()] == [0, 0]
    sent = {who: int((tmp_path / who).read_text().splitlines()[-1].split()[1]) for who in producers}
    deadline = time.monotonic() + 60
    while sum(map(len, seen.values())) < sum(sent.values()) and time.monotonic() < deadline:
        for message in tail.consume(500, timeout=0.1):
            who, number, _ = message.value().split(b" ", 2)
            seen[who.decode()].append(int(number))
    tail.close()
    for who, numbers in seen.items():
        assert sorted(numbers) == list(range(sent[who]))
        for parity in (0, 1):  # a producer's records stay in order within a partition
            mine = [n for n in numbers if n % 2 == parity]
            assert mine == sorted(mine)


def test_two_hundred_partitions(bootstrap: str, name: Callable[[str], str]) -> None:
    topic = name("wide")
    create(bootstrap, topic, 200)
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    for round_ in range(5):
        for partition in range(200):
            producer.produce(topic, b"%d-%d" % (partition, round_), partition=partition)
    assert producer.flush(60) == 0
    reader = consumer(bootstrap)
    reader.assign([ck.TopicPartition(topic, p, 0) for p in range(200)])
    seen: dict[int, list[bytes]] = {p: [] for p in range(200)}
    deadline = time.monotonic() + 90
    while sum(map(len, seen.values())) < 1000 and time.monotonic() < deadline:
        for message in reader.consume(1000, timeout=0.5):
            assert message.error() is None
            seen[message.partition()].append(message.value())
    reader.close()
    assert seen == {p: [b"%d-%d" % (p, r) for r in range(5)] for p in range(200)}


def test_several_consumers_read_the_same_partition(bootstrap: str, name: Callable[[str], str]) -> None:
    topic = name("shared")
    create(bootstrap, topic)
    values = [b"%d" % i for i in range(2000)]
    results: dict[int, list[bytes]] = {}

    def read(number: int) -> None:
        rows = READERS["confluent"](bootstrap, topic, 0, len(values))
        results[number] = [value or b"" for _, value in rows]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    produce(bootstrap, topic, values)
    for thread in threads:
        thread.join(100)
    assert results == dict.fromkeys(range(5), values)


def test_a_waiting_consumer_is_woken_at_once(bootstrap: str, name: Callable[[str], str]) -> None:
    """Long poll: the broker may hold the fetch for 5 s, and the record is there right away all the same."""
    topic = name("latency")
    create(bootstrap, topic)
    reader = consumer(bootstrap, fetch_wait_max_ms=5000, fetch_min_bytes=1)
    reader.assign([ck.TopicPartition(topic, 0, 0)])
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    took_ms = []
    for number in range(50):
        time.sleep(0.01)
        started = time.monotonic()
        producer.produce(topic, b"%d" % number)
        producer.poll(0)
        message = reader.poll(60)
        took_ms.append((time.monotonic() - started) * 1000)
        assert message is not None
        assert message.value() == b"%d" % number
    producer.flush(60)
    reader.close()
    # Generous, for a machine that is busy with other tests; a fetch that sleeps its time out takes 5,000 ms.
    assert statistics.median(took_ms[5:]) < 100


def test_min_bytes_gather_records(bootstrap: str, name: Callable[[str], str]) -> None:
    """A consumer that asks for much waits for much, but not longer than it said."""
    topic = name("gather")
    create(bootstrap, topic)
    reader = consumer(bootstrap, fetch_wait_max_ms=700, fetch_min_bytes=100_000)
    reader.assign([ck.TopicPartition(topic, 0, 0)])
    reader.poll(0.2)
    with Stalls() as stalls:
        started = time.monotonic()
        produce(bootstrap, topic, [b"little"])
        message = reader.poll(60)
        took_s = time.monotonic() - started
        assert message is not None
        assert took_s < 3 + stalls.lost_s
        produce(bootstrap, topic, [b"x" * 150_000])
        started = time.monotonic()
        assert reader.poll(60) is not None
        assert time.monotonic() - started < 3 + stalls.lost_s
    reader.close()


def test_many_idle_connections(bootstrap: str, name: Callable[[str], str]) -> None:
    """500 connections that say nothing do not disturb one that does."""
    host, port = bootstrap.rsplit(":", 1)
    idle = [socket.create_connection((host, int(port))) for _ in range(500)]
    topic = name("busy")
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"x"] * 100)
    assert len(READERS["confluent"](bootstrap, topic, 0, 100)) == 100
    for connection in idle:
        connection.close()
