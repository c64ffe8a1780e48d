"""One client's load on one broker, without anything outside this repository: produce, fetch, one record a
request.

Rates of a lone run say little on a noisy machine (see ../README.md); they are for comparing two versions of
this tree within minutes, and for having something to profile.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic


@dataclass(frozen=True)
class Load:
    name: str
    run: Callable[[str, str, int], None]
    records: int
    size: int


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(timeout=10)


def produce(bootstrap: str, topic: str, records: int, size: int, **conf: object) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5} | conf)
    value = bytes(range(256)) * (size // 256 + 1)
    sent = 0
    while sent < records:
        try:
            producer.produce(topic, value[:size])
            sent += 1
        except BufferError:
            producer.poll(0.002)
        if sent % 1024 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was acknowledged")


def fetch(bootstrap: str, topic: str, records: int) -> None:
    conf = {"bootstrap.servers": bootstrap, "group.id": "load", "enable.auto.commit": False, "log_level": 0}
    # Or librdkafka pauses for a second whenever its queue is full, and the broker is not what is measured.
    prefetch = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 2, "check.crcs": False}
    consumer = ck.Consumer(conf | prefetch)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    got = 0
    deadline = time.monotonic() + 120
    while got < records and time.monotonic() < deadline:
        got += sum(
            message.error() is None for message in consumer.consume(min(10_000, records - got), timeout=1)
        )
    consumer.close()
    if got < records:
        raise RuntimeError(f"{got} of {records} records")


def one_by_one(bootstrap: str, topic: str, records: int) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0, "acks": "1"})
    for _ in range(records):
        producer.produce(topic, b"x" * 100)
        producer.flush(10)


LOADS = (
    Load("produce 1 KB", lambda b, t, n: produce(b, t, n, 1000), 300_000, 1000),
    Load("fetch 1 KB", fetch, 300_000, 1000),
    Load("produce 100 B", lambda b, t, n: produce(b, t, n, 100), 1_000_000, 100),
    Load("produce 100 B, linger 0", lambda b, t, n: produce(b, t, n, 100, **{"linger.ms": 0}), 300_000, 100),
    Load("one record a request", one_by_one, 5_000, 100),
)
