"""Spark's own Kafka connector on our broker: the same jobs as `format("kafka")` and as `format("anabranch")`.

    python bench/anchors/spark_connector.py

Each job runs twice with nothing changed but the word after `format`, and must give the same rows, which must
be what was put in: batch reads by every way to name topics and positions, with headers, committed and
uncommitted; batch writes; streams from topic to Parquet and from topic to topic.  Rows that were written are
read with librdkafka, which is neither's.  The connector's jars are fetched once (Maven).
"""

import itertools
import json
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "spark"))

import confluent_kafka as ck  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from servers import Ours  # noqa: E402
from session import fetch_jars, open_session  # noqa: E402

FORMATS = ("kafka", "anabranch")
PARTITIONS = 3
RECORDS = 900
FIRST_MS = 1_700_000_000_000
COMMITTED, ABORTED = range(1000, 1100), range(2000, 2100)
Rows = list[Any]


class Different(Exception):
    """The two do not give the same rows, or not the right ones."""


class Bench:
    """A broker with a topic that has a bit of everything, and a session."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.source = self.create("source")
        fill(bootstrap, self.source)

    def create(self, name: str = "") -> str:
        topic = name or f"made-{uuid.uuid4().hex[:8]}"
        kept = {"retention.ms": "-1"}  # the records are old
        self._admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=kept)])[topic].result(timeout=20)
        return topic

    def options(self, **options: str) -> dict[str, str]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        if not {"subscribe", "subscribePattern", "assign"} & set(named):
            named["subscribe"] = self.source
        return {"kafka.bootstrap.servers": self.bootstrap, "startingOffsets": "earliest"} | named

    def read(self, source: str, **options: str) -> DataFrame:
        return self.spark.read.format(source).options(**self.options(**options)).load()

    def stream(self, source: str, **options: str) -> DataFrame:
        return self.spark.readStream.format(source).options(**self.options(**options)).load()


def fill(bootstrap: str, topic: str) -> None:
    """Records with keys, headers, nulls and times; a committed transaction; an aborted one."""
    producer = ck.Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(
            topic,
            value=None if number % 50 == 7 else b"value %d" % number,
            key=None if number % 10 == 3 else b"key %d" % (number % 20),
            headers=[("n", b"%d" % number), ("empty", b""), ("null", None)] if number % 4 == 0 else None,
            partition=number % PARTITIONS,
            timestamp=FIRST_MS + number,
        )
    assert producer.flush(30) == 0
    for numbers, commit in ((COMMITTED, True), (ABORTED, False)):
        writer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"fill-{commit}"})
        writer.init_transactions(20)
        writer.begin_transaction()
        for number in numbers:
            writer.produce(topic, b"value %d" % number, partition=number % PARTITIONS)
        assert writer.flush(30) == 0
        (writer.commit_transaction if commit else writer.abort_transaction)(20)


def in_order(frame: DataFrame) -> Rows:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[2], row[3], row[4]))


def values(rows: Rows) -> set[bytes | None]:
    return {row[1] for row in rows}


def batch_reads(bench: Bench) -> dict[str, Callable[[str], Rows]]:
    """How a batch can be asked for."""
    source = bench.source
    by_offset = {"startingOffsets": json.dumps({source: {"0": 10, "1": -2, "2": 250}})}
    by_offset["endingOffsets"] = json.dumps({source: {"0": 20, "1": 5, "2": -1}})
    asked: dict[str, dict[str, str]] = {
        "everything": {},
        "with headers": {"includeHeaders": "true"},
        "by pattern": {"subscribePattern": "sou.*"},
        "two partitions": {"assign": json.dumps({source: [0, 2]})},
        "between offsets": by_offset,
        "since a time": {"startingTimestamp": str(FIRST_MS + 500)},
        "until a time": {
            "endingOffsetsByTimestamp": json.dumps({source: dict.fromkeys("012", FIRST_MS + 99)})
        },
        "committed": {"kafka__isolation__level": "read_committed"},
        "in small parts": {"minPartitions": "8"},
    }
    return {
        f"batch read, {name}": (lambda source, options=options: in_order(bench.read(source, **options)))
        for name, options in asked.items()
    }


def expected(committed: bool) -> set[bytes | None]:
    numbers = [number for number in range(RECORDS) if number % 50 != 7]
    numbers += [*COMMITTED, *(() if committed else ABORTED)]
    return {None, *(b"value %d" % number for number in numbers)}


def written(bench: Bench, topic: str) -> Rows:
    """What librdkafka sees of a topic, without offsets and times."""
    settings = {"bootstrap.servers": bench.bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer = ck.Consumer(settings | {"isolation.level": "read_committed"})
    consumer.assign([ck.TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
    found: Rows = []
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(500, 1.0):
            if message.error() is None:
                of_keyed = message.partition() if message.key() is not None else -1  # else wherever it likes
                found.append((of_keyed, message.key(), message.value(), message.headers()))
            else:
                ended += 1
    consumer.close()
    return sorted(found, key=repr)


def batch_write(bench: Bench, sink: str) -> Rows:
    rows = bench.read("kafka", includeHeaders="true", kafka__isolation__level="read_committed")
    topic = bench.create()
    writer = rows.selectExpr(f"'{topic}' as topic", "key", "value", "headers").write.format(sink)
    writer.option("kafka.bootstrap.servers", bench.bootstrap).option("includeHeaders", "true").mode(
        "append"
    ).save()
    return written(bench, topic)


def stream_to_topic(bench: Bench, word: str) -> Rows:
    rows = bench.stream(word, kafka__isolation__level="read_committed", maxOffsetsPerTrigger="250")
    topic = bench.create()
    writer = rows.select("key", "value").writeStream.format(word).trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", bench.bootstrap).option("topic", topic)
    run(writer.option("checkpointLocation", str(bench.folder / topic)))
    return written(bench, topic)


def stream_to_parquet(bench: Bench, source: str) -> Rows:
    rows = bench.stream(source, kafka__isolation__level="read_committed", maxOffsetsPerTrigger="250")
    folder = bench.folder / uuid.uuid4().hex
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    run(writer.option("path", str(folder / "table")).option("checkpointLocation", str(folder / "checkpoint")))
    return in_order(bench.spark.read.parquet(str(folder / "table")))


def run(writer: Any) -> None:
    if not writer.start().awaitTermination(120):
        raise Different("a query does not end")


def compare(name: str, job: Callable[[str], Rows], wanted: set[bytes | None] | None, column: int) -> None:
    found = {word: job(word) for word in FORMATS}
    theirs, ours = (found[word] for word in FORMATS)
    if theirs != ours:
        pairs = itertools.zip_longest(theirs, ours)
        where, (a, b) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
        raise Different(
            f"{name}: {len(theirs)} rows and {len(ours)}; at {where}\n  kafka {a}\n  anabranch {b}"
        )
    if wanted is not None and {row[column] for row in ours} != wanted:
        raise Different(f"{name}: the same rows, but not those that were sent")
    print(f"  {name}: {len(ours)} rows, the same", flush=True)


def main() -> None:
    fetch_jars()
    with tempfile.TemporaryDirectory() as temporary, Ours(Path(temporary)) as broker:
        spark = open_session()
        try:
            bench = Bench(spark, broker.bootstrap, Path(temporary))
            for name, job in batch_reads(bench).items():
                whole = name.removeprefix("batch read, ") in ("everything", "with headers", "committed")
                compare(name, job, expected("committed" in name) if whole else None, 1)
            for name, write in (("batch write", batch_write), ("stream, topic to topic", stream_to_topic)):
                compare(name, lambda word, write=write: write(bench, word), expected(True), 2)
            compare(
                "stream, topic to Parquet", lambda word: stream_to_parquet(bench, word), expected(True), 1
            )
        except Different as error:
            sys.exit(str(error))
        finally:
            spark.stop()
    print("Spark's Kafka connector and ours give the same rows")


if __name__ == "__main__":
    main()
