"""Sends the shop's morning: clicks as a Kafka client would, orders as a Pulsar client would, at a given pace.

    confluent-kafka  --->  clicks, 3 partitions, keyed by user
    pulsar-client    --->  orders, keyed by user

Both go through the records in the order of the story and at the same pace.  A record counts once the broker
has acknowledged it.

A story of hours is told in seconds, so what is a moment's delay for a client is minutes in the story.  No
client is further than `STEP_MS` of the story ahead of its slowest partition: it waits for acknowledgements
first.  So what is on time in the story is never late for a pipeline that waits longer than that.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pulsar
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.shop import CLICKS, ORDERS, Sent

CLICK_PARTITIONS = 3
STEP_MS = 120_000
PATIENCE_SECONDS = 30
_SLEEP_SECONDS = (
    0.02  # sleeps are no shorter than this: a wake-up for each record would cost more than sending it
)
_QUIET = {"log.connection.close": False, "log_level": 3}  # the broker is stopped before its clients are


class Feed:
    """`acknowledged` and `failures` may be read at any time; `is_over` once all that could be sent was."""

    def __init__(self, records: Sequence[Sent], rate: float, kafka: str, pulsar_service: str) -> None:
        self.acknowledged = {CLICKS: 0, ORDERS: 0}
        self.failures: list[str] = []
        self.latest: dict[str, Sent] = {}
        self._records = records
        self._rate = rate
        self._kafka = kafka
        self._pulsar = pulsar_service
        self._started: float | None = None
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(task,), daemon=True)
            for task in (self._send_clicks, self._send_orders)
        ]

    def make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka, **_QUIET})
        for made in admin.create_topics([NewTopic(CLICKS, CLICK_PARTITIONS), NewTopic(ORDERS, 1)]).values():
            made.result(PATIENCE_SECONDS)

    def start(self) -> None:
        self._started = time.monotonic()
        for thread in self._threads:
            thread.start()

    @property
    def has_begun(self) -> bool:
        return self._started is not None

    @property
    def is_over(self) -> bool:
        return self.has_begun and not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        self._stopped.set()
        if self.has_begun:
            for thread in self._threads:
                thread.join(PATIENCE_SECONDS)

    def _guarded(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001  shown at the end, and the demo fails
            self.failures.append(f"{type(error).__name__}: {error}")

    def _due(self, topic: str, flush: Callable[[], object]) -> Iterator[Sent]:
        """The topic's records, each when its turn has come; `flush` waits until all so far have arrived."""
        assert self._started is not None
        step_end_ms = 0
        for number, record in enumerate(self._records):
            if self._stopped.is_set():
                return
            if record.topic != topic:
                continue
            early_seconds = self._started + number / self._rate - time.monotonic()
            if early_seconds > _SLEEP_SECONDS:
                time.sleep(early_seconds)
            if record.sent_ms >= step_end_ms:
                flush()
                step_end_ms = record.sent_ms + STEP_MS
            self.latest[topic] = record
            yield record

    def _send_clicks(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._kafka,
                "enable.idempotence": True,
                "linger.ms": 10,
                "compression.type": "lz4",
                **_QUIET,
            }
        )
        for record in self._due(CLICKS, lambda: producer.flush(PATIENCE_SECONDS)):
            while True:
                try:
                    producer.produce(CLICKS, record.value, record.key, on_delivery=self._click_delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        if left := producer.flush(PATIENCE_SECONDS):
            self.failures.append(f"{left} clicks were not acknowledged within {PATIENCE_SECONDS} s")

    def _click_delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[CLICKS] += 1
        else:
            self.failures.append(str(error))

    def _send_orders(self) -> None:
        client = pulsar.Client(
            f"pulsar://{self._pulsar}", logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        )
        try:
            producer = client.create_producer(
                ORDERS, batching_enabled=True, batching_max_publish_delay_ms=10, block_if_queue_full=True
            )
            for record in self._due(ORDERS, producer.flush):
                producer.send_async(record.value, self._order_delivered, partition_key=record.key)
            producer.flush()
        finally:
            client.close()

    def _order_delivered(self, result: pulsar.Result, message_id: object) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged[ORDERS] += 1
        else:
            self.failures.append(str(result))
