"""The three clients behind one shape: read everything below an offset, with each client's own defaults."""

import asyncio
import time
import warnings
from collections.abc import Callable

import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas the old way
    from kafka import KafkaConsumer, TopicPartition

Rows = list[tuple[int, bytes | None]]
Reader = Callable[[str, str, int, int], Rows]


def with_confluent(bootstrap: str, topic: str, partition: int, end: int) -> Rows:
    conf = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = ck.Consumer(conf)
    consumer.assign([ck.TopicPartition(topic, partition, 0)])
    rows: Rows = []
    deadline = time.monotonic() + 90
    while len(rows) < end and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.5):
            assert message.error() is None, message.error()
            rows.append((message.offset(), message.value()))
    consumer.close()
    return rows


def with_kafka_python(bootstrap: str, topic: str, partition: int, end: int) -> Rows:
    where = TopicPartition(topic, partition)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([where])
    consumer.seek(where, 0)
    rows: Rows = []
    deadline = time.monotonic() + 90
    while len(rows) < end and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            rows += [(record.offset, record.value) for record in records]
    consumer.close()
    return rows


def with_aiokafka(bootstrap: str, topic: str, partition: int, end: int) -> Rows:
    async def read() -> Rows:
        where = AioTopicPartition(topic, partition)
        rows: Rows = []
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([where])
            consumer.seek(where, 0)
            deadline = time.monotonic() + 90
            while len(rows) < end and time.monotonic() < deadline:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    rows += [(record.offset, record.value) for record in records]
        return rows

    return asyncio.run(read())


READERS: dict[str, Reader] = {
    "confluent": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}
