"""Records through confluent-kafka: produce, read back from anywhere, and the errors on the way."""

import itertools
import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from transcript import BASE_MS, Transcript, arguments, fail, stamp, text

_groups = itertools.count()


class Cluster:
    """The broker under test, with the three things a test does to it."""

    def __init__(self, bootstrap: str, transcript: Transcript) -> None:
        self.conf = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.say = transcript
        self.admin = AdminClient(self.conf)

    def create(self, name: str, partitions: int = 1, **settings: str) -> str:
        topic = self.say.topic(name)
        config = {key.replace("_", "."): value for key, value in settings.items()}
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            future.result(timeout=60)
        self.say.settle()
        return topic

    def producer(self, **conf: Any) -> ck.Producer:
        return ck.Producer(self.conf | {key.replace("_", "."): value for key, value in conf.items()})

    def consumer(self, **conf: Any) -> ck.Consumer:
        settings = {
            "group.id": f"unused-{next(_groups)}",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        return ck.Consumer(
            self.conf | settings | {key.replace("_", "."): value for key, value in conf.items()}
        )


def send(producer: ck.Producer, topic: str, records: Iterable[dict[str, Any]]) -> list[str]:
    """Produce `records` and wait; one text a delivery report, in the order of the records."""
    reports: dict[int, str] = {}

    def report(number: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        reports[number] = error.name() if error else f"{message.partition()}/{message.offset()}"

    count = 0
    for count, record in enumerate(records, 1):
        producer.produce(topic, **record, on_delivery=lambda e, m, n=count: report(n, e, m))
    producer.flush(60)
    return [reports.get(n, "no report") for n in range(1, count + 1)]


def read(consumer: ck.Consumer, count: int, timeout_s: float = 60) -> list[ck.Message]:
    """The next `count` messages, errors among them."""
    messages: list[ck.Message] = []
    end = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < end:
        messages += consumer.consume(count - len(messages), timeout=0.5)
    if len(messages) < count:
        fail(f"{len(messages)} of {count} messages in {timeout_s} s")
    return messages


def read_from(
    cluster: Cluster, topic: str, offset: int, count: int, partition: int = 0, **conf: Any
) -> list[ck.Message]:
    consumer = cluster.consumer(**conf)
    consumer.assign([ck.TopicPartition(topic, partition, offset)])
    messages = read(consumer, count)
    consumer.close()
    return messages


def wait_for_end(cluster: Cluster, topic: str, end: int) -> None:
    consumer = cluster.consumer()
    for _ in range(600):
        if consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=60)[1] >= end:
            consumer.close()
            return
        time.sleep(0.05)
    fail(f"{topic} does not reach offset {end}")


def show(message: ck.Message) -> dict[str, Any]:
    kind, at_ms = message.timestamp()
    return {
        "at": f"{message.partition()}/{message.offset()}",
        "epoch": message.leader_epoch(),
        "key": text(message.key()),
        "value": text(message.value()),
        "headers": [[name, text(value)] for name, value in message.headers() or []],
        "time": [
            {ck.TIMESTAMP_CREATE_TIME: "create", ck.TIMESTAMP_LOG_APPEND_TIME: "append"}[kind],
            stamp(at_ms),
        ],
    }


def compressions(cluster: Cluster) -> None:
    say = cluster.say
    say.section("every compression and every acks")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = cluster.create(f"codec-{codec}")
        values = []
        for acks in ("0", "1", "all"):
            producer = cluster.producer(compression_type=codec, acks=acks, linger_ms=100)
            producer.list_topics(topic, timeout=60)  # or the first record goes alone, in a batch of its own
            values += [f"{codec}-{acks}-{i}-" + "ab" * 200 for i in range(20)]
            records = [{"value": value, "timestamp": BASE_MS + i} for i, value in enumerate(values[-20:])]
            reports = send(producer, topic, records)
            say.line(f"{codec} acks={acks}", f"{reports[0]} to {reports[-1]}")
            wait_for_end(cluster, topic, len(values))  # with acks=0 the answer says nothing
        messages = read_from(cluster, topic, 0, len(values))
        say.line(f"{codec} values", [m.value().decode() for m in messages] == values)
        say.line(f"{codec} offsets", [m.offset() for m in messages] == list(range(60)))
        say.line(f"{codec} times", [m.timestamp()[1] - BASE_MS for m in messages] == [*range(20)] * 3)
        one = read_from(cluster, topic, 33, 1)[0]
        say.line(f"{codec} from inside a batch", [one.offset(), one.value()[: len(codec) + 5].decode()])


def idempotent(cluster: Cluster) -> None:
    say = cluster.say
    say.section("idempotent producer")
    topic = cluster.create("idempotent", 2)
    producer = cluster.producer(enable_idempotence=True, linger_ms=5)
    for number in range(3):
        records = [{"value": f"{number}-{i}", "partition": i % 2, "timestamp": BASE_MS} for i in range(10)]
        say.line(f"round {number}", " ".join(send(producer, topic, records)))
    another = cluster.producer(enable_idempotence=True)
    say.line(
        "another producer",
        " ".join(send(another, topic, [{"value": "x", "partition": 0, "timestamp": BASE_MS}])),
    )
    for partition, count in ((0, 16), (1, 15)):
        values = [text(m.value()) for m in read_from(cluster, topic, 0, count, partition)]
        say.line(f"partition {partition}", values)


def shapes(cluster: Cluster) -> None:
    say = cluster.say
    say.section("keys, values, headers, times, partitions")
    topic = cluster.create("shapes", 3)
    records: list[dict[str, Any]] = [
        {"value": "plain"},
        {"key": "k", "value": None},
        {"key": None, "value": None},
        {"key": "", "value": ""},
        {"key": "k", "value": "with headers", "headers": [("a", b"1"), ("b", b"2")]},
        {"value": "repeated header", "headers": [("a", b"1"), ("a", b"2"), ("a", b"1")]},
        {"value": "null header", "headers": [("n", None), ("empty", b""), ("", b"no name")]},
        {"value": "utf-8 ✓ größe", "key": "schlüssel"},
        {"value": "x" * 5000},
    ]
    producer = cluster.producer(linger_ms=50)
    for i, record in enumerate(records):
        record.update(partition=1, timestamp=BASE_MS + i)
    say.line("partition 1", " ".join(send(producer, topic, records)))
    say.line(
        "partition 2",
        " ".join(send(producer, topic, [{"value": "there", "partition": 2, "timestamp": BASE_MS}])),
    )
    keyed = [{"key": f"key-{i}", "value": "keyed", "timestamp": BASE_MS} for i in range(12)]
    say.line("by key", " ".join(r.split("/")[0] for r in send(cluster.producer(), topic, keyed)))
    for message in read_from(cluster, topic, 0, len(records), 1):
        say.line("record", show(message))
    stamped = cluster.create("append-time", message_timestamp_type="LogAppendTime")
    send(cluster.producer(), stamped, [{"value": "a", "timestamp": BASE_MS}, {"value": "b", "timestamp": 1}])
    for message in read_from(cluster, stamped, 0, 2):
        say.line("LogAppendTime", show(message))
    send(cluster.producer(), topic, [{"value": "now", "partition": 0}])
    consumer = cluster.consumer()
    _, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=60)
    message = read_from(cluster, topic, high - 1, 1)[0]
    say.line("no timestamp given", stamp(message.timestamp()[1]))
    consumer.close()


def positions(cluster: Cluster) -> None:
    say = cluster.say
    say.section("where to read from")
    topic = cluster.create("positions", 2)
    producer = cluster.producer(linger_ms=50)
    for batch in range(5):
        records = [
            {"value": f"v{batch * 10 + i}", "partition": 0, "timestamp": BASE_MS + batch * 1000 + i}
            for i in range(10)
        ]
        send(producer, topic, records)
    where = ck.TopicPartition(topic, 0)
    consumer = cluster.consumer()
    say.line("watermarks", consumer.get_watermark_offsets(where, timeout=60))
    say.line("watermarks, empty", consumer.get_watermark_offsets(ck.TopicPartition(topic, 1), timeout=60))
    say.attempt(
        "watermarks, unknown", lambda: consumer.get_watermark_offsets(ck.TopicPartition(topic, 9), timeout=5)
    )

    def from_(label: str, offset: int) -> None:
        consumer.assign([ck.TopicPartition(topic, 0, offset)])
        say.line(label, [text(m.value()) for m in read(consumer, 3)])

    from_("beginning", ck.OFFSET_BEGINNING)
    from_("offset 0", 0)
    from_("offset 27", 27)
    consumer.seek(ck.TopicPartition(topic, 0, 12))
    say.line("seek 12", [text(m.value()) for m in read(consumer, 3)])
    say.line("position", consumer.position([where])[0].offset)
    consumer.pause([where])
    say.line("paused", len(consumer.consume(1, timeout=0.5)))
    consumer.resume([where])
    say.line("resumed", len(read(consumer, 1)))
    times = {
        "before all": 0,
        "exact": BASE_MS + 2003,
        "between": BASE_MS + 1500,
        "after all": BASE_MS + 99_999,
    }
    for label, at_ms in times.items():
        answer = consumer.offsets_for_times([ck.TopicPartition(topic, 0, at_ms)], timeout=60)[0]
        say.line(f"offset for time {label}", [answer.offset, answer.error and answer.error.name()])
    answer = consumer.offsets_for_times([ck.TopicPartition(topic, 1, BASE_MS)], timeout=60)[0]
    say.line("offset for time, empty partition", answer.offset)
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_END)])
    consumer.poll(1)
    send(producer, topic, [{"value": "late", "partition": 0, "timestamp": BASE_MS}])
    say.line("end", [show(m)["value"] for m in read(consumer, 1)])
    consumer.close()
    ends(cluster, topic)


def ends(cluster: Cluster, topic: str) -> None:
    say = cluster.say
    for policy in ("earliest", "latest", "error"):
        consumer = cluster.consumer(auto_offset_reset=policy, enable_partition_eof=True)
        consumer.assign([ck.TopicPartition(topic, 0, 1000)])
        message = read(consumer, 1)[0]
        error = message.error()
        got = error.name() if error else text(message.value())
        say.line(
            f"offset 1000 of 51, policy {policy}",
            [got, message.offset() if not error or policy != "error" else None],
        )
        consumer.close()
    consumer = cluster.consumer(enable_partition_eof=True)
    consumer.assign([ck.TopicPartition(topic, 0, 49), ck.TopicPartition(topic, 1, 0)])
    seen = [
        (m.partition(), m.offset(), m.error().name() if m.error() else text(m.value()))
        for m in read(consumer, 4)
    ]
    say.line("to the end of both", sorted(seen))
    consumer.close()
    small = cluster.consumer(fetch_message_max_bytes=1, max_partition_fetch_bytes=1)
    small.assign([ck.TopicPartition(topic, 0, 0)])
    say.line("one byte at a time", len(read(small, 51)))
    small.close()
    committed = cluster.consumer(isolation_level="read_committed")
    committed.assign([ck.TopicPartition(topic, 0, 45)])
    say.line("read committed", [text(m.value()) for m in read(committed, 6)])
    committed.close()
    plain = cluster.consumer(isolation_level="read_uncommitted")
    plain.assign([ck.TopicPartition(topic, 0, 45)])
    say.line("read uncommitted", [text(m.value()) for m in read(plain, 6)])
    plain.close()


def refusals(cluster: Cluster) -> None:
    say = cluster.say
    say.section("what is refused")
    big = {"value": b"x" * 2_000_000, "timestamp": BASE_MS}
    topic = cluster.create("limits")
    say.line("2 MB", send(cluster.producer(message_max_bytes=5_000_000), topic, [big]))
    small = cluster.create("small-limit", max_message_bytes="1000")
    at_limit = [{"value": b"x" * size, "timestamp": BASE_MS} for size in (900, 1100)]
    say.line("1000 byte limit, 900", send(cluster.producer(), small, at_limit[:1]))
    say.line("1000 byte limit, 1100", send(cluster.producer(), small, at_limit[1:]))
    zipped = cluster.producer(compression_type="gzip")
    say.line("1000 byte limit, 1100 compressed", send(zipped, small, at_limit[1:]))
    large = cluster.create("large-limit", max_message_bytes="5000000")
    say.line("5 MB limit, 2 MB", send(cluster.producer(message_max_bytes=5_000_000), large, [big]))
    say.line("read back", text(read_from(cluster, large, 0, 1)[0].value()))
    compacted = cluster.create("compacted", cleanup_policy="compact")
    say.line(
        "compacted, keyed",
        send(cluster.producer(), compacted, [{"key": "a", "value": "1", "timestamp": BASE_MS}]),
    )
    say.line("compacted, no key", send(cluster.producer(), compacted, [{"value": "1", "timestamp": BASE_MS}]))
    mixed = [{"key": "a", "value": "2", "timestamp": BASE_MS}, {"value": "3", "timestamp": BASE_MS}]
    batching = cluster.producer(linger_ms=5000)  # a flush does not wait for it
    batching.list_topics(compacted, timeout=60)
    say.line("compacted, one of two without key", send(batching, compacted, mixed))
    say.line(
        "compacted, tombstone", send(cluster.producer(), compacted, [{"key": "a", "timestamp": BASE_MS}])
    )
    lonely = cluster.create("lonely", min_insync_replicas="2")
    one = [{"value": "1", "timestamp": BASE_MS}]
    for acks in ("all", "1"):
        # retries=0, or librdkafka would retry until its own timeout
        say.line(
            f"min.insync.replicas=2 acks={acks}", send(cluster.producer(acks=acks, retries=0), lonely, one)
        )
    old = cluster.create(
        "fresh-only", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"
    )
    say.line("too old", send(cluster.producer(), old, one))
    say.line(
        "too new",
        send(cluster.producer(), old, [{"value": "1", "timestamp": int(time.time() * 1000) + 600_000}]),
    )
    say.line("right now", send(cluster.producer(), old, [{"value": "1"}]))
    say.line("partition that is not there", send(cluster.producer(), topic, [{"value": "x", "partition": 7}]))
    name = "bad name/with slash"
    say.line("bad topic name", send(cluster.producer(message_timeout_ms=3000), name, one))


def automatic(cluster: Cluster) -> None:
    say = cluster.say
    say.section("topics that make themselves")
    topic = say.topic("made-by-producer")
    say.line("produce", send(cluster.producer(), topic, [{"value": "x", "timestamp": BASE_MS}]))
    made = cluster.admin.list_topics(topic, timeout=60).topics[topic]
    say.line("partitions", sorted(made.partitions))
    for allowed in (False, True):
        absent = say.topic(f"asked-for-{allowed}")
        consumer = cluster.consumer(allow_auto_create_topics=allowed)
        error = consumer.list_topics(absent, timeout=60).topics[absent].error
        if (
            not allowed
        ):  # else Kafka starts to make it and says that it is not there yet: a matter of milliseconds
            say.line(f"metadata, {allowed=}", error.name() if error else "there")
        consumer.close()
        say.settle()
        say.line(f"made, {allowed=}", absent in cluster.admin.list_topics(timeout=60).topics)


def sweep(cluster: Cluster) -> None:
    mine = [t for t in cluster.admin.list_topics(timeout=60).topics if t.startswith(cluster.say.topic(""))]
    for future in cluster.admin.delete_topics(mine).values():
        future.result(timeout=60)


def main() -> None:
    args = arguments(__doc__)
    cluster = Cluster(args.bootstrap, Transcript(args.prefix, args.settle_s))
    compressions(cluster)
    idempotent(cluster)
    shapes(cluster)
    positions(cluster)
    refusals(cluster)
    automatic(cluster)
    sweep(cluster)


if __name__ == "__main__":
    main()
