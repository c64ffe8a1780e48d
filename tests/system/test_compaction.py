"""Compaction in a running broker, under load and through kill -9: the last value of every key, at its offset.

A compacted topic is written over and over while the broker compacts it and is killed in between.  In the end
a reader from the beginning finds for each key the last acknowledged value, at the offset it was acknowledged
at, offsets that only go up, and far fewer records than were written.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.base.disk import DirectDisk
from anabranch.partition.folders import owner_of
from tests.support.broker import BrokerProcess

TOPIC = "table"
KEYS = 50
KILLS = 6 if os.environ.get("ANABRANCH_SOAK") else 2
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "log.initial.task.delay.ms": "200",
}
TABLE = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}
PATIENCE_S = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, SETTINGS) as running:
        yield running


def create(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=TABLE)]).values():
        future.result(timeout=60)


def write(
    broker: BrokerProcess, count: int, acknowledged: dict[bytes, tuple[int, bytes]], start: int
) -> float:
    """Write `count` values over all keys.  The longest that an acknowledgement took, in seconds."""
    slowest = 0.0
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0})

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        nonlocal slowest
        assert error is None, error
        acknowledged[message.key()] = (message.offset(), message.value())
        slowest = max(slowest, message.latency())

    for i in range(start, start + count):
        value = b"%d " % i + os.urandom(500)
        while True:
            try:
                producer.produce(TOPIC, value, b"%d" % (i % KEYS), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return slowest


def read(broker: BrokerProcess) -> list[tuple[int, bytes, bytes]]:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([ck.TopicPartition(TOPIC, 0, ck.OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append((message.offset(), message.key(), message.value()))
        elif message.error().code() == ck.KafkaError._PARTITION_EOF:
            consumer.close()
            return found
    raise AssertionError("the end of the partition was not reached")


def folder_of(broker: BrokerProcess) -> Path:
    return next(broker.data.rglob(f"{TOPIC}-0"))


def wait_until_compacted(broker: BrokerProcess) -> None:
    """Until the checkpoint stands at the active segment."""
    topic_id = owner_of(DirectDisk(), folder_of(broker))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        point = broker.data / "cleaner-offset-checkpoint"
        active = max(int(path.name[:20]) for path in folder_of(broker).glob("*.log"))
        if point.exists() and point.read_text().splitlines()[2:] == [f"{topic_id} 0 {active}"]:
            return
        time.sleep(0.1)
    raise AssertionError(f"not compacted in {PATIENCE_S:.0f} s:\n{broker.last_lines()}")


def test_the_last_value_of_every_key_survives_everything(broker: BrokerProcess) -> None:
    create(broker)
    acknowledged: dict[bytes, tuple[int, bytes]] = {}
    written = 0
    for _ in range(KILLS):
        write(broker, 6000, acknowledged, written)
        written += 6000
        time.sleep(0.4)  # into the middle of a cleaning, more or less
        broker.kill()
        broker.start()
        found = read(broker)
        assert {key: (offset, value) for offset, key, value in found} == acknowledged
    write(broker, 6000, acknowledged, written)
    wait_until_compacted(broker)
    found = read(broker)
    assert {key: (offset, value) for offset, key, value in found} == acknowledged
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert len(found) < written / 4
    broker.stop()
    broker.start()
    assert read(broker) == found
    leftovers = [p.name for p in folder_of(broker).iterdir() if p.name.endswith((".cleaned", ".swap"))]
    assert leftovers == []


def test_appends_do_not_wait_for_it(broker: BrokerProcess) -> None:
    create(broker)
    acknowledged: dict[bytes, tuple[int, bytes]] = {}
    slowest = [write(broker, 4000, acknowledged, 4000 * i) for i in range(4)]
    # Far from a measurement: a cleaning of these segments in the broker's own process takes longer than this.
    assert sorted(slowest)[1] < 2.0
    wait_until_compacted(broker)
    assert broker.running
