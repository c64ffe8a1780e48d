"""Measured Spark jobs: they differ in nothing but the word after `format`."""

import shutil
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.topic_table import topic_table

PARTITIONS = 4
LATENCY_RECORDS = 600
LATENCY_RATE_S = 40.0
Result = dict[str, Any]


class Size(NamedTuple):
    name: str
    records: int
    size_bytes: int
    label: str


SIZES = (
    Size("small", 5_000_000, 100, "5M x 100 B"),
    Size("large", 1_000_000, 1000, "1M x 1 KB"),
)


class Bench(NamedTuple):
    """Where a load finds what it needs."""

    spark: SparkSession
    bootstrap: str
    out: Path
    topic: str
    records: int
    label: str
    size_bytes: int = 0

    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }

    def read(self, source: str) -> DataFrame:
        return self.spark.read.format(source).options(**self.options()).load()

    def stream(self, source: str) -> DataFrame:
        return self.spark.readStream.format(source).options(**self.options()).load()

    def fresh(self) -> Path:
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        return self.out


def as_it_is(bench: Bench) -> Iterator[None]:
    yield


class Load(NamedTuple):
    """A job, what it should reach, and what there must be before and is cleared away after."""

    name: str
    run: Callable[[Bench, str], Result]
    targets: dict[str, tuple[str, float]]
    around: Callable[[Bench], Iterator[None]] = as_it_is


def fill(bench: Bench) -> None:
    """The topic, with as many records as the bench says, of its size."""
    size_bytes = bench.size_bytes
    create(bench.bootstrap, bench.topic)
    producer = Producer(
        {"bootstrap.servers": bench.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 10**6}
    )
    padding = b"x" * size_bytes
    for number in range(bench.records):
        while True:
            try:
                producer.produce(
                    bench.topic, (b"%d " % number + padding)[:size_bytes], partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 10_000:
            producer.poll(0)
    assert producer.flush(300) == 0


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(timeout=30)


def timed(bench: Bench, work: Callable[[], int]) -> Result:
    """`work` returns the rows that came out, which must be all."""
    started = time.monotonic()
    rows = work()
    seconds = time.monotonic() - started
    assert rows == bench.records, f"{rows} rows, not {bench.records}"
    return {"seconds": round(seconds, 3), "rows_s": round(rows / seconds)}


def count(bench: Bench, source: str) -> Result:
    return timed(bench, lambda: bench.read(source).count())


def value_bytes(bench: Bench, source: str) -> Result:
    """All bytes of values, added up; ours from the files as Spark reads them by itself."""

    def work() -> int:
        rows = topic_table(bench.spark, bench.options()) if source == "anabranch" else bench.read(source)
        seen, total = rows.selectExpr("count(*)", "sum(length(value))").collect()[0]
        assert total == bench.records * bench.size_bytes, f"{total} bytes"
        return int(seen)

    return timed(bench, work)


def kept_as_a_table(bench: Bench) -> Iterator[None]:
    """The topic's history in files, all of it."""
    program = [str(Path(sys.executable).with_name("anabranch")), "table"]
    where = ["--bootstrap", bench.bootstrap]
    history = str(bench.out.with_name("history"))
    root = str(bench.out.parent)
    subprocess.run([*program, "enable", bench.topic, "--location", history, *where], check=True)
    subprocess.run([*program, "run", "--once", "--root", root, *where], check=True)
    yield
    subprocess.run([*program, "disable", bench.topic, *where], check=True)
    shutil.rmtree(bench.out.with_name("history"))


def to_parquet(bench: Bench, source: str) -> Result:
    out = bench.fresh() / "table"

    def work() -> int:
        bench.read(source).select("value").write.parquet(str(out))
        return bench.records

    result = timed(bench, work)
    assert bench.spark.read.parquet(str(out)).count() == bench.records
    return result


def stream_to_parquet(bench: Bench, source: str) -> Result:
    out = bench.fresh()

    def work() -> int:
        writer = bench.stream(source).select("value").writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("path", str(out / "table")).option(
            "checkpointLocation", str(out / "checkpoint")
        )
        writer.start().awaitTermination()
        return bench.records

    result = timed(bench, work)
    assert bench.spark.read.parquet(str(out / "table")).count() == bench.records
    return result


def stream_to_topic(bench: Bench, sink: str) -> Result:
    """Written by `sink`; read by ours for both, so that only the writes differ."""
    out = bench.fresh()
    topic = f"out-{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, topic)

    def work() -> int:
        writer = bench.stream("anabranch").select("value").writeStream.format(sink).trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", bench.bootstrap).option("topic", topic)
        writer.option("checkpointLocation", str(out / "checkpoint")).start().awaitTermination()
        return bench.records

    result = timed(bench, work)
    made = bench._replace(topic=topic)
    assert made.read("anabranch").count() == bench.records
    admin = AdminClient({"bootstrap.servers": bench.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    return result


def latency(bench: Bench, source: str) -> Result:
    """From a record's production to its copy in another topic being readable, at a trigger a second."""
    names = [f"{word}-{uuid.uuid4().hex[:8]}" for word in ("from", "to")]
    for name in names:
        create(bench.bootstrap, name)
    copied = bench._replace(topic=names[0]).stream(source).select("value").writeStream.format(source)
    copied = copied.option("kafka.bootstrap.servers", bench.bootstrap).option("topic", names[1])
    copied = copied.option("checkpointLocation", str(bench.fresh() / "checkpoint"))
    query = copied.trigger(processingTime="1 second").start()
    latencies: list[float] = []
    reader = threading.Thread(target=watch, args=(bench.bootstrap, names[1], latencies))
    reader.start()
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0})
    for number in range(LATENCY_RECORDS):
        producer.produce(names[0], str(time.time()), partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(1 / LATENCY_RATE_S)  # poll() alone would be back with the first report of a delivery
    producer.flush(30)
    reader.join(60)
    query.stop()
    assert len(latencies) == LATENCY_RECORDS, f"{len(latencies)} copies came"
    settled = sorted(latencies[LATENCY_RECORDS // 3 :])  # the first micro-batches compile
    return {"latency_ms": {"p50": statistics.median(settled), "p99": settled[int(len(settled) * 0.99)]}}


def watch(bootstrap: str, topic: str, latencies: list[float]) -> None:
    """How long each record of `topic` took, by the time that its value says."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
    deadline = time.monotonic() + 120
    while len(latencies) < LATENCY_RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.05):
            if message.error() is None:
                latencies.append((time.time() - float(message.value() or b"0")) * 1000)
    consumer.close()


LOADS = (
    Load("batch count", count, {"rows_s": (">=", 1.5)}),
    Load("batch to Parquet", to_parquet, {"rows_s": (">=", 1.5)}),
    Load("stream to Parquet", stream_to_parquet, {"rows_s": (">=", 1.5)}),
    Load("stream to topic", stream_to_topic, {"rows_s": (">=", 1.0)}),
    Load("count of history in files", count, {"rows_s": (">=", 5.0)}, kept_as_a_table),
    Load("value bytes of history, topic_table", value_bytes, {"rows_s": (">=", 5.0)}, kept_as_a_table),
)
"""For every size."""
LATENCY = Load(
    "micro-batches of a second", latency, {"latency_ms.p50": ("<=", 1.0), "latency_ms.p99": ("<=", 1.0)}
)
