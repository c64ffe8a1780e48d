"""Both protocols' clients on one topic, for the tests that cross them."""

import socket
import time
from typing import Any

import confluent_kafka as ck
import pulsar
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.records.entries import read_metadata
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.frames import read_frame
from tests.support.broker import BrokerProcess
from tests.support.pulsar_wire import frame


def made_topic(broker: BrokerProcess, name: str, partitions: int = 1, **config: str) -> str:
    """A new topic whose name begins so, made the Kafka way: as many partitions, 0 and so on."""
    topic = f"{name}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        made.result(60)
    return topic


def kafka_reads(
    broker: BrokerProcess,
    topic: str,
    count: int,
    partition: int = 0,
    until_offset: int | None = None,
    **settings: Any,
) -> list[ck.Message]:
    """The first `count` messages of a partition, or those up to an offset."""
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0, **settings}
    )
    consumer.assign([ck.TopicPartition(topic, partition, 0)])
    found: list[ck.Message] = []
    deadline = time.monotonic() + 90
    while len(found) < count and time.monotonic() < deadline:
        if until_offset is not None and found and found[-1].offset() >= until_offset:
            break
        for message in consumer.consume(1000, timeout=0.5):
            assert message.error() is None, message.error()
            found.append(message)
    consumer.close()
    return found


def pulsar_reads(client: pulsar.Client, topic: str, count: int) -> list[pulsar.Message]:
    """The first `count` messages of a topic."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(30_000) for _ in range(count)]
    reader.close()
    return found


def send_entries(broker: BrokerProcess, topic: str, *entries: bytes) -> None:
    """As a Pulsar producer that sends what it likes."""
    host, _, port = broker.pulsar.removeprefix("pulsar://").rpartition(":")
    with socket.create_connection((host, int(port)), 60) as link:
        stream = link.makefile("rb")

        def hear(type: int) -> None:
            heard = None
            while heard != type:
                heard = read_frame(
                    memoryview(stream.read(int.from_bytes(stream.read(4), "big")))
                ).command.type

        link.sendall(frame(pb.BaseCommand.CONNECT, client_version="raw", protocol_version=21))
        link.sendall(frame(pb.BaseCommand.PRODUCER, topic=topic, producer_id=1, request_id=1))
        hear(pb.BaseCommand.PRODUCER_SUCCESS)
        for number, entry in enumerate(entries):
            count = max(1, read_metadata(entry).num_messages_in_batch)
            link.sendall(
                frame(pb.BaseCommand.SEND, entry, producer_id=1, sequence_id=number, num_messages=count)
            )
            hear(pb.BaseCommand.SEND_RECEIPT)
