"""Kafka's half: a topic of three partitions, and two readers that both get all of it.

    confluent-kafka  --->  river  --->  kafka-python
      (librdkafka)                --->  aiokafka

Each reader must end up with every message, in order within its partition.
"""

import asyncio
import json
import time
from collections import deque

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from half import SHOWN, THINGS, TRICKLE, Claim, Half, Row, median
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

TOPIC = "river"
PARTITIONS = 3
FLOOD = 60_000
QUIET = {"log.connection.close": False}  # the broker is stopped before its clients are


class Reader:
    """What one consumer has seen.  Order is checked as it goes."""

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.count = 0
        self.disorder = 0
        self.latest: deque[str] = deque(maxlen=SHOWN)
        self._total = total
        self._delays_ms: list[float] = []
        self._next_offset = [0] * PARTITIONS
        self._last_number = [-1] * PARTITIONS

    @property
    def done(self) -> bool:
        return self.count >= self._total

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        message = json.loads(value)
        if offset != self._next_offset[partition] or message["n"] <= self._last_number[partition]:
            self.disorder += 1
        self._next_offset[partition] = offset + 1
        self._last_number[partition] = message["n"]
        self.count += 1
        if message["n"] < TRICKLE:
            self._delays_ms.append((time.time() - message["at"]) * 1000)
        self.latest.append(f"{partition}:{offset:<6} {message['what']}")

    def claim(self) -> Claim:
        return Claim(
            self.count == self._total and self.disorder == 0,
            f"{self.name}: {self.count:,} of {self._total:,} messages, {self.disorder} out of order; "
            f"median {median(self._delays_ms):.1f} ms from send to read in the trickle",
        )


class KafkaHalf(Half):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("Kafka", f"{TOPIC}, {PARTITIONS} partitions", FLOOD)
        self._bootstrap = bootstrap
        self._readers = [Reader("kafka-python", self.total), Reader("aiokafka", self.total)]

    @property
    def done(self) -> bool:
        return all(reader.done for reader in self._readers) or self.is_late

    @property
    def latest(self) -> list[str]:
        return list(self._readers[0].latest)

    def rows(self) -> list[Row]:
        readers = [Row(f"→  {reader.name}", reader.count, self.total) for reader in self._readers]
        return [Row("confluent-kafka  →", self.acknowledged, self.total), *readers]

    def claims(self) -> list[Claim]:
        return [*(reader.claim() for reader in self._readers), *self.sending()]

    def start(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **QUIET})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(10)
        self.run([self._produce, self._with_kafka_python, lambda: asyncio.run(self._with_aiokafka())])

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "compression.type": "lz4", "linger.ms": 2, **QUIET}
        )
        for number in self.numbers(lambda: producer.flush(20)):
            what = THINGS[number % len(THINGS)]
            value = json.dumps({"n": number, "at": time.time(), "what": what})
            while True:
                try:
                    producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))

    def _with_kafka_python(self) -> None:
        reader = self._readers[0]
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest")
        consumer.assign([KafkaPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        while not reader.done and not self.is_late:
            for messages in consumer.poll(timeout_ms=200).values():
                for message in messages:
                    reader.saw(message.partition, message.offset, message.value)
        consumer.close()

    async def _with_aiokafka(self) -> None:
        reader = self._readers[1]
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest")
        consumer.assign([AioPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        await consumer.start()
        try:
            while not reader.done and not self.is_late:
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    for message in messages:
                        reader.saw(message.partition, message.offset, message.value)
        finally:
            await consumer.stop()
