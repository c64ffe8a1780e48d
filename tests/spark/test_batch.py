"""Batch reads and writes through Spark: the rows of a topic, and errors that say what to do."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import Topics

_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
Rows = Callable[..., DataFrame]
FOR_EVER = {"retention.ms": "-1"}  # records with times of long ago would go at the broker's next round


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in frame.selectExpr("cast(cast(value as string) as int)").collect())


def complaint(frame: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as raised:
        frame()
    return str(raised.value)


def test_every_column_of_every_record(spark: SparkSession, rows: Rows, topics: Topics) -> None:
    name = topics.create(partitions=2, **FOR_EVER)
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(
        name, b"v", b"k", partition=1, timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)]
    )
    producer.produce(name, None, None, partition=0, timestamp=1_700_000_000_456)
    assert producer.flush(20) == 0
    found = rows(name, includeHeaders="true").orderBy("partition").collect()
    assert [tuple(row) for row in found] == [
        (None, None, name, 0, 0, datetime(2023, 11, 14, 22, 13, 20, 456000), 0, None),
        (b"k", b"v", name, 1, 0, datetime(2023, 11, 14, 22, 13, 20, 123000), 0, [("h", b"1"), ("h", None)]),
    ]
    assert rows(name).columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    narrow = spark.read.format("anabranch").schema("offset long, value binary")
    narrow = narrow.option("kafka.bootstrap.servers", topics.bootstrap).option("subscribe", name)
    assert {tuple(row) for row in narrow.load().collect()} == {(0, None), (0, b"v")}


def test_ranges_of_offsets_and_times(rows: Rows, topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, range(300))
    time.sleep(0.01)
    between_ms = round(time.time() * 1000)
    time.sleep(0.01)
    topics.fill(name, range(300, 600))
    start = json.dumps({name: {"0": 10, "1": -2, "2": 199}})
    end = json.dumps({name: {"0": 12, "1": 3, "2": -1}})
    assert numbers(rows(name, startingOffsets=start, endingOffsets=end)) == sorted(
        [30, 33, 1, 4, 7, *(n for n in range(600) if n % 3 == 2 and n // 3 >= 199)]
    )
    assert numbers(rows(name, startingTimestamp=str(between_ms))) == list(range(300, 600))
    by_time = json.dumps({name: dict.fromkeys("012", between_ms)})
    assert numbers(rows(name, endingOffsetsByTimestamp=by_time)) == list(range(300))
    divided = rows(name, minPartitions="7")
    assert divided.rdd.getNumPartitions() >= 7
    assert numbers(divided) == list(range(600))


def test_a_frame_is_whole_though_a_part_of_it_was_used(rows: Rows, topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, range(300))
    whole = rows(name)
    assert whole.where("partition = 1 and offset >= 20").count() == 80
    assert whole.count() == 300
    assert whole.where("partition = 1").union(whole).count() == 400


def test_filters_reach_the_broker(
    rows: Rows, topics: Topics, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    spark.conf.set(_PUSH_DOWN, "true")
    request.addfinalizer(lambda: spark.conf.unset(_PUSH_DOWN))
    name = topics.create()
    began = datetime.now(UTC)
    topics.fill(name, range(300))
    found = rows(name).where("partition = 1 and offset >= 20 and offset < 25")
    assert found.rdd.getNumPartitions() == 1
    assert numbers(found) == [61, 64, 67, 70, 73]
    later = rows(name).where(f"timestamp >= timestamp'{began:%Y}-01-01' and partition in (0, 2)")
    assert numbers(later) == [n for n in range(300) if n % 3 != 1]
    assert rows(name).where("timestamp > timestamp'2100-01-01'").count() == 0


def test_topics_by_pattern_and_by_assignment(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.create(name="pattern-1"), topics.create(name="pattern-2")
    topics.fill(first, range(9))
    topics.fill(second, range(9, 18))
    base = spark.read.format("anabranch").option("kafka.bootstrap.servers", topics.bootstrap)
    assert numbers(base.option("subscribePattern", "pattern-.").load()) == list(range(18))
    base = spark.read.format("anabranch").option("kafka.bootstrap.servers", topics.bootstrap)
    assert numbers(base.option("assign", json.dumps({first: [0], second: [1, 2]})).load()) == [
        0, 3, 6, 10, 11, 13, 14, 16, 17,
    ]  # fmt: skip


def test_what_is_gone(rows: Rows, topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, range(300))
    topics.trim(name, 0, 50)
    start = json.dumps({name: {"0": 10, "1": 0, "2": 0}})
    said = complaint(lambda: rows(name, startingOffsets=start).count())
    assert "begins at offset 50, after 10" in said
    assert "failOnDataLoss" in said
    assert rows(name, startingOffsets=start, failOnDataLoss="false").count() == 250
    assert rows(name).count() == 250


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscrib": "x"}, "did you mean subscribe?"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger has no meaning for a batch read"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"x": {"0": 1}}'}, "must name every partition"),
        ({"startingTimestamp": "99999999999999"}, "startingOffsetsByTimestampStrategy"),
        ({"assign": '{"x": [0]}'}, "only one of these options"),
    ],
)
def test_wrong_options(rows: Rows, topics: Topics, options: dict[str, str], said: str) -> None:
    name = topics.create(partitions=1, name=f"wrong-{next(iter(options))}-{len(said)}")
    assert said in complaint(lambda: rows(name, **options).count())


def test_a_topic_that_is_not_there(rows: Rows) -> None:
    assert "topic 'nowhere': UNKNOWN_TOPIC_OR_PARTITION" in complaint(lambda: rows("nowhere").count())


def save(frame: DataFrame, topics: Topics, **options: str) -> None:
    writer = frame.write.format("anabranch").option("kafka.bootstrap.servers", topics.bootstrap)
    writer.options(**options).mode("append").save()


def test_rows_become_records(spark: SparkSession, rows: Rows, topics: Topics) -> None:
    name = topics.create(**FOR_EVER)
    made = spark.range(1000).selectExpr(
        "cast(id as string) as value",
        "cast(id % 10 as string) as key",
        "if(id < 5, 2, null) as partition",
        "timestamp_millis(1700000000000 + id) as timestamp",
        "if(id % 2 = 0, array(struct('h' as key, cast(id as string) as value)), null) as headers",
    )
    made = made.withColumn("headers", made.headers.cast("array<struct<key:string,value:binary>>"))
    save(made, topics, topic=name)
    found = rows(name, includeHeaders="true", kafka__isolation__level="read_committed").collect()
    assert sorted(int(row.value) for row in found) == list(range(1000))
    partition_of: dict[bytes, set[int]] = {}
    for row in found:
        number = int(row.value)
        assert row.key == b"%d" % (number % 10)
        assert row.timestamp.timestamp() % 1000 == (1_700_000_000_000 + number) / 1000 % 1000
        assert row.headers == (None if number % 2 else [("h", b"%d" % number)])
        if number < 5:
            assert row.partition == 2
        else:
            partition_of.setdefault(row.key, set()).add(row.partition)
    assert all(len(where) == 1 for where in partition_of.values())
    # murmur2 of "1" and others, as Kafka's own producer places them over three partitions.
    producer = Producer({"bootstrap.servers": topics.bootstrap, "partitioner": "murmur2"})
    placed: dict[bytes, int] = {}
    other = topics.create()
    for key in partition_of:
        producer.produce(other, b"", key, on_delivery=lambda _, m: placed.update({m.key(): m.partition()}))
    producer.flush(20)
    assert {key: {where} for key, where in placed.items()} == partition_of


def test_a_topic_a_row(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.create(), topics.create()
    made = spark.range(20).selectExpr("cast(id as string) value", f"if(id < 5, '{first}', '{second}') topic")
    save(made, topics, **{"kafka.compression.type": "zstd"})
    assert len(topics.values(first)) == 5
    assert len(topics.values(second)) == 15


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, topics: Topics) -> None:
    name = topics.create()
    made = spark.range(0, 2000, 1, 4).selectExpr(
        "if(id = 1999, raise_error('poison'), cast(id as string)) as value", "cast(id as string) as key"
    )
    assert "poison" in complaint(lambda: save(made, topics, topic=name))
    assert topics.values(name) == []


def test_what_cannot_be_written(spark: SparkSession, topics: Topics) -> None:
    name = topics.create(partitions=1)
    wrong = {
        "the column value is needed": spark.range(1).selectExpr("'x' as key"),
        "a topic has no column id to write": spark.range(1).selectExpr("id", "'x' as value"),
        "the column value is bigint": spark.range(1).selectExpr("id as value"),
        "is for partition 7": spark.range(1).selectExpr("'x' as value", "7 as partition"),
    }
    for said, frame in wrong.items():
        assert said in complaint(lambda frame=frame: save(frame, topics, topic=name))  # type: ignore[misc]
    rows = spark.range(1).selectExpr("'x' as value")
    assert "a topic is needed" in complaint(lambda: save(rows, topics))
    overwrite = rows.write.format("anabranch").option("kafka.bootstrap.servers", topics.bootstrap)
    assert "cannot be overwritten" in complaint(
        lambda: overwrite.option("topic", name).mode("overwrite").save()
    )
