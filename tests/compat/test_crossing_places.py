"""One topic, both protocols: the same places, the same transactions, and what stands in the way of both."""

import time
from collections.abc import Iterator

import confluent_kafka as ck
import cramjam
import pulsar
import pytest

from anabranch.records.batch import HEADER_SIZE, crc_of
from anabranch.records.builder import build_batch
from anabranch.records.compression import ZSTD
from anabranch.records.pulsar_metadata_pb2 import CompressionType
from anabranch.records.record import Record
from tests.compat.clients import raw
from tests.compat.crossing import kafka_reads, made_topic, pulsar_reads, send_entries
from tests.support.broker import BrokerProcess
from tests.support.entries import entry_of


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(
        shared_broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    yield made
    made.close()


# --- the same places


def test_ids_offsets_and_times_name_the_same_messages(
    shared_broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = made_topic(shared_broker, "crossing-places")
    ours = ck.Producer({"bootstrap.servers": shared_broker.bootstrap, "linger.ms": 100})
    theirs = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
    )
    start_ms = time.time_ns() // 1_000_000 - 100_000
    for number in range(10):
        ours.produce(topic, b"k%d" % number, timestamp=start_ms + number * 1000)
    ours.flush(60)
    middle_ms = time.time_ns() // 1_000_000
    for number in range(10):
        theirs.send_async(b"p%d" % number, None)
    theirs.flush()
    by_offset = {message.offset(): message.value() for message in kafka_reads(shared_broker, topic, 20)}
    read = pulsar_reads(client, topic, 20)
    by_id = {m.message_id().entry_id() + max(m.message_id().batch_index(), 0): m.data() for m in read}
    assert (
        by_offset
        == by_id
        == dict(enumerate([b"k%d" % n for n in range(10)] + [b"p%d" % n for n in range(10)]))
    )

    kafka = ck.Consumer({"bootstrap.servers": shared_broker.bootstrap, "group.id": "places", "log_level": 0})
    consumer = client.subscribe(topic, "places", start_message_id_inclusive=True)
    for time_ms, expected in ((start_ms, 0), (start_ms + 3500, 4), (start_ms + 9000, 9), (middle_ms, 10)):
        [found] = kafka.offsets_for_times([ck.TopicPartition(topic, 0, time_ms)], timeout=60)
        consumer.seek(time_ms)
        message = consumer.receive(30_000)
        assert (found.offset, message.data()) == (expected, by_offset[expected]), time_ms
    for at in (0, 4, 9, 10, 13, 19):
        reader = client.create_reader(topic, read[at].message_id(), start_message_id_inclusive=True)
        assert reader.read_next(30_000).data() == by_offset[at]
        consumer.seek(read[at].message_id())
        assert consumer.receive(30_000).data() == by_offset[at]
    kafka.close()


# --- transactions


def test_aborted_records_of_kafka_are_nobodys(shared_broker: BrokerProcess, client: pulsar.Client) -> None:
    topic = made_topic(shared_broker, "crossing-transactions")
    producer = ck.Producer({"bootstrap.servers": shared_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"%d" % number)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    client.create_producer(topic).send(b"last")
    expected = [b"0"] * 3 + [b"2"] * 3 + [b"4"] * 3 + [b"last"]
    found = pulsar_reads(client, topic, 10)
    assert [message.data() for message in found] == expected
    assert [message.value() for message in kafka_reads(shared_broker, topic, 10)] == expected


# --- what nobody can read


def test_pulsars_readers_get_past_what_nobody_can_read(
    shared_broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = made_topic(shared_broker, "crossing-garbage")
    theirs = client.create_producer(topic)
    theirs.send(b"first")
    garbage = build_batch([Record(i, 1, b"k", b"v" * 50) for i in range(20)], codec=ZSTD)
    garbage[HEADER_SIZE + 9 :] = bytes(len(garbage) - HEADER_SIZE - 9)
    garbage[17:21] = crc_of(garbage).to_bytes(4, "big")
    bomb = build_batch([Record(0, 1, b"k", bytes(70 << 20))], codec=ZSTD)  # grows beyond what may be
    with raw.Connection(shared_broker.bootstrap) as connection:
        for batch in (garbage, bomb):
            assert raw.produce(connection, topic, bytes(batch)).error_code == 0
    theirs.send(b"second")
    assert [message.data() for message in pulsar_reads(client, topic, 2)] == [b"first", b"second"]
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(2):
        consumer.acknowledge(consumer.receive(30_000))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)


def test_kafkas_readers_get_past_what_nobody_can_read(
    shared_broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = f"crossing-noise-{time.time_ns()}"
    theirs = client.create_producer(topic)
    theirs.send(b"first")
    zeros = bytes(cramjam.zstd.compress(bytes(70 << 20)))
    send_entries(
        shared_broker,
        topic,
        entry_of(b"\0\0\0\2\x18\5abc", count=2),  # fewer messages than it says, and a cut one
        entry_of(b"noise", compression=CompressionType.ZSTD, uncompressed_size=100),
        entry_of(zeros, compression=CompressionType.ZSTD, uncompressed_size=70 << 20),
        entry_of(b"lost", uuid="u", num_chunks_from_msg=3, chunk_id=2, total_chunk_msg_size=100),
    )
    theirs.send(b"second")
    found = kafka_reads(shared_broker, topic, 2)
    assert [message.value() for message in found] == [b"first", b"second"]
