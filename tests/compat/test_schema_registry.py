"""One registry: confluent-kafka's serializers and pulsar-client's schemas, on the same topics."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from tests.support.broker import BrokerProcess

Connect = Callable[[BrokerProcess], SchemaRegistryClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Clients of the registry that end with the test."""
    with ExitStack() as opened:
        yield lambda broker: opened.enter_context(SchemaRegistryClient({"url": broker.admin}))


@pytest.fixture
def registry(connect: Connect, shared_broker: BrokerProcess) -> SchemaRegistryClient:
    return connect(shared_broker)


@pytest.fixture
def client(pulsar_url: str) -> Iterator[pulsar.Client]:
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    opened = pulsar.Client(pulsar_url, operation_timeout_seconds=60, logger=quiet)
    yield opened
    opened.close()


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def avro(*fields: tuple[str, Any], name: str = "shop.Order") -> str:
    told = [
        {"name": field, "type": kind}
        if not isinstance(kind, tuple)
        else {"name": field, "type": kind[0], "default": kind[1]}
        for field, kind in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": told})


def refused(call: Callable[[], object]) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as caught:
        call()
    return caught.value.http_status_code, caught.value.error_code


def through_the_broker(bootstrap: str, topic: str, value: bytes) -> bytes:
    """What a consumer reads of what a producer wrote."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(60) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **group})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        data = message.value()
        assert data is not None
        return data
    finally:
        consumer.close()


def test_avro(registry: SchemaRegistryClient, bootstrap: str, name: Callable[[str], str]) -> None:
    topic = name("avro")
    write = AvroSerializer(
        registry, avro(("id", "string"), ("count", "int")), conf={"normalize.schemas": True}
    )
    data = write({"id": "a", "count": 3}, value_of(topic))
    assert data is not None
    newer = avro(("id", "string"), ("count", "long"), ("note", ("string", "none")))
    read = AvroDeserializer(registry, newer)
    found = read(through_the_broker(bootstrap, topic, data), value_of(topic))
    assert found == {"id": "a", "count": 3, "note": "none"}


def test_evolution(registry: SchemaRegistryClient, name: Callable[[str], str]) -> None:
    subject = name("evolving") + "-value"
    old, more = avro(("a", "int")), avro(("a", "int"), ("b", "int"))
    optional = avro(("a", "int"), ("b", ("int", 0)))
    registry.register_schema(subject, Schema(old, "AVRO"))
    levels = {
        "BACKWARD": [optional],
        "FORWARD": [more, optional],
        "FULL": [optional],
        "NONE": [more, optional],
    }
    for level, allowed in levels.items():
        registry.set_compatibility(subject, level)
        for text in (more, optional):
            assert registry.test_compatibility(subject, Schema(text, "AVRO")) == (text in allowed), level
    registry.set_compatibility(subject, "BACKWARD")
    assert refused(lambda: registry.register_schema(subject, Schema(more, "AVRO"))) == (409, 409)
    registry.register_schema(subject, Schema(optional, "AVRO"))
    assert registry.get_versions(subject) == [1, 2]
    latest = AvroSerializer(registry, None, conf={"auto.register.schemas": False, "use.latest.version": True})
    assert latest({"a": 1, "b": 2}, value_of(subject.removesuffix("-value")))
    known = AvroSerializer(registry, old, conf={"auto.register.schemas": False})
    assert known({"a": 1}, value_of(subject.removesuffix("-value")))
    unknown = AvroSerializer(registry, more, conf={"auto.register.schemas": False})
    assert refused(lambda: unknown({"a": 1, "b": 1}, value_of(subject.removesuffix("-value")))) == (
        404,
        40403,
    )


def test_references(registry: SchemaRegistryClient, name: Callable[[str], str]) -> None:
    topic, customers = name("referring"), name("customers")
    registry.register_schema(customers, Schema(avro(("name", "string"), name="shop.Customer"), "AVRO"))
    reference = SchemaReference("shop.Customer", customers, 1)
    order = Schema(avro(("by", "shop.Customer")), "AVRO", [reference])
    data = AvroSerializer(registry, order)({"by": {"name": "Ann"}}, value_of(topic))
    assert AvroDeserializer(registry)(data, value_of(topic)) == {"by": {"name": "Ann"}}
    assert len(registry.get_referenced_by(customers, 1)) == 1
    assert refused(lambda: registry.delete_subject(customers)) == (422, 42206)


def test_json(registry: SchemaRegistryClient, name: Callable[[str], str]) -> None:
    topic, items = name("json"), name("items")
    item = {"$id": "http://example.com/item.json", "type": "string"}
    order = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"$ref": "http://example.com/item.json"}},
        "additionalProperties": False,
    }
    registry.register_schema(items, Schema(json.dumps(item), "JSON"))
    reference = SchemaReference("http://example.com/item.json", items, 1)
    schema = Schema(json.dumps(order), "JSON", [reference])
    data = JSONSerializer(schema, registry)({"id": 1, "item": "tea"}, value_of(topic))
    read = JSONDeserializer(schema, schema_registry_client=registry)
    assert read(data, value_of(topic)) == {"id": 1, "item": "tea"}
    wider: dict[str, Any] = {**order, "properties": {**order["properties"], "note": {"type": "string"}}}
    assert registry.test_compatibility(f"{topic}-value", Schema(json.dumps(wider), "JSON", [reference]))
    wider["required"] = ["note"]
    narrow = Schema(json.dumps(wider), "JSON", [reference])
    assert refused(lambda: registry.register_schema(f"{topic}-value", narrow)) == (409, 409)


def basket() -> type[Any]:
    """A message whose file imports another, and one of Google's."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb))
    item = descriptor_pb2.FileDescriptorProto(name="shop/item.proto", package="shop", syntax="proto3")
    item.message_type.add(name="Item").field.add(name="sku", number=1, type=9, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="shop/basket.proto", package="shop", syntax="proto3")
    file.dependency.extend(["shop/item.proto", "google/protobuf/timestamp.proto"])
    file.message_type.add(name="Other")
    fields = file.message_type.add(name="Basket").field
    fields.add(name="items", number=1, type=11, label=3, type_name=".shop.Item")
    fields.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.Add(item)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Basket"))


def test_protobuf(
    registry: SchemaRegistryClient, connect: Connect, shared_broker: BrokerProcess, name: Callable[[str], str]
) -> None:
    topic, kind, conf = name("protobuf"), basket(), {"use.deprecated.format": False}
    message = kind()
    message.items.add(sku="tea")
    message.at.seconds = 7
    data = ProtobufSerializer(kind, registry, conf)(message, value_of(topic))
    read = ProtobufDeserializer(kind, conf, connect(shared_broker))
    assert read(data, value_of(topic)) == message
    text = registry.get_latest_version(f"{topic}-value").schema.schema_str
    assert text is not None
    assert 'import "shop/item.proto";' in text
    reference = SchemaReference("shop/item.proto", "shop/item.proto", 1)
    changed = Schema(text.replace("repeated .shop.Item items", "string items"), "PROTOBUF", [reference])
    assert refused(lambda: registry.register_schema(f"{topic}-value", changed)) == (409, 409)
    more = Schema(text.replace("message Other {", "message Other { int32 n = 1;"), "PROTOBUF", [reference])
    id = registry.register_schema(f"{topic}-value", more)
    packed = registry.get_schema(id, fmt="serialized").schema_str
    assert packed is not None
    file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(packed))
    assert [one.name for one in file.message_type] == ["Other", "Basket"]


def test_what_pulsars_clients_register(
    registry: SchemaRegistryClient, client: pulsar.Client, name: Callable[[str], str]
) -> None:
    class Order(Record):  # type: ignore[misc]
        id = String()
        count = Integer()

    topic = name("both")
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    producer.send(Order(id="a", count=3))
    found = registry.get_latest_version(f"{topic}-value")
    assert found.version == 1
    assert found.schema.schema_str is not None
    told = json.loads(found.schema.schema_str)
    assert [field["name"] for field in told["fields"]] == ["id", "count"]
    newer = {
        **told,
        "fields": [*told["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
    }
    registry.register_schema(f"{topic}-value", Schema(json.dumps(newer), "AVRO"))

    class Newer(Record):  # type: ignore[misc]
        _avro_name = "Order"
        id = String()
        count = Integer()
        note = String(default="none", required_default=True)

    reader = client.subscribe(
        topic, "s", schema=AvroSchema(Newer), initial_position=pulsar.InitialPosition.Earliest
    )
    assert reader.receive(30_000).value().note == "none"

    class Other(Record):  # type: ignore[misc]
        _avro_name = "Order"
        id = Integer(required=True)

    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(Other))


def test_what_pulsars_clients_have_and_kafkas_do_not(
    registry: SchemaRegistryClient, client: pulsar.Client, name: Callable[[str], str]
) -> None:
    class Order(Record):  # type: ignore[misc]
        id = String()

    topic = name("alone")
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(id="a"))
    assert f"{topic}-value" not in registry.get_subjects()
    assert refused(lambda: registry.get_latest_version(f"{topic}-value")) == (404, 40401)


def test_the_registry_after_a_kill(own_broker: Callable[..., BrokerProcess], connect: Connect) -> None:
    broker = own_broker()
    registry = connect(broker)
    schema = Schema(avro(("a", "int")), "AVRO")
    first = registry.register_schema("s", schema)
    registry.set_compatibility("s", "FULL")
    broker.kill()
    broker.start()
    registry = connect(broker)
    assert registry.get_schema(first).schema_str is not None
    assert registry.lookup_schema("s", schema).version == 1
    assert registry.get_compatibility("s") == "FULL"
    assert registry.register_schema("t", Schema(avro(("b", "int")), "AVRO")) == first + 1
