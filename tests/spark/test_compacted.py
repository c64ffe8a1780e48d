"""The last row of every key, on topics of both protocols, whatever compaction has done; no JVM is needed."""

import json
import random
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import EqualTo, LessThan

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.client.destinations import TopicPartition
from anabranch.client.settings import Settings
from anabranch.spark import compacted_reader
from anabranch.spark.batch_reader import batch_reader
from anabranch.spark.column_types import arrow_schema
from anabranch.spark.compacted_reader import (
    CompactedReader,
    FilteringCompactedReader,
    PartitionRows,
    compacted_rows,
)
from anabranch.spark.options import BATCH_READ, Options
from anabranch.spark.ranges import Fetching, Range
from anabranch.spark.reading import chosen_columns, spark_schema
from tests.spark.conftest import ELSEWHERE, Topics
from tests.support.broker import BrokerProcess
from tests.support.tables import Tables


@pytest.fixture
def client(spark_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    found = pulsar.Client(spark_broker.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield found
    found.close()


def reader_of(topics: Topics, name: str, kind: type[CompactedReader] = CompactedReader, **more: str) -> Any:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name, "readCompacted": "true", **more}
    options = Options(given, BATCH_READ, "a batch read")
    return kind(options, chosen_columns(spark_schema(options), options))


def rows(reader: Any) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def table(topics: Topics, name: str, **more: str) -> dict[bytes, bytes]:
    found = rows(reader_of(topics, name, **more))
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"]: row["value"] for row in found}


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_kafkas_records_against_a_table(topics: Topics, policy: str) -> None:
    name = topics.create(partitions=3, **{"cleanup.policy": policy})
    rng = random.Random(policy)
    expected: dict[bytes, bytes] = {}
    producer = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 5})
    for number in range(3000):
        which, gone = rng.randrange(200), rng.random() < 0.2
        key = b"k%d" % which
        value = None if gone else b"" if number % 50 == 0 else b"v%d" % number
        producer.produce(name, value, key, partition=which % 3)
        expected.pop(key, None)
        if value is not None:
            expected[key] = value
    if policy == "delete":  # where records without a key are allowed
        producer.produce(name, b"nobody's", partition=0)
    assert producer.flush(60) == 0
    assert table(topics, name) == expected


def call(admin: str, method: str, path: str) -> bytes:
    request = urllib.request.Request(f"{admin}/admin/v2/{path}", method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        told: bytes = answer.read()
    return told


def compact(admin: str, topic: str) -> None:
    path = f"persistent/public/default/{topic}/compaction"
    call(admin, "PUT", path)
    deadline = time.monotonic() + 120
    while json.loads(call(admin, "GET", path))["status"] != "SUCCESS":
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(ELSEWHERE is not None, reason="it is for a Pulsar client")
def test_pulsars_messages_from_the_view_and_the_log(
    spark_broker: BrokerProcess, client: pulsar.Client, topics: Topics
) -> None:
    name = f"prices-{uuid.uuid4().hex[:8]}"
    producer = client.create_producer(name)
    keeper = client.subscribe(name, "keeper")  # or the topic would go when its producer leaves
    for number in range(100):
        producer.send(b"%d" % number, partition_key=f"k{number % 10}")
    producer.send(b"", partition_key="k3")
    compact(spark_broker.admin, name)
    topics.trim(name, 0, 100)  # what the log has lost, the view has
    producer.send(b"new", partition_key="k4")
    producer.send(b"", partition_key="k5")
    producer.send(b"no key")
    before = {b"k%d" % n: b"%d" % (90 + n) for n in range(10) if n not in (3, 4, 5)}
    assert table(topics, name) == before | {b"k4": b"new"}
    found = rows(reader_of(topics, name, includePulsar="true"))
    assert {row["producerName"] for row in found} == {producer.producer_name()}
    compact(spark_broker.admin, name)
    assert table(topics, name) == before | {b"k4": b"new"}
    end = json.dumps({name: {"0": 101}})
    assert table(topics, name, endingOffsets=end) == before  # of k4 there is nothing older any more
    keeper.close()


@pytest.mark.skipif(ELSEWHERE is not None, reason="tables are ours")
def test_a_topic_that_is_kept_as_a_table(topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, range(70), partitions=1)
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(name, None, b"k3", 0)
    producer.produce(name, b"", b"empty", 0)
    producer.produce(name, b"other", b"k3", 1)
    assert producer.flush(60) == 0
    tables = Tables(topics.bootstrap)
    tables.enable(name, tmp_path / "table")
    tables.round()
    topics.trim(name, 0, 72)
    producer.produce(name, b"new", b"k5", 0)
    assert producer.flush(60) == 0
    expected = {b"k%d" % n: b"%d" % (63 + n) for n in range(7) if n != 3}
    expected |= {b"k5": b"new", b"empty": b"", b"k3": b"other"}
    assert table(topics, name) == expected
    found = rows(reader_of(topics, name, includeHeaders="true", includePulsar="true"))
    assert sorted(row["offset"] for row in found) == [0, 63, 64, 65, 67, 69, 71, 72]
    end = json.dumps({name: {"0": 67, "1": 0}})
    older = {b"k%d" % n: b"%d" % (63 + n if n < 4 else 56 + n) for n in range(7)}
    assert table(topics, name, endingOffsets=end) == older
    assert table(topics, name, useTable="false") == {b"k5": b"new", b"k3": b"other"}


@pytest.mark.skipif(ELSEWHERE is not None, reason="tables are ours")
def test_pulsars_messages_in_a_table(client: pulsar.Client, topics: Topics, tmp_path: Path) -> None:
    name = f"prices-{uuid.uuid4().hex[:8]}"
    producer = client.create_producer(name)
    keeper = client.subscribe(name, "keeper")
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b""), ("c", b"3")):
        producer.send(value, partition_key=key)
    tables = Tables(topics.bootstrap)
    tables.enable(name, tmp_path / "table")
    tables.round()
    topics.trim(name, 0, 4)
    producer.send(b"", partition_key="c")
    assert table(topics, name) == {b"b": b"2"}
    keeper.close()


def test_what_is_not_committed_hides_nothing(topics: Topics) -> None:
    name = topics.create(partitions=1)
    settings = {"bootstrap.servers": topics.bootstrap, "transactional.id": uuid.uuid4().hex}
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"1", b"k")
    producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(name, b"2", b"k")
    producer.flush(60)
    assert table(topics, name) == {b"k": b"1"}
    producer.abort_transaction(20)
    assert table(topics, name) == {b"k": b"1"}


def test_filters_do_not_bring_back_what_is_superseded(topics: Topics) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(70), partitions=1)
    reader = reader_of(topics, name, FilteringCompactedReader)
    filters = [EqualTo(("partition",), 0), LessThan(("offset",), 10)]
    assert list(reader.pushFilters(filters)) == filters
    assert sorted(row["offset"] for row in rows(reader)) == list(range(63, 70))
    start = json.dumps({name: {"0": 66}})
    assert sorted(table(topics, name, startingOffsets=start).values()) == [b"66", b"67", b"68", b"69"]


def test_a_row_that_goes_meanwhile_is_missed(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(14), partitions=1)
    how = Fetching(Settings(topics.bootstrap), committed=True, fail_on_data_loss=False, fetch_bytes=1024)
    whole = TopicPartition(name, 0)
    part = PartitionRows(whole, [Range(whole, 0, 14)], [])
    reading = compacted_rows(part, how, arrow_schema(["value"]))
    assert sum(batch.num_rows for batch in reading) == 7

    read = compacted_reader.read_ranges
    times: list[Range] = []

    def trimmed_between(ranges: list[Range], *more: Any) -> Iterator[Any]:
        if times:
            topics.trim(name, 0, 10)
        times.extend(ranges)
        return read(ranges, *more)

    monkeypatch.setattr(compacted_reader, "read_ranges", trimmed_between)
    with pytest.raises(Unavailable, match="3 rows are gone"):
        list(compacted_rows(part, how, arrow_schema(["value"])))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.isolation.level": "read_uncommitted"}, "reads what is committed"),
        ({"minPartitions": "4"}, "minPartitions has no meaning with readCompacted"),
        ({"readCompacted": "yes"}, "not true or false"),
    ],
)
def test_options_that_do_not_go_with_it(topics: Topics, options: dict[str, str], said: str) -> None:
    given = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "subscribe": "x",
        "readCompacted": "true",
        **options,
    }
    found = Options(given, BATCH_READ, "a batch read")
    with pytest.raises(AnabranchError, match=said):
        batch_reader(found, chosen_columns(spark_schema(found), found))
