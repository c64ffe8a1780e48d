"""kill -9 under load: what was acknowledged is there, at the offset that was told, once if that was promised.

Four producers in processes of their own write to one topic while the broker is killed again and again, in the
middle of appends, of segment rolls and sometimes of its own recovery, and started on the same folder.  Then
everything is read back:

    acknowledged          -> at exactly the offset the acknowledgement named
    offsets               -> 0, 1, 2 ... in every partition, no gap, no repeat
    idempotent producers  -> every record once, in the order of sending
    the others            -> every record at least once

The same for topics and their settings: what was answered holds, what was under way may be either.

3 kills, 20 with ANABRANCH_SOAK=1.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.clients import raw
from tests.support.broker import BrokerProcess

KILLS = 20 if os.environ.get("ANABRANCH_SOAK") else 3
PARTITIONS = 3
PRODUCERS = {  # name: options
    "all-idempotent": ("--acks", "all", "--idempotent"),
    "all-idempotent-lz4": ("--acks", "all", "--idempotent", "--compression", "lz4"),
    "all-plain": ("--acks", "all"),
    "one-zstd": ("--acks", "1", "--compression", "zstd"),
}
SCRIPT = Path(__file__).parents[1] / "support" / "counting_producer.py"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as running:
        yield running


def create_topic(bootstrap: str, topic: str) -> None:
    # Small segments and a dense index: every kill has rolls and index entries to interrupt.
    settings = {"segment.bytes": str(1 << 20), "index.interval.bytes": "512"}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=settings)]).values():
        future.result(timeout=60)


def start_producers(bootstrap: str, topic: str, folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    def command(name: str, options: tuple[str, ...]) -> list[str]:
        told = ["--bootstrap", bootstrap, "--topic", topic, "--partitions", str(PARTITIONS)]
        return [sys.executable, str(SCRIPT), *told, "--name", name, *options, "--ledger", str(folder / name)]

    return {name: subprocess.Popen(command(name, options)) for name, options in PRODUCERS.items()}


def wait_until_all_write(folder: Path) -> None:
    """Until each has an acknowledgement: a kill hits all of them, and none is told to stop before it can."""
    deadline = time.monotonic() + 120
    while not all((folder / name).exists() and (folder / name).stat().st_size for name in PRODUCERS):
        assert time.monotonic() < deadline, "a producer does not get on"
        time.sleep(0.05)


def stop_producers(producers: dict[str, subprocess.Popen[bytes]]) -> None:
    for process in producers.values():
        process.send_signal(signal.SIGTERM)
    for name, process in producers.items():
        assert process.wait(150) == 0, f"producer {name} failed"


def acknowledged(ledger: Path) -> dict[int, tuple[int, int]]:
    """Number of a record -> the partition and offset its acknowledgement named."""
    *lines, end = ledger.read_text().splitlines()
    word, sent, acked, failed = end.split()
    assert (word, failed) == ("end", "0"), f"{ledger.name}: {[line for line in lines if line[0] == '#'][:3]}"
    rows = [tuple(map(int, line.split())) for line in lines]
    assert len(rows) == int(acked) == int(sent), f"{ledger.name}: {acked} of {sent} acknowledged"
    return {number: (partition, offset) for number, partition, offset in rows}


def read_partition(bootstrap: str, topic: str, partition: int) -> list[tuple[int, str, int]]:
    """(offset, producer, number) of every record."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    where = ck.TopicPartition(topic, partition, 0)
    low, high = consumer.get_watermark_offsets(where, timeout=60)
    assert low == 0
    consumer.assign([where])
    rows: list[tuple[int, str, int]] = []
    deadline = time.monotonic() + 120
    while len(rows) < high and time.monotonic() < deadline:
        for message in consumer.consume(5000, timeout=1):
            assert message.error() is None, message.error()
            name, number, _ = message.value().split(b" ", 2)
            rows.append((message.offset(), name.decode(), int(number)))
    consumer.close()
    assert len(rows) == high, f"{len(rows)} of {high} records of partition {partition} can be read"
    return rows


def is_at(promised: tuple[int, int], places: list[tuple[int, int]]) -> bool:
    partition, offset = promised
    return promised in places if offset >= 0 else any(p == partition for p, _ in places)


def check(bootstrap: str, topic: str, folder: Path) -> int:
    """Every promise, from the ledgers and the log itself.  Returns the number of records."""
    found: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    total = 0
    for partition in range(PARTITIONS):
        rows = read_partition(bootstrap, topic, partition)
        assert [offset for offset, _, _ in rows] == list(range(len(rows))), f"gaps in partition {partition}"
        total += len(rows)
        for offset, name, number in rows:
            found[name][number].append((partition, offset))
    for name, options in PRODUCERS.items():
        promised = acknowledged(folder / name)
        missing = [n for n, where in promised.items() if not is_at(where, found[name][n])]
        assert not missing, f"{name}: {len(missing)} acknowledged records are not there: {missing[:5]}"
        if "--idempotent" in options:
            repeats = {number: places for number, places in found[name].items() if len(places) != 1}
            assert not repeats, f"{name}: not once: {list(repeats.items())[:5]}"
            for partition in range(PARTITIONS):
                offsets = [o for n in sorted(found[name]) for p, o in found[name][n] if p == partition]
                assert offsets == sorted(offsets), f"{name}: out of order in partition {partition}"
    return total


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost(broker: BrokerProcess, tmp_path: Path) -> None:
    chance = random.Random(20)
    topic = "killed"
    create_topic(broker.bootstrap, topic)
    producers = start_producers(broker.bootstrap, topic, tmp_path)
    try:
        wait_until_all_write(tmp_path)
        for number in range(KILLS):
            time.sleep(chance.uniform(0.5, 2.0))
            broker.kill()
            if number % 3 == 1:  # and once more while it recovers
                broker.launch()
                time.sleep(chance.uniform(0.05, 0.4))
                broker.kill()
            broker.start()
        time.sleep(1)
        assert all(process.poll() is None for process in producers.values()), "a producer gave up"
        stop_producers(producers)
    finally:
        for process in producers.values():
            process.kill()
            process.wait()
    before = check(broker.bootstrap, topic, tmp_path)
    broker.kill()
    broker.start()
    assert check(broker.bootstrap, topic, tmp_path) == before
    broker.stop()
    broker.start()
    assert check(broker.bootstrap, topic, tmp_path) == before


class Topics:
    """Topics as a client believes they are: name -> value of retention.ms.  One request may be undecided."""

    def __init__(self) -> None:
        self.sure: dict[str, str | None] = {}
        self.undecided: str | None = None
        self._next = 0

    def one_change(self, broker: raw.Connection, chance: random.Random) -> None:
        """Make, alter or delete a topic, and believe it once it is answered."""
        kind = chance.choice(("create", "create", "alter", "delete")) if self.sure else "create"
        name = f"topic-{self._next}" if kind == "create" else chance.choice(sorted(self.sure))
        self._next += kind == "create"
        self.undecided = name
        if kind == "create":
            wanted = {"name": name, "num_partitions": 2, "replication_factor": 1}
            answer = broker.call(raw.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 5000})
            assert answer.topics[0].error_code == 0
            self.sure[name] = None
        elif kind == "alter":
            value = str(chance.randrange(10**6, 10**9))
            change = {"name": "retention.ms", "config_operation": 0, "value": value}
            resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
            answer = broker.call(raw.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
            assert answer.responses[0].error_code == 0
            self.sure[name] = value
        else:
            answer = broker.call(raw.DELETE_TOPICS, 5, {"topic_names": [name], "timeout": 5000})
            assert answer.responses[0].error_code == 0
            del self.sure[name]
        self.undecided = None

    def compare(self, broker: raw.Connection) -> None:
        """Everything that was answered is so.  What was under way is taken as it is now."""
        found: dict[str, str | None] = {}
        for topic in broker.call(raw.METADATA, 12, {"topics": None}).topics:
            assert len(topic.partitions) == 2
            resource = {
                "resource_type": 2,
                "resource_name": topic.name,
                "configuration_keys": ["retention.ms"],
            }
            (entry,) = broker.call(raw.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0].configs
            found[topic.name] = entry.value if entry.config_source == 1 else None
        loose = {self.undecided} - {None}
        assert {k: v for k, v in found.items() if k not in loose} == {
            k: v for k, v in self.sure.items() if k not in loose
        }
        self.sure = found


@pytest.mark.timeout(300)
def test_no_answered_change_of_topics_is_lost(broker: BrokerProcess) -> None:
    chance = random.Random(21)
    topics = Topics()
    for _ in range(KILLS):
        killer = threading.Timer(chance.uniform(0.05, 0.5), broker.kill)
        try:
            with raw.Connection(broker.bootstrap) as connection:
                topics.one_change(connection, chance)
                killer.start()
                while True:
                    topics.one_change(connection, chance)
        except OSError:  # ConnectionError among them: the kill
            pass
        killer.join()
        broker.start()
        with raw.Connection(broker.bootstrap) as connection:
            topics.compare(connection)
    assert topics.sure, "nothing was made"
