"""Pulsar's half: a topic, and two subscriptions whose consumers share it, each in its own way.

    pulsar-client  --->  delta  --->  shared       3 consumers, a message to whoever has room
                                --->  key_shared   3 consumers, a key always to the same one

In the trickle every hundredth message is given back once by whoever gets it of the shared ones, and must
come again.  In the end each subscription must have acknowledged every message exactly once; of key_shared
every key must have been with one consumer, in order.
"""

import json
import os
import threading
import time
from collections import deque

import pulsar
from half import SHOWN, THINGS, TRICKLE, Claim, Half, Row, Task, median

TOPIC = "delta"
FLOOD = 20_000
CONSUMERS = 3
KEYS = 25
GIVEN_BACK_EVERY = 100
POLL_MS = 200


def goes_back(number: int) -> bool:
    """Whether a message is given back when it first comes."""
    return number < TRICKLE and number % GIVEN_BACK_EVERY == 0


class Subscription:
    """What the consumers of one subscription have seen together."""

    def __init__(self, name: str, gives_back: bool, total: int) -> None:
        self.name = name
        self.counts = [0] * CONSUMERS
        self.latest: deque[str] = deque(maxlen=SHOWN)
        self._gives_back = gives_back
        self._total = total
        self._lock = threading.Lock()
        self._acked: set[int] = set()
        self._given_back: set[int] = set()
        self._twice = 0
        self._disorder = 0
        self._strayed: set[str] = set()
        self._of_key: dict[str, tuple[int, int]] = {}  # who has it, and the number of its last message
        self._delays_ms: list[float] = []

    @property
    def done(self) -> bool:
        return len(self._acked) >= self._total

    def takes(self, who: int, key: str, value: bytes) -> bool:
        """Whether consumer `who` acknowledges this one; else it gives it back."""
        message = json.loads(value)
        number = message["n"]
        with self._lock:
            if self._gives_back and goes_back(number) and number not in self._given_back:
                self._given_back.add(number)
                return False
            if number in self._acked:
                self._twice += 1
            self._acked.add(number)
            self.counts[who] += 1
            owner, last = self._of_key.get(key, (who, -1))
            if owner != who:
                self._strayed.add(key)
            self._disorder += number <= last
            self._of_key[key] = who, number
            if number < TRICKLE and number not in self._given_back:
                self._delays_ms.append((time.time() - message["at"]) * 1000)
            self.latest.append(f"{self.name} {who + 1}  {key:<8} {message['what']}")
        return True

    def claim(self) -> Claim:
        whole = self.done and not self._twice
        words = f"{self.name}, {CONSUMERS} consumers: {len(self._acked):,} of {self._total:,} messages, "
        words += f"{self._twice} twice; "
        if self._gives_back:
            expected = TRICKLE // GIVEN_BACK_EVERY
            whole = whole and len(self._given_back) == expected
            words += f"{len(self._given_back)} of {expected} given back came again; "
        else:
            whole = whole and not self._strayed and not self._disorder
            words += f"{KEYS} keys, {len(self._strayed)} of them with two consumers, "
            words += f"{self._disorder} messages out of order; "
        return Claim(whole, words + f"median {median(self._delays_ms):.1f} ms in the trickle")


class PulsarHalf(Half):
    def __init__(self, service: str) -> None:
        super().__init__("Pulsar", f"{TOPIC}, two subscriptions", FLOOD)
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        self._client = pulsar.Client(f"pulsar://{service}", logger=quiet)
        self._subscriptions = {
            pulsar.ConsumerType.Shared: Subscription("shared", True, self.total),
            pulsar.ConsumerType.KeyShared: Subscription("key_shared", False, self.total),
        }

    @property
    def done(self) -> bool:
        return all(one.done for one in self._subscriptions.values()) or self.is_late

    @property
    def latest(self) -> list[str]:
        return list(self._subscriptions[pulsar.ConsumerType.KeyShared].latest)

    def rows(self) -> list[Row]:
        consumers = [
            Row(f"→  {subscription.name} {who + 1}", count, self.total)
            for subscription in self._subscriptions.values()
            for who, count in enumerate(subscription.counts)
        ]
        return [Row("pulsar-client  →", self.acknowledged, self.total), *consumers]

    def claims(self) -> list[Claim]:
        return [*(one.claim() for one in self._subscriptions.values()), *self.sending()]

    def start(self) -> None:
        tasks = [
            self._task(kind, who, subscription)
            for kind, subscription in self._subscriptions.items()
            for who in range(CONSUMERS)
        ]
        self.run([*tasks, self._produce])

    def close(self) -> None:
        self.join()
        self._client.close()

    def _task(self, kind: pulsar.ConsumerType, who: int, subscription: Subscription) -> Task:
        """Attached here, so that all are before the first message is sent."""
        consumer = self._client.subscribe(
            TOPIC, subscription.name, kind, negative_ack_redelivery_delay_ms=100, receiver_queue_size=200
        )
        return lambda: self._consume(consumer, who, subscription)

    def _consume(self, consumer: pulsar.Consumer, who: int, subscription: Subscription) -> None:
        while not subscription.done and not self.is_late:
            try:
                message = consumer.receive(POLL_MS)
            except pulsar.Timeout:
                continue
            if subscription.takes(who, message.partition_key(), message.data()):
                consumer.acknowledge(message)
            else:
                consumer.negative_acknowledge(message)

    def _produce(self) -> None:
        producer = self._client.create_producer(
            TOPIC,
            batching_enabled=True,
            batching_type=pulsar.BatchingType.KeyBased,
            batching_max_publish_delay_ms=2,
            compression_type=pulsar.CompressionType.LZ4,
            block_if_queue_full=True,
        )
        for number in self.numbers(producer.flush):
            value = json.dumps({"n": number, "at": time.time(), "what": THINGS[number % len(THINGS)]})
            if goes_back(number):
                producer.flush()  # it is a batch of its own then: batches come again whole
            producer.send_async(value.encode(), self._delivered, partition_key=f"boat-{number % KEYS}")
            if goes_back(number):
                producer.flush()

    def _delivered(self, result: pulsar.Result, id: object) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged += 1
        else:
            self.failed.append(str(result))
