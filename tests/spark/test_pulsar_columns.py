"""What Pulsar's clients see of a message, as columns; no JVM is needed."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pulsar
import pytest
from confluent_kafka import Producer
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from anabranch.spark.batch_reader import BatchReader
from anabranch.spark.options import BATCH_READ, Options
from anabranch.spark.reading import chosen_columns, spark_schema
from tests.spark.conftest import ELSEWHERE, Topics
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.skipif(ELSEWHERE is not None, reason="a Pulsar client is needed at both ends")
EVENT_MS = 1_700_000_000_123


@pytest.fixture
def client(spark_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    found = pulsar.Client(spark_broker.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield found
    found.close()


def rows(broker: BrokerProcess, topic: str, **more: str) -> list[dict[str, Any]]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includePulsar": "true", **more}
    options = Options(given, BATCH_READ, "a batch read")
    reader = BatchReader(options, chosen_columns(spark_schema(options), options))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]


def ms(time: datetime) -> int:
    return round(time.astimezone(UTC).timestamp() * 1000)


def test_messages_of_pulsars_clients(spark_broker: BrokerProcess, client: pulsar.Client) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    batched = client.create_producer(name, producer_name="till", batching_max_publish_delay_ms=200)
    for number in range(3):
        batched.send_async(b"%d" % number, lambda *_: None, properties={"n": str(number), "é": "☃"})
    batched.flush()
    single = client.create_producer(name, producer_name="web", batching_enabled=False)
    single.send(b"3", event_timestamp=EVENT_MS, partition_key="k")
    found = rows(spark_broker, name, includeHeaders="true")
    assert [row["producerName"] for row in found] == ["till"] * 3 + ["web"]
    assert [row["properties"] for row in found] == [*({"n": str(n), "é": "☃"} for n in range(3)), {}]
    assert found[0]["headers"] == [{"key": "n", "value": b"0"}, {"key": "é", "value": "☃".encode()}]
    assert found[3]["headers"] is None
    assert [row["eventTime"] and ms(row["eventTime"]) for row in found] == [None, None, None, EVENT_MS]
    reader = client.create_reader(name, pulsar.MessageId.earliest)
    seen = [reader.read_next(5000) for _ in range(4)]
    for row, message in zip(found, seen, strict=True):
        id = pulsar.MessageId.deserialize(row["messageId"])
        assert id == message.message_id()
        assert id.partition() == message.message_id().partition()
        assert ms(row["publishTime"]) == message.publish_timestamp()
        assert row["value"] == message.data()
    reader.seek(pulsar.MessageId.deserialize(found[1]["messageId"]))
    assert reader.read_next(5000).data() == found[2]["value"]
    reader.close()
    # A reader that begins at a message gets what comes after it, inside a batch, too.
    for row, following in pairwise(found):
        start = pulsar.MessageId.deserialize(row["messageId"])
        reader = client.create_reader(name, start)
        assert reader.read_next(5000).data() == following["value"]
        reader.close()


def test_records_of_kafkas_clients(
    spark_broker: BrokerProcess, client: pulsar.Client, topics: Topics
) -> None:
    name = topics.create(partitions=2, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 100})
    headers: list[tuple[str, Any]] = [("a", b"1"), ("a", b"2"), ("raw", b"\xff\0"), ("none", None)]
    for value in (b"x", b"y"):
        producer.produce(name, value, partition=1, timestamp=EVENT_MS, headers=headers)
    assert producer.flush(20) == 0
    found = rows(spark_broker, name)
    assert [row["properties"] for row in found] == [{"a": "2", "raw": "/wA=", "none": ""}] * 2
    assert [(row["producerName"], ms(row["publishTime"]), ms(row["eventTime"])) for row in found] == [
        (None, EVENT_MS, EVENT_MS)
    ] * 2
    reader = client.create_reader(f"{name}-partition-1", pulsar.MessageId.earliest)
    ids = [reader.read_next(5000).message_id() for _ in range(2)]
    assert [pulsar.MessageId.deserialize(row["messageId"]) for row in found] == ids
    reader.close()


def test_single_columns_by_schema(spark_broker: BrokerProcess, topics: Topics) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(3), partitions=1)
    given = {"kafka.bootstrap.servers": spark_broker.bootstrap, "subscribe": name}
    options = Options(given, BATCH_READ, "a batch read")
    text = MapType(StringType(), StringType())
    schema = StructType().add("messageId", BinaryType()).add("properties", text).add("value", BinaryType())
    reader = BatchReader(options, chosen_columns(schema, options))
    (part,) = reader.partitions()
    found = [row for batch in reader.read(part) for row in batch.to_pylist(maps_as_pydicts="strict")]
    assert [(row["value"], row["properties"]) for row in found] == [(b"0", {}), (b"1", {}), (b"2", {})]
    ids = [pulsar.MessageId.deserialize(row["messageId"]) for row in found]
    assert [id.entry_id() + max(id.batch_index(), 0) for id in ids] == [0, 1, 2]
    assert {id.partition() for id in ids} == {-1}
