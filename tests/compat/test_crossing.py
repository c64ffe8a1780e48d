"""One topic, both protocols: what one's clients wrote the other's read, by the same offsets."""

import base64
import json
import os
import time
from collections.abc import Iterator

import confluent_kafka as ck
import pulsar
import pytest

from tests.compat.crossing import kafka_reads, made_topic, pulsar_reads
from tests.support.broker import BrokerProcess

CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(
        shared_broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    yield made
    made.close()


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_reads_what_pulsar_wrote(
    shared_broker: BrokerProcess, client: pulsar.Client, codec: str
) -> None:
    topic = f"crossing-{codec}-{time.time_ns()}"
    compression = getattr(pulsar.CompressionType, codec)
    single = client.create_producer(topic, compression_type=compression)
    batched = client.create_producer(
        topic,
        compression_type=compression,
        batching_enabled=True,
        batching_max_messages=50,
        batching_max_publish_delay_ms=5000,
    )
    first = single.send(b"one", partition_key="k", properties={"p": "1"}, event_timestamp=1_790_000_000_123)
    for number in range(120):
        batched.send_async(str(number).encode(), None, partition_key=f"k{number}")
    batched.flush()
    found = kafka_reads(shared_broker, topic, 121)
    assert [message.offset() for message in found] == list(range(121))
    assert (found[0].key(), found[0].value(), found[0].headers()) == (b"k", b"one", [("p", b"1")])
    assert found[0].timestamp()[1] == 1_790_000_000_123
    assert found[0].offset() == first.entry_id()
    assert [message.value() for message in found[1:]] == [str(number).encode() for number in range(120)]
    assert found[40].key() == b"k39"


def test_pulsar_reads_what_kafka_wrote(shared_broker: BrokerProcess, client: pulsar.Client) -> None:
    topic = made_topic(shared_broker, "crossing-kafka")
    producer = ck.Producer({"bootstrap.servers": shared_broker.bootstrap, "compression.type": "zstd"})
    for number in range(100):
        producer.produce(topic, str(number).encode(), key=f"k{number}", headers={"h": b"v"})
    producer.flush(60)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    found = []
    for _ in range(100):
        message = consumer.receive(30_000)
        consumer.acknowledge(message)
        found.append(message)
    assert [message.data() for message in found] == [str(number).encode() for number in range(100)]
    assert (found[3].partition_key(), found[3].properties()) == ("k3", {"h": "v"})


def test_both_write_and_both_read_all_of_it(shared_broker: BrokerProcess, client: pulsar.Client) -> None:
    topic = f"crossing-both-{time.time_ns()}"
    theirs = client.create_producer(topic)
    ours = ck.Producer({"bootstrap.servers": shared_broker.bootstrap})
    for number in range(0, 60, 3):
        theirs.send(b"%d" % number)
        ours.produce(topic, b"%d" % (number + 1))
        ours.produce(topic, b"%d" % (number + 2))
        ours.flush(60)
    expected = [b"%d" % number for number in range(60)]
    assert [message.value() for message in kafka_reads(shared_broker, topic, 60)] == expected
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(30_000).data())
    assert found == expected


# --- what a message has


def test_headers_keys_and_values_of_kafka(shared_broker: BrokerProcess, client: pulsar.Client) -> None:
    topic = made_topic(shared_broker, "crossing-fields")
    producer = ck.Producer({"bootstrap.servers": shared_broker.bootstrap})
    headers = [("trace", b"a"), ("trace", b"b"), ("raw", b"\xff\x00"), ("none", None)]
    producer.produce(topic, b"v", key=b"\xff\xfe", headers=headers, timestamp=1_790_000_000_123)
    producer.produce(topic, None, key=b"gone")
    producer.produce(topic, b"plain", headers=[("pulsar.ordering-key", b"o"), ("h", b"1")])
    producer.flush(60)
    first, second, third = pulsar_reads(client, topic, 3)
    assert base64.b64decode(first.partition_key()) == b"\xff\xfe"
    assert first.event_timestamp() == 1_790_000_000_123
    properties = first.properties()
    assert (properties["trace"], properties["raw"], properties["none"]) == ("b", "/wA=", "")
    assert json.loads(properties["kafka.headers"]) == [
        ["trace", "a"],
        ["trace", "b"],
        ["raw", {"base64": "/wA="}],
        ["none", None],
    ]
    assert (second.partition_key(), second.data()) == ("gone", b"")
    assert (third.ordering_key(), third.properties()["h"]) == ("o", "1")


def test_a_pulsar_message_that_repeats_kafkas_headers_has_them(
    shared_broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = f"crossing-back-{time.time_ns()}"
    producer = client.create_producer(topic)
    listed = '[["a","1"],["a","2"],["b",{"base64":"/w=="}],["c",null]]'
    producer.send(b"v", properties={"kafka.headers": listed, "a": "2"}, ordering_key="o")
    [message] = kafka_reads(shared_broker, topic, 1)
    assert message.headers() == [
        ("a", b"1"),
        ("a", b"2"),
        ("b", b"\xff"),
        ("c", None),
        ("pulsar.ordering-key", b"o"),
    ]


def test_a_schema_version_is_a_header(shared_broker: BrokerProcess, client: pulsar.Client) -> None:
    topic = f"crossing-schema-{time.time_ns()}"
    producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
    producer.send("text")
    [message] = kafka_reads(shared_broker, topic, 1)
    assert message.value() == b"text"
    assert dict(message.headers() or [])["pulsar.schema-version"] == bytes(8)


def test_a_large_message_is_one_record(shared_broker: BrokerProcess, client: pulsar.Client) -> None:
    topic = f"crossing-chunks-{time.time_ns()}"
    large = os.urandom(11 << 20)
    for codec in (pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4):
        producer = client.create_producer(topic, chunking_enabled=True, compression_type=codec)
        producer.send(b"before")
        producer.send(large, partition_key="large", properties={"p": "1"})
        producer.send(b"after")
    found = kafka_reads(shared_broker, topic, 6, **{"fetch.message.max.bytes": 20 << 20})
    assert [message.value() for message in found] == [b"before", large, b"after"] * 2
    assert (found[1].key(), found[1].headers()) == (b"large", [("p", b"1")])
    assert found[1].offset() == found[2].offset() - 1  # its last chunk's


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_large_batches_of_kafka(shared_broker: BrokerProcess, client: pulsar.Client, codec: str) -> None:
    topic = made_topic(shared_broker, f"crossing-large-{codec}")
    producer = ck.Producer(
        {"bootstrap.servers": shared_broker.bootstrap, "compression.type": codec, "linger.ms": 300}
    )
    for number in range(3000):
        producer.produce(topic, b"%100d" % number, key=b"%d" % (number % 7))
    producer.flush(60)
    found = pulsar_reads(client, topic, 3000)
    assert [int(message.data()) for message in found] == list(range(3000))


def test_a_batch_that_is_larger_than_clients_take_comes_compressed(
    shared_broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = made_topic(shared_broker, "crossing-grown")
    settings = {
        "compression.type": "zstd",
        "linger.ms": 500,
        "batch.size": 9_000_000,
        "batch.num.messages": 100,
    }
    producer = ck.Producer(
        {"bootstrap.servers": shared_broker.bootstrap, "message.max.bytes": 9_000_000, **settings}
    )
    for number in range(8):
        producer.produce(topic, (b"%d" % number) * 1_000_000)
    producer.flush(60)
    found = pulsar_reads(client, topic, 8)
    assert [(message.data()[:1], len(message.data())) for message in found] == [
        (b"%d" % number, 1_000_000) for number in range(8)
    ]
