"""Records through kafka-python: produce, read back from anywhere, and the errors on the way."""

import time
from collections.abc import Iterable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from transcript import BASE_MS, Transcript, arguments, describe_error, fail, stamp, text


class Cluster:
    """The broker under test, with the three things a test does to it."""

    def __init__(self, bootstrap: str, transcript: Transcript) -> None:
        self.bootstrap = bootstrap
        self.say = transcript
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create(self, name: str, partitions: int = 1, **settings: str) -> str:
        topic = self.say.topic(name)
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        new = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}}
        self.admin.create_topics(new, wait_for_metadata=True)
        self.say.settle()
        return topic

    def producer(self, **conf: Any) -> KafkaProducer:
        settings: dict[str, Any] = {"linger_ms": 50, "max_block_ms": 60_000, "enable_idempotence": False}
        return KafkaProducer(bootstrap_servers=self.bootstrap, **(settings | conf))

    def consumer(self, **conf: Any) -> KafkaConsumer:
        settings: dict[str, Any] = {"fetch_max_wait_ms": 100, "auto_offset_reset": "earliest"}
        return KafkaConsumer(bootstrap_servers=self.bootstrap, **(settings | conf))


def send(producer: KafkaProducer, topic: str, records: Iterable[dict[str, Any]]) -> list[str]:
    """Produce `records` and wait; one text a record."""
    futures: list[Any] = []
    for record in records:
        try:
            futures.append(producer.send(topic, **record))
        except Exception as error:  # noqa: BLE001  the kind of the error is the observation
            futures.append(error)
    reports = [future if isinstance(future, Exception) else settle(future) for future in futures]
    producer.close()
    return [report if isinstance(report, str) else describe_error(report) for report in reports]


def settle(future: Any) -> str | Exception:
    try:
        metadata = future.get(timeout=60)
    except Exception as error:  # noqa: BLE001
        return error
    return f"{metadata.partition}/{metadata.offset}"


def read(consumer: KafkaConsumer, count: int, timeout_s: float = 60) -> list[Any]:
    records: list[Any] = []
    end = time.monotonic() + timeout_s
    while len(records) < count and time.monotonic() < end:
        for batch in consumer.poll(timeout_ms=500, max_records=count - len(records)).values():
            records += batch
    if len(records) < count:
        fail(f"{len(records)} of {count} records in {timeout_s} s")
    return records


def read_from(
    cluster: Cluster, topic: str, offset: int, count: int, partition: int = 0, **conf: Any
) -> list[Any]:
    consumer = cluster.consumer(**conf)
    consumer.assign([TopicPartition(topic, partition)])
    consumer.seek(TopicPartition(topic, partition), offset)
    records = read(consumer, count)
    consumer.close()
    return records


def wait_for_end(cluster: Cluster, topic: str, end: int) -> None:
    consumer, where = cluster.consumer(), TopicPartition(topic, 0)
    for _ in range(600):
        if consumer.end_offsets([where])[where] >= end:
            consumer.close()
            return
        time.sleep(0.05)
    fail(f"{topic} does not reach offset {end}")


def show(record: Any) -> dict[str, Any]:
    return {
        "at": f"{record.partition}/{record.offset}",
        "epoch": record.leader_epoch,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
        "time": [{0: "create", 1: "append"}[record.timestamp_type], stamp(record.timestamp)],
    }


def compressions(cluster: Cluster) -> None:
    say = cluster.say
    say.section("every compression and every acks")
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        topic = cluster.create(f"codec-{codec}")
        values = []
        for acks in (0, 1, "all"):
            values += [f"{codec}-{acks}-{i}-".encode() + b"ab" * 200 for i in range(20)]
            records = [{"value": value, "timestamp_ms": BASE_MS + i} for i, value in enumerate(values[-20:])]
            reports = send(cluster.producer(compression_type=codec, acks=acks, linger_ms=100), topic, records)
            say.line(f"{codec} acks={acks}", f"{reports[0]} to {reports[-1]}")
            wait_for_end(cluster, topic, len(values))  # with acks=0 the answer says nothing
        got = read_from(cluster, topic, 0, len(values))
        say.line(f"{codec} values", [r.value for r in got] == values)
        say.line(f"{codec} offsets", [r.offset for r in got] == list(range(60)))
        say.line(f"{codec} times", [r.timestamp - BASE_MS for r in got] == [*range(20)] * 3)
        one = read_from(cluster, topic, 33, 1)[0]
        say.line(f"{codec} from inside a batch", [one.offset, one.value[: len(str(codec)) + 5].decode()])


def idempotent(cluster: Cluster) -> None:
    say = cluster.say
    say.section("idempotent producer")
    topic = cluster.create("idempotent", 2)
    for number in range(3):
        producer = cluster.producer(enable_idempotence=True)
        records = [{"value": b"%d-%d" % (number, i), "partition": i % 2} for i in range(10)]
        say.line(f"producer {number}", " ".join(send(producer, topic, records)))
    for partition in (0, 1):
        say.line(
            f"partition {partition}", [text(r.value) for r in read_from(cluster, topic, 0, 15, partition)]
        )
    where = TopicPartition(topic, 0)
    producers = cluster.admin.describe_producers([where])[where].active_producers
    say.line(
        "active producers",
        sorted([p.producer_epoch, p.last_sequence, stamp(p.last_timestamp)] for p in producers),
    )
    say.line("open transactions", {p.current_transaction_start_offset for p in producers} == {-1})


def shapes(cluster: Cluster) -> None:
    say = cluster.say
    say.section("keys, values, headers, times, partitions")
    topic = cluster.create("shapes", 3)
    records: list[dict[str, Any]] = [
        {"value": b"plain"},
        {"key": b"k", "value": None},
        {"key": b"", "value": b""},
        {"key": b"k", "value": b"with headers", "headers": [("a", b"1"), ("b", b"2")]},
        {"value": b"repeated header", "headers": [("a", b"1"), ("a", b"2"), ("a", b"1")]},
        {"value": b"empty header", "headers": [("empty", b""), ("", b"no name")]},
        {"value": "utf-8 ✓ größe".encode(), "key": "schlüssel".encode()},
        {"value": b"x" * 5000},
    ]
    for i, record in enumerate(records):
        record.update(partition=1, timestamp_ms=BASE_MS + i)
    say.line("partition 1", " ".join(send(cluster.producer(), topic, records)))
    keyed = [{"key": b"key-%d" % i, "value": b"keyed", "timestamp_ms": BASE_MS} for i in range(12)]
    say.line("by key", " ".join(r.split("/")[0] for r in send(cluster.producer(), topic, keyed)))
    for record in read_from(cluster, topic, 0, len(records), 1):
        say.line("record", show(record))
    stamped = cluster.create("append-time", message_timestamp_type="LogAppendTime")
    send(
        cluster.producer(),
        stamped,
        [{"value": b"a", "timestamp_ms": BASE_MS}, {"value": b"b", "timestamp_ms": 1}],
    )
    for record in read_from(cluster, stamped, 0, 2):
        say.line("LogAppendTime", show(record))
    unstamped = cluster.create("unstamped")
    send(cluster.producer(), unstamped, [{"value": b"now"}])
    say.line("no timestamp given", show(read_from(cluster, unstamped, 0, 1)[0]))


def positions(cluster: Cluster) -> None:
    say = cluster.say
    say.section("where to read from")
    topic = cluster.create("positions", 2)
    for batch in range(5):
        values = [(b"v%d" % (batch * 10 + i), BASE_MS + batch * 1000 + i) for i in range(10)]
        records = [{"value": value, "partition": 0, "timestamp_ms": at_ms} for value, at_ms in values]
        send(cluster.producer(), topic, records)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = cluster.consumer()
    say.line("partitions", sorted(consumer.partitions_for_topic(topic)))
    say.line(
        "beginning offsets",
        sorted([p.partition, o] for p, o in consumer.beginning_offsets([first, second]).items()),
    )
    say.line(
        "end offsets", sorted([p.partition, o] for p, o in consumer.end_offsets([first, second]).items())
    )
    times = {
        "before all": 0,
        "exact": BASE_MS + 2003,
        "between": BASE_MS + 1500,
        "after all": BASE_MS + 99_999,
    }
    for label, at_ms in times.items():
        answer = consumer.offsets_for_times({first: at_ms})[first]
        shown = answer and [answer.offset, answer.timestamp - BASE_MS, answer.leader_epoch]
        say.line(f"offset for time {label}", shown)
    say.line("offset for time, empty partition", consumer.offsets_for_times({second: BASE_MS})[second])
    consumer.assign([first])
    consumer.seek_to_beginning(first)
    say.line("beginning", [text(r.value) for r in read(consumer, 3)])
    for offset in (0, 27, 12):
        consumer.seek(first, offset)
        say.line(f"seek {offset}", [text(r.value) for r in read(consumer, 3)])
    say.line("position", consumer.position(first))
    say.line("high watermark", consumer.highwater(first))
    consumer.pause(first)
    say.line("paused", len(consumer.poll(timeout_ms=300)))
    consumer.resume(first)
    say.line("resumed", len(read(consumer, 1)))
    consumer.seek_to_end(first)
    say.line("position at the end", consumer.position(first))
    send(cluster.producer(), topic, [{"value": b"late", "partition": 0, "timestamp_ms": BASE_MS}])
    say.line("end", [text(r.value) for r in read(consumer, 1)])
    consumer.close()
    ends(cluster, first)


def ends(cluster: Cluster, first: TopicPartition) -> None:
    say = cluster.say
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign([first])
    consumer.seek(first, 1000)
    say.line("offset 1000 of 51, policy earliest", [text(r.value) for r in read(consumer, 1)])
    consumer.close()
    consumer = cluster.consumer(auto_offset_reset="latest")
    consumer.assign([first])
    consumer.seek(first, 1000)
    consumer.poll(timeout_ms=500)
    say.line("offset 1000 of 51, policy latest", consumer.position(first))
    consumer.close()
    consumer = cluster.consumer(auto_offset_reset="none")
    consumer.assign([first])
    consumer.seek(first, 1000)
    say.attempt("offset 1000 of 51, policy none", lambda: read(consumer, 1, 3))
    consumer.close()
    for level in ("read_committed", "read_uncommitted"):
        got = read_from(cluster, first.topic, 45, 6, isolation_level=level)
        say.line(level, [text(r.value) for r in got])
    got = read_from(cluster, first.topic, 0, 51, max_partition_fetch_bytes=1, fetch_max_bytes=1)
    say.line("one byte at a time", [r.offset for r in got] == list(range(51)))


def refusals(cluster: Cluster) -> None:
    say = cluster.say
    say.section("what is refused")
    big = {"value": b"x" * 2_000_000, "timestamp_ms": BASE_MS}
    topic = cluster.create("limits")
    say.line("2 MB", send(cluster.producer(max_request_size=5_000_000), topic, [big]))
    small = cluster.create("small-limit", max_message_bytes="1000")
    for size in (900, 1100):
        record = {"value": b"x" * size, "timestamp_ms": BASE_MS}
        say.line(f"1000 byte limit, {size}", send(cluster.producer(), small, [record]))
    say.line(
        "1000 byte limit, 1100 compressed", send(cluster.producer(compression_type="gzip"), small, [record])
    )
    large = cluster.create("large-limit", max_message_bytes="5000000")
    say.line("5 MB limit, 2 MB", send(cluster.producer(max_request_size=5_000_000), large, [big]))
    say.line("read back", text(read_from(cluster, large, 0, 1)[0].value))
    compacted = cluster.create("compacted", cleanup_policy="compact")
    one = [{"value": b"1", "timestamp_ms": BASE_MS}]
    say.line("compacted, keyed", send(cluster.producer(), compacted, [one[0] | {"key": b"a"}]))
    say.line("compacted, no key", send(cluster.producer(), compacted, one))
    say.line(
        "compacted, one of two without key",
        send(cluster.producer(linger_ms=1000), compacted, [one[0] | {"key": b"a"}, *one]),
    )
    say.line(
        "compacted, tombstone", send(cluster.producer(), compacted, [{"key": b"a", "timestamp_ms": BASE_MS}])
    )
    old = cluster.create(
        "fresh-only", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"
    )
    say.line("too old", send(cluster.producer(), old, one))
    ahead_ms = int(time.time() * 1000) + 600_000
    say.line("too new", send(cluster.producer(), old, [{"value": b"1", "timestamp_ms": ahead_ms}]))
    say.line("right now", send(cluster.producer(), old, [{"value": b"1"}]))
    say.line("partition that is not there", send(cluster.producer(), topic, [one[0] | {"partition": 7}]))
    say.line("bad topic name", send(cluster.producer(), "bad name/with slash", one))
    made = say.topic("made-by-producer")
    say.line("topic made by producing", send(cluster.producer(), made, one))
    say.line("made", made in cluster.admin.list_topics())


def sweep(cluster: Cluster) -> None:
    mine = [name for name in cluster.admin.list_topics() if name.startswith(cluster.say.topic(""))]
    cluster.admin.delete_topics(mine)
    cluster.admin.close()


def main() -> None:
    args = arguments(__doc__)
    cluster = Cluster(args.bootstrap, Transcript(args.prefix, args.settle_s))
    compressions(cluster)
    idempotent(cluster)
    shapes(cluster)
    positions(cluster)
    refusals(cluster)
    sweep(cluster)


if __name__ == "__main__":
    main()
