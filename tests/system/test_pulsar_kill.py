"""kill -9 under Pulsar clients: nothing is lost, nothing is stored twice, little is delivered again.

A producer numbers its messages on a deduplicated topic while the broker is killed again and again and started
on the same folder; a shared consumer acknowledges most of what it gets, and writes down when.  Then
everything is read back:

    sent                          -> there, once, in order (the client sends again what has no receipt)
    there                         -> was delivered
    delivered again               -> was not acknowledged, or not 1.5 s before some kill
                                     (the client takes 0.1 s to tell, the broker at most 1 s to keep it,
                                     and all of the machine may stand still for a while)

3 kills, 20 with ANABRANCH_SOAK=1.
"""

import itertools
import json
import os
import random
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.broker import BrokerProcess
from tests.support.stalls import Stalls

KILLS = 20 if os.environ.get("ANABRANCH_SOAK") else 3
KEPT_AFTER_S = 1.5
PATIENCE_S = 120.0
SKIPPED_EVERY = 7  # messages that the shared consumer leaves for later


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as running:
        yield running


def client_of(broker: BrokerProcess) -> pulsar.Client:
    silent = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(broker.pulsar, logger=silent, operation_timeout_seconds=60)


def deduplicated_topic(broker: BrokerProcess) -> str:
    def call(method: str, path: str, body: object = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{broker.admin}/admin/v2/namespaces/public/kills{path}",
            data,
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 204

    call("PUT", "")
    call("POST", "/deduplication", True)
    return "persistent://public/kills/t"


class Sender(threading.Thread):
    """Sends numbers until told to stop, and knows which were acknowledged."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        super().__init__()
        self._client = client_of(broker)
        self._producer = self._client.create_producer(
            topic,
            producer_name="counter",
            send_timeout_millis=0,
            batching_enabled=True,
            batching_max_publish_delay_ms=2,
            block_if_queue_full=True,
        )
        self.stopping = threading.Event()
        self.sent = 0
        self.failed: list[str] = []

    def run(self) -> None:
        for number in itertools.count():
            if self.stopping.is_set():
                break
            self._producer.send_async(str(number).encode(), self._told)
            self.sent = number + 1
            time.sleep(0.0005)
        self._producer.flush()
        self._client.close()

    def _told(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            self.failed.append(str(result))


class Receiver(threading.Thread):
    """Receives until told to stop, and writes down what came and what it acknowledged, with the time."""

    def __init__(self, consumer: pulsar.Consumer, acknowledge: Callable[[pulsar.Message, int], bool]) -> None:
        super().__init__()
        self._consumer = consumer
        self._acknowledge = acknowledge
        self.stopping = threading.Event()
        self.deliveries: dict[int, list[float]] = defaultdict(list)
        self.acked: dict[int, float] = {}

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                message = self._consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            number = int(message.data())
            self.deliveries[number].append(time.monotonic())
            if self._acknowledge(message, number):
                self.acked[number] = time.monotonic()

    def wait_for(self, numbers: Iterable[int]) -> None:
        """Until all of these have come, or they never will."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.deliveries.keys() >= set(numbers) and time.monotonic() < deadline:
            time.sleep(0.1)

    def check(self, sent: int, kills: list[float], stood_still_s: float) -> None:
        missing = set(range(sent)) - self.deliveries.keys()
        assert not missing, f"{len(missing)} of {sent} were never delivered: {sorted(missing)[:5]}"
        wrong = [
            number
            for number, times in self.deliveries.items()
            if number in self.acked
            and any(t > self.acked[number] + 0.001 for t in times)
            and not any(
                kill - KEPT_AFTER_S - stood_still_s < self.acked[number] < kill + 0.1 + stood_still_s
                for kill in kills
            )
        ]
        assert not wrong, f"{len(wrong)} came again although acknowledged for long: {sorted(wrong)[:5]}"


def one_by_one(consumer: pulsar.Consumer) -> Callable[[pulsar.Message, int], bool]:
    def acknowledge(message: pulsar.Message, number: int) -> bool:
        if number % SKIPPED_EVERY == 0:
            return False
        consumer.acknowledge(message)
        return True

    return acknowledge


@pytest.mark.timeout(900)
def test_nothing_is_lost_and_little_comes_again(broker: BrokerProcess) -> None:
    chance = random.Random(31)
    topic = deduplicated_topic(broker)
    client = client_of(broker)
    shared = client.subscribe(
        topic, "shared", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True, receiver_queue_size=200
    )
    receiver = Receiver(shared, one_by_one(shared))
    sender = Sender(broker, topic)
    kills: list[float] = []
    with Stalls() as stalls:
        for thread in (receiver, sender):
            thread.start()
        try:
            for number in range(KILLS):
                time.sleep(chance.uniform(2.0, 3.5))
                broker.kill()
                kills.append(time.monotonic())
                if number % 3 == 1:  # and once more while it recovers
                    broker.launch()
                    time.sleep(chance.uniform(0.05, 0.4))
                    broker.kill()
                    kills.append(time.monotonic())
                broker.start()
            time.sleep(2)
        finally:
            sender.stopping.set()
            sender.join(PATIENCE_S)
            receiver.wait_for(range(sender.sent))
            time.sleep(1)  # what would come again has come by then
            receiver.stopping.set()
            receiver.join(PATIENCE_S)
    assert not sender.is_alive(), "not all was sent"
    assert not sender.failed, sender.failed[:3]
    receiver.check(sender.sent, kills, stalls.longest_s)
    shared.close()

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    stored = []
    while reader.has_message_available():
        stored.append(int(reader.read_next(30_000).data()))
    assert stored == list(range(sender.sent)), "not once each, in order"

    again = client.subscribe(topic, "shared", pulsar.ConsumerType.Shared)
    left = Receiver(again, lambda message, number: True)
    left.start()
    skipped = {number for number in range(sender.sent) if number % SKIPPED_EVERY == 0}
    left.wait_for(skipped)
    time.sleep(1)  # and nothing else comes
    left.stopping.set()
    left.join(PATIENCE_S)
    assert set(left.deliveries) == skipped, "what was not acknowledged comes again, and nothing else"
    client.close()
    broker.stop()
