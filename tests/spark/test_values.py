"""Schemas, Pulsar's columns and compacted reads through Spark itself."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import Topics
from tests.spark.test_schemas import ORDER, WIDER, avro, registry, send
from tests.support.broker import BrokerProcess

__all__ = ["registry"]
Rows = Callable[..., DataFrame]


@pytest.fixture
def schemas(spark_broker: BrokerProcess) -> dict[str, str]:
    return {"valueSchema": "registry", "schema__registry__url": spark_broker.admin}


def test_a_topic_by_its_schema(
    spark: SparkSession, rows: Rows, topics: Topics, registry: SchemaRegistryClient, schemas: dict[str, str]
) -> None:
    name = topics.create(partitions=1)
    orders = [{"id": f"o{n}", "amount": n / 2, "coupon": None if n % 2 else "SPRING"} for n in range(100)]
    send(topics, name, avro(registry, name, WIDER, orders), key=b"k")
    found = rows(name, **schemas, includePulsar="true")
    assert found.drop("timestamp").dtypes == [
        ("key", "binary"),
        ("id", "string"),
        ("amount", "double"),
        ("coupon", "string"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestampType", "int"),
        ("messageId", "binary"),
        ("publishTime", "timestamp"),
        ("eventTime", "timestamp"),
        ("properties", "map<string,string>"),
        ("producerName", "string"),
    ]
    assert [
        row.asDict() for row in found.orderBy("offset").select("id", "amount", "coupon").collect()
    ] == orders
    assert found.where("offset >= 90 and coupon is null").count() == 5
    assert rows(name, **schemas, readCompacted="true").where("offset < 99").count() == 0
    assert [row.id for row in rows(name, **schemas, readCompacted="true").collect()] == ["o99"]
    given = {name.replace("__", "."): value for name, value in schemas.items()}
    narrow = spark.read.format("anabranch").schema("amount double, offset long").options(**given)
    narrow = narrow.option("kafka.bootstrap.servers", topics.bootstrap).option("subscribe", name)
    assert narrow.load().agg({"amount": "sum"}).collect()[0][0] == sum(one["amount"] for one in orders)


def test_a_stream_whose_schema_changes_and_breaks(
    spark: SparkSession,
    topics: Topics,
    registry: SchemaRegistryClient,
    spark_broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    name, good, bad = topics.create(partitions=1), topics.create(partitions=1), topics.create(partitions=1)
    send(topics, name, avro(registry, name, ORDER, [{"id": "a", "amount": 1.0}]))

    def copy() -> None:
        """What is read goes on as Avro of its own schema; what cannot be, with the reason, elsewhere."""
        read = spark.readStream.format("anabranch").option("subscribe", name)
        read = read.option("valueSchema", "registry").option("schema.registry.url", spark_broker.admin)
        read = read.option("mode", "PERMISSIVE").option("startingOffsets", "earliest")
        orders = read.option("kafka.bootstrap.servers", topics.bootstrap).load()
        for frame, topic, more in (
            (orders.where("_corrupt_reason is null").select("id", "amount"), good, {"valueSchema": "avro"}),
            (orders.where("_corrupt_reason is not null").selectExpr("_corrupt_reason as value"), bad, {}),
        ):
            if more:
                more = {**more, "schema.registry.url": spark_broker.admin}
            write = frame.writeStream.format("anabranch").option("topic", topic).options(**more)
            write = write.option("kafka.bootstrap.servers", topics.bootstrap)
            write = write.option("checkpointLocation", str(tmp_path / topic)).trigger(availableNow=True)
            write.start().awaitTermination()

    copy()
    send(topics, name, [b"poison", *avro(registry, name, WIDER, [{"id": "b", "amount": 2.0, "coupon": "x"}])])
    copy()
    context = SerializationContext(good, MessageField.VALUE)
    deserialize = AvroDeserializer(registry)
    assert [deserialize(value, context) for value in topics.values(good)] == [
        {"id": "a", "amount": 1.0},
        {"id": "b", "amount": 2.0},
    ]
    assert topics.values(bad) == [b"the value: it does not begin with the id of a schema"]


def test_what_is_wrong_reaches_the_user(
    spark: SparkSession, rows: Rows, topics: Topics, registry: SchemaRegistryClient, schemas: dict[str, str]
) -> None:
    name = topics.create(partitions=1)
    send(topics, name, [*avro(registry, name, ORDER, [{"id": "a", "amount": 1.0}]), b"poison"])
    with pytest.raises(PySparkException, match=f"the value at offset 1 of {name}-0 cannot be read"):
        rows(name, **schemas).count()
    with pytest.raises(PySparkException, match=r"the schema registry .* cannot be reached"):
        rows(name, valueSchema="registry", schema__registry__url="http://127.0.0.1:1").count()
    frame = spark.range(1).selectExpr("id", "'x' as amount")
    write = frame.write.format("anabranch").option("kafka.bootstrap.servers", topics.bootstrap)
    write = write.options(
        **{"topic": name, "valueSchema": "avro", "schema.registry.url": schemas["schema__registry__url"]}
    )
    with pytest.raises(PySparkException, match="the schema registry refuses"):
        write.mode("append").save()
    assert json.loads(registry.get_latest_version(f"{name}-value").schema.schema_str)["name"] == "Order"
