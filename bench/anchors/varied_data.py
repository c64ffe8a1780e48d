"""Data that exercises every shape a log can have, written through real clients, and read back for comparison.

topic            what it is for
codec-<name>     each compression, batches of 1 to 500 records, several segments
recompressed     gzip from the producer, zstd by the topic's configuration
idempotent       three idempotent producers side by side: producer ids, sequences, snapshots
append-time      LogAppendTime, compressed and not
wild-times       timestamps that jump back and forth: the time index must not follow them down
large            batches near a megabyte, with headers and null keys and values
compacted        few keys written over and over, tombstones among them
"""

import random
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

BASE_MS = int(time.time()) * 1000 - 20_000_000  # some hours ago, or retention would take it
SMALL = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2048"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: dict[str, dict[str, str]] = {
    **{f"codec-{codec}": SMALL for codec in CODECS},
    "recompressed": SMALL | {"compression.type": "zstd"},
    "idempotent": SMALL,
    "append-time": SMALL | {"message.timestamp.type": "LogAppendTime"},
    "wild-times": SMALL,
    "large": SMALL,
    "compacted": SMALL
    | {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
        "delete.retention.ms": "0",
    },
}

Record = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(name, 1, 1, config=settings) for name, settings in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(timeout=20)
    time.sleep(0.5)


def fill(bootstrap: str, scale: int = 1) -> None:
    """A few megabytes into every topic; `scale` times as much."""
    chance = random.Random(7)
    for codec in CODECS:
        send(bootstrap, f"codec-{codec}", plain(chance, 4000 * scale), codec)
    send(bootstrap, "recompressed", plain(chance, 3000 * scale), "gzip")
    for _ in range(3):
        send(bootstrap, "idempotent", plain(chance, 2000 * scale), "lz4", **{"enable.idempotence": True})
    send(bootstrap, "append-time", plain(chance, 1500 * scale), "none")
    send(bootstrap, "append-time", plain(chance, 1500 * scale), "gzip")
    send(bootstrap, "wild-times", wild(chance, 4000 * scale), "none")
    send(bootstrap, "large", large(chance, 12 * scale), "none", **{"linger.ms": 0})
    for _ in range(4):
        send(bootstrap, "compacted", keyed(chance, 3000 * scale), "snappy")


def send(bootstrap: str, topic: str, records: Iterator[dict[str, Any]], codec: str, **conf: Any) -> None:
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "log_level": 0}
    producer = ck.Producer(settings | {"message.max.bytes": 1_000_000} | conf)
    failed: list[str] = []
    chance = random.Random(topic)
    left = 1
    for record in records:
        producer.produce(topic, **record, on_delivery=lambda e, _: failed.append(e.name()) if e else None)
        left -= 1
        if left == 0:  # ends the batch: batches of one record, of a few, of hundreds
            producer.flush(20)
            left = chance.choice((1, 1, 2, 5, 20, 100, 500))
    if producer.flush(30) or failed:
        raise RuntimeError(f"could not fill {topic}: {failed[:3]}")


def plain(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        value = chance.randbytes(chance.randrange(600)).hex().encode()
        yield {"key": b"k%d" % (i % 50), "value": value, "timestamp": BASE_MS + 10 * i}


def wild(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        yield {"value": chance.randbytes(400), "timestamp": BASE_MS + chance.randrange(10_000_000)}


def large(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    headers = [("first", b"1"), ("again", None), ("again", b"")]
    for i in range(count):
        yield {"value": chance.randbytes(900_000), "headers": headers, "timestamp": BASE_MS + i}
        yield {"key": None, "value": None, "headers": headers, "timestamp": BASE_MS + i}


def keyed(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        value = None if chance.random() < 0.05 else chance.randbytes(300)
        yield {"key": b"key-%d" % chance.randrange(200), "value": value, "timestamp": BASE_MS + i}


def read_all(bootstrap: str, topic: str) -> list[Record]:
    """Every record: offset, timestamp and its kind, key, value, headers."""
    conf = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = ck.Consumer(conf | {"enable.partition.eof": True})
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    records: list[Record] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(5000, timeout=1):
            if message.error() is not None:
                if message.error().code() != ck.KafkaError._PARTITION_EOF:
                    raise ck.KafkaException(message.error())
                consumer.close()
                return records
            kind, at_ms = message.timestamp()
            headers = tuple(message.headers() or ())
            records.append((message.offset(), at_ms, kind, message.key(), message.value(), headers))
    raise TimeoutError(f"{topic} has no end")
