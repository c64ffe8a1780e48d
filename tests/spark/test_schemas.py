"""Values read by their registered schemas, as real clients of both protocols write them; no JVM is needed."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pulsar.schema import AvroSchema, Float, Integer, JsonSchema, Record, String, StringSchema

from anabranch.base.errors import AnabranchError, Corrupt, Invalid
from anabranch.spark.batch_reader import BatchReader
from anabranch.spark.options import BATCH_READ, Options
from anabranch.spark.reading import chosen_columns, spark_schema
from anabranch.spark.source import AnabranchSource
from tests.spark.conftest import ELSEWHERE, Topics
from tests.support.broker import BrokerProcess

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "double"}],
}
WIDER = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "coupon", "type": ["null", "string"], "default": None}],
}
ONLY_OURS = pytest.mark.skipif(ELSEWHERE is not None, reason="it is for a Pulsar client")
Read = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def registry(spark_broker: BrokerProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": spark_broker.admin}) as client:
        yield client


@pytest.fixture
def read(spark_broker: BrokerProcess, bootstrap: str) -> Read:
    """The rows of a topic, read by its schema."""

    def rows(topic: str, columns: str = "", **options: str) -> list[dict[str, Any]]:
        given = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "valueSchema": "registry",
            "schema.registry.url": spark_broker.admin,
            **options,
        }
        found = Options({name: value for name, value in given.items() if value}, BATCH_READ, "a batch read")
        schema = spark_schema(found)
        if columns:
            schema = schema.__class__([schema[name.strip()] for name in columns.split(",")])
        reader = BatchReader(found, chosen_columns(schema, found))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]

    return rows


def send(topics: Topics, name: str, values: list[bytes | None], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for value in values:
        producer.produce(name, value, **more)
    assert producer.flush(20) == 0


def avro(registry: SchemaRegistryClient, topic: str, schema: Any, values: list[Any]) -> list[bytes | None]:
    serializer = AvroSerializer(registry, json.dumps(schema))
    context = SerializationContext(topic, MessageField.VALUE)
    return [serializer(value, context) for value in values]


@pytest.fixture
def client(spark_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    found = pulsar.Client(spark_broker.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield found
    found.close()


def test_avro_of_several_versions_is_read_as_the_latest(
    topics: Topics, registry: SchemaRegistryClient, read: Read
) -> None:
    name = topics.create(partitions=1)
    send(topics, name, avro(registry, name, ORDER, [{"id": "a", "amount": 1.5}, {"id": "b", "amount": 2.0}]))
    send(topics, name, [None])
    newer = [{"id": "c", "amount": 3.0, "coupon": "SPRING"}]
    send(topics, name, avro(registry, name, WIDER, newer))
    found = read(name, "id,amount,coupon,offset")
    assert [tuple(row.values()) for row in found] == [
        ("a", 1.5, None, 0),
        ("b", 2.0, None, 1),
        (None, None, None, 2),
        ("c", 3.0, "SPRING", 3),
    ]
    older = read(name, valueSchemaVersion="1")
    assert list(older[3]) == [
        "key",
        "id",
        "amount",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert older[3]["id"] == "c"
    assert read(name, "value", valueAs="struct")[3] == {"value": newer[0]}
    assert read(name, "amount") == [{"amount": one} for one in (1.5, 2.0, None, 3.0)]


def test_records_that_are_none(topics: Topics, registry: SchemaRegistryClient, read: Read) -> None:
    name = topics.create(partitions=1)
    good = avro(registry, name, ORDER, [{"id": "a", "amount": 1.5}])[0]
    assert good is not None
    bad = [b"hello", good[:-1], b"\0\0\0\xff\xff" + good[5:], b""]
    send(topics, name, [good, *bad, good])
    with pytest.raises(Corrupt, match=rf"the value at offset 1 of {name}-0 cannot be read") as raised:
        read(name)
    assert "does not begin with the id of a schema (3 more near it)" in str(raised.value)
    assert "mode to PERMISSIVE" in str(raised.value)
    found = read(name, mode="permissive")
    assert [row["id"] for row in found] == ["a", None, None, None, None, "a"]
    assert [row["_corrupt_record"] for row in found] == [None, *bad, None]
    reasons = [row["_corrupt_reason"] for row in found]
    assert reasons[0] is None
    assert reasons[1] == "the value: it does not begin with the id of a schema"
    assert reasons[2] == "the value: it ends too early"
    assert "Schema 65535 not found" in reasons[3]


def test_json_and_its_errors_by_path(topics: Topics, registry: SchemaRegistryClient, read: Read) -> None:
    name = topics.create(partitions=1)
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
            "extra": {"type": "object", "additionalProperties": {"type": "number"}},
            "any": {},
        },
        "definitions": {"line": {"type": "object", "properties": {"sku": {"type": ["null", "string"]}}}},
    }
    serializer = JSONSerializer(json.dumps(schema), registry)
    context = SerializationContext(name, MessageField.VALUE)
    order = {"id": 7, "lines": [{"sku": "x"}, {"sku": None}], "extra": {"a": 1.5}, "any": {"b": [1]}}
    value = serializer(order, context)
    assert value is not None
    send(topics, name, [value, value[:5] + b'{"id": 8}', value[:5] + b'{"id": "nine"}', value[:5] + b"{"])
    found = read(name, "id,lines,extra,any,_corrupt_reason", mode="PERMISSIVE")
    assert found[0] == {**order, "any": '{"b":[1]}', "_corrupt_reason": None}
    assert found[1]["id"] == 8
    assert found[2]["_corrupt_reason"] == "the value: Expected `int | null`, got `str` - at `$.id`"
    assert "truncated" in found[3]["_corrupt_reason"]


PROTO = """
syntax = "proto3";
package shop;
message Order { string id = 1; double amount = 2; repeated string tags = 3; optional string note = 4; }
message Other { string id = 1; }
"""


def test_protobuf(topics: Topics, registry: SchemaRegistryClient, read: Read) -> None:
    name = topics.create(partitions=1)
    id = registry.register_schema(f"{name}-value", Schema(PROTO, "PROTOBUF"))
    head = b"\0" + id.to_bytes(4, "big")
    order = b"\x0a\x01a\x11" + b"\0\0\0\0\0\0\xf8\x3f" + b"\x1a\x01x\x1a\x01y"
    send(topics, name, [head + b"\0" + order, head + b"\x02\x02" + order, head + b"\0\xff"])
    found = read(name, "id,amount,tags,note,_corrupt_reason", mode="PERMISSIVE")
    assert found[0] == {"id": "a", "amount": 1.5, "tags": ["x", "y"], "note": None, "_corrupt_reason": None}
    assert found[1]["_corrupt_reason"] == "the value: it is a shop.Other, not a shop.Order"
    assert "shop.Order" in found[2]["_corrupt_reason"]


class Payment(Record):
    card = String()
    amount = Float()


class Wider(Record):
    card = String()
    amount = Float()
    shop = Integer(default=None, required_default=True)


@ONLY_OURS
@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_what_pulsars_clients_write(client: pulsar.Client, read: Read, kind: Any) -> None:
    name = f"payments-{uuid.uuid4().hex[:8]}"
    producer = client.create_producer(name, schema=kind(Payment))
    producer.send(Payment(card="1234", amount=2.5))
    producer.close()
    producer = client.create_producer(name, schema=kind(Wider), batching_enabled=False)
    producer.send(Wider(card="5678", amount=0.5, shop=7))
    producer.close()
    found = read(name, "card,amount,shop,offset")
    assert [tuple(row.values()) for row in found] == [("1234", 2.5, None, 0), ("5678", 0.5, 7, 1)]
    raw = client.create_producer(name)
    raw.send(b"\x05")
    raw.close()
    with pytest.raises(Corrupt, match="the value at offset 2"):
        read(name)


@ONLY_OURS
def test_pulsars_text(client: pulsar.Client, read: Read) -> None:
    name = f"words-{uuid.uuid4().hex[:8]}"
    client.create_producer(name, schema=StringSchema()).send("snow ☃")
    assert read(name, "value") == [{"value": "snow ☃"}]


def test_keys_by_their_schema(topics: Topics, registry: SchemaRegistryClient, read: Read) -> None:
    name = topics.create(partitions=1)
    key = AvroSerializer(registry, '"long"')(42, SerializationContext(name, MessageField.KEY))
    send(topics, name, avro(registry, name, ORDER, [{"id": "a", "amount": 1.5}]), key=key)
    assert read(name, "key,id", keySchema="registry") == [{"key": 42, "id": "a"}]


def test_two_topics_of_one_schema(topics: Topics, registry: SchemaRegistryClient, read: Read) -> None:
    first, second, other = topics.create(), topics.create(), topics.create()
    for name in (first, second):
        send(topics, name, avro(registry, name, ORDER, [{"id": name, "amount": 1.0}]))
    assert {row["id"] for row in read(f"{first},{second}")} == {first, second}
    send(topics, other, avro(registry, other, WIDER, [{"id": "x", "amount": 1.0, "coupon": None}]))
    with pytest.raises(Invalid, match="read them one by one"):
        read(f"{first},{other}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema.registry.url": ""}, "the option schema.registry.url is missing"),
        ({"schema.registry.url": "127.0.0.1:8080"}, "not such as http://127.0.0.1:8080"),
        ({"schema.registry.url": "http://127.0.0.1:1"}, "cannot be reached"),
        ({"valueSchemaVersion": "99"}, "Version 99 not found"),
        ({"valueSubject": "nobody"}, "Subject 'nobody' not found"),
        ({"mode": "DROPMALFORMED"}, "would lose records unseen"),
        ({"mode": "lenient"}, "not one of FAILFAST, PERMISSIVE"),
        ({"valueSchema": "avro"}, "not one of registry"),
        ({"valueSchema": "", "mode": "PERMISSIVE"}, "no meaning without valueSchema"),
        ({"keySubject": "x"}, "keySubject has no meaning without keySchema"),
        ({"valueShema": "registry"}, "did you mean valueSchema?"),
    ],
)
def test_what_is_wrong_is_said(
    topics: Topics, registry: SchemaRegistryClient, read: Read, options: dict[str, str], said: str
) -> None:
    name = topics.create(partitions=1)
    registry.register_schema(f"{name}-value", Schema(json.dumps(ORDER), "AVRO"))
    with pytest.raises(AnabranchError) as raised:
        read(name, **options)
    assert said in str(raised.value)


def test_a_topic_without_a_schema_and_one_whose_fields_are_a_topics(
    topics: Topics, registry: SchemaRegistryClient, read: Read
) -> None:
    name = topics.create(partitions=1)
    with pytest.raises(AnabranchError, match=f"topic '{name}' has no schema"):
        read(name)
    clash = {**ORDER, "fields": [{"name": "timestamp", "type": "long"}]}
    send(topics, name, avro(registry, name, clash, [{"timestamp": 5}]))
    with pytest.raises(Invalid, match="field timestamp has the name of a topic's column"):
        read(name)
    assert read(name, "value", valueAs="struct") == [{"value": {"timestamp": 5}}]


def test_types_are_checked(
    topics: Topics, registry: SchemaRegistryClient, spark_broker: BrokerProcess
) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    name = topics.create(partitions=1)
    registry.register_schema(f"{name}-value", Schema(json.dumps(ORDER), "AVRO"))
    given = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "subscribe": name,
        "valueSchema": "registry",
        "schema.registry.url": spark_broker.admin,
    }
    options = Options(given, BATCH_READ, "a batch read")
    with pytest.raises(Invalid, match="the column amount is double, not bigint"):
        chosen_columns(StructType([StructField("amount", LongType())]), options)
    assert chosen_columns(spark_schema(options), options).schema.field("id").type == pa.string()


def save(broker: BrokerProcess, schema: Any, batch: pa.RecordBatch, **options: str) -> None:
    given = {
        "kafka.bootstrap.servers": ELSEWHERE or broker.bootstrap,
        "schema.registry.url": broker.admin,
        **options,
    }
    source = AnabranchSource({name: value for name, value in given.items() if value})
    writer = source.writer(schema, overwrite=False)
    writer.commit([writer.write(iter([batch]))])  # type: ignore[arg-type]


def two_orders() -> tuple[Any, pa.RecordBatch]:
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [("key", pa.string()), ("id", pa.string()), ("amount", pa.float64())]
    batch = pa.RecordBatch.from_pydict(
        {"key": ["k", "k"], "id": ["a", None], "amount": [1.5, 2.5]}, schema=pa.schema(fields)
    )
    return from_arrow_schema(batch.schema), batch


@pytest.mark.parametrize("form", ["avro", "json"])
def test_columns_become_values_of_a_registered_schema(
    topics: Topics, registry: SchemaRegistryClient, read: Read, spark_broker: BrokerProcess, form: str
) -> None:
    name = topics.create(partitions=1)
    schema, batch = two_orders()
    save(spark_broker, schema, batch, topic=name, valueSchema=form)
    context = SerializationContext(name, MessageField.VALUE)
    deserializer: Any = AvroDeserializer(registry)
    if form == "json":
        text = registry.get_latest_version(f"{name}-value").schema.schema_str
        deserializer = JSONDeserializer(text, schema_registry_client=registry)
    orders = [{"id": "a", "amount": 1.5}, {"id": None, "amount": 2.5}]
    assert [deserializer(value, context) for value in topics.values(name)] == orders
    assert [{**row, "key": row["key"].decode()} for row in read(name, "key,id,amount")] == batch.to_pylist()


def test_a_schema_that_the_registry_refuses_writes_nothing(
    topics: Topics, registry: SchemaRegistryClient, spark_broker: BrokerProcess
) -> None:
    name = topics.create(partitions=1)
    before = {**ORDER, "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
    registry.register_schema(f"{name}-value", Schema(json.dumps(before), "AVRO"))
    schema, batch = two_orders()
    with pytest.raises(AnabranchError, match="the schema registry refuses") as raised:
        save(spark_broker, schema, batch, topic=name, valueSchema="avro")
    assert "incompatible with an earlier schema" in str(raised.value)
    assert topics.values(name) == []
    registry.set_compatibility(f"{name}-value", level="NONE")
    save(spark_broker, schema, batch, topic=name, valueSchema="avro")
    text = registry.get_latest_version(f"{name}-value").schema.schema_str
    assert json.loads(text)["name"] == "shop.Order"
    assert len(topics.values(name)) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueSchema": "registry"}, "not one of avro, json"),
        ({"valueSchema": "avro", "topic": ""}, "needs the option topic, or valueSubject"),
        ({"valueSchema": "avro", "schema.registry.url": ""}, "schema.registry.url is missing"),
        ({"valueSchema": "avro", "mode": "PERMISSIVE"}, "mode has no meaning for a batch write"),
        ({"valueSubject": "x"}, "has no meaning without valueSchema"),
    ],
)
def test_writes_that_cannot_be(spark_broker: BrokerProcess, options: dict[str, str], said: str) -> None:
    schema, batch = two_orders()
    with pytest.raises(AnabranchError, match=said):
        save(spark_broker, schema, batch, **{"topic": "never", **options})
