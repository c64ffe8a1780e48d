"""One topic, both protocols: what one's clients wrote the other's read, by the same offsets."""

import time
from collections.abc import Iterator

import confluent_kafka as ck
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess

CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(
        shared_broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    yield made
    made.close()


def kafka_reads(broker: BrokerProcess, topic: str, count: int, partition: int = 0) -> list[ck.Message]:
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0})
    consumer.assign([ck.TopicPartition(topic, partition, 0)])
    found: list[ck.Message] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.5):
            assert message.error() is None, message.error()
            found.append(message)
    consumer.close()
    return found


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
    topic = f"crossing-kafka-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": shared_broker.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(10)
    producer = ck.Producer({"bootstrap.servers": shared_broker.bootstrap, "compression.type": "zstd"})
    for number in range(100):
        producer.produce(topic, str(number).encode(), key=f"k{number}", headers={"h": b"v"})
    producer.flush(10)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    found = []
    for _ in range(100):
        message = consumer.receive(10_000)
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
        ours.flush(10)
    expected = [b"%d" % number for number in range(60)]
    assert [message.value() for message in kafka_reads(shared_broker, topic, 60)] == expected
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(5000).data())
    assert found == expected
