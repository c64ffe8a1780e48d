"""A service whose clients are Kafka's and Pulsar's in turn, while producers of both write: each message is
processed once, by what was acknowledged, and in the order of its key.

    load         a Kafka and a Pulsar producer, each with keys of its own, messages numbered by key
    Kafka turn   two members of the group `service`: commit what a poll brings, process it
    Pulsar turn  two consumers that share the subscription `service` by keys: take some messages, process
                 them in any order that keeps each key's, acknowledge one by one; those they have not come to
                 when their turn ends are left, behind others that are done

Turns of 2 s for 20 s; of 10 s for five minutes with ANABRANCH_SOAK=1.
"""

import json
import os
import random
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess

IS_SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
TURNS, TURN_S = (30, 10.0) if IS_SOAK else (10, 2.0)
TOPIC, SERVICE = "orders", "service"
PARTITIONS = 2
KEYS = 12
PAUSE_S = 0.004
QUIET = {"log_level": 0}


class Service:
    """What was processed, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int, str]] = []
        self._lock = threading.Lock()

    def process(self, key: str, number: int, by: str) -> None:
        with self._lock:
            self.done.append((key, number, by))

    def wrong(self, sent: Counter[str]) -> list[str]:
        """What is not as it should be, given how many messages each key has."""
        came: dict[str, list[int]] = defaultdict(list)
        for key, number, _ in self.done:
            came[key].append(number)
        said = []
        for key, count in sent.items():
            repeated = [number for number, times in Counter(came[key]).items() if times > 1]
            lost = sorted(set(range(count)) - set(came[key]))
            if repeated or lost:
                said.append(f"{key}: {repeated[:5]} came again, {lost[:5]} of {count} never came")
            elif came[key] != sorted(came[key]):
                said.append(f"{key} is out of order")
        return said


class Load:
    """Both producers, until told to stop."""

    def __init__(self, broker: BrokerProcess, client: pulsar.Client) -> None:
        self.sent: Counter[str] = Counter()
        self._stop = threading.Event()
        self._kafka = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, **QUIET})
        self._pulsar = client.create_producer(
            TOPIC,
            batching_enabled=True,
            batching_max_publish_delay_ms=20,
            batching_type=pulsar.BatchingType.KeyBased,
            block_if_queue_full=True,
        )
        self._threads = [threading.Thread(target=self._run, args=(kind,)) for kind in "kp"]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run(self, kind: str) -> None:
        chance = random.Random(kind)
        while not self._stop.wait(PAUSE_S):
            for _ in range(chance.randrange(1, 4)):
                key = f"{kind}{chance.randrange(KEYS)}"
                value = b"%d" % self.sent[key]
                self.sent[key] += 1
                if kind == "k":
                    self._kafka.produce(TOPIC, value, key=key)
                    self._kafka.poll(0)
                else:
                    self._pulsar.send_async(value, None, partition_key=key)

    def stop(self) -> int:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self._kafka.flush(60) == 0
        self._pulsar.flush()
        self._pulsar.close()
        return self.sent.total()


def kafka_member(broker: BrokerProcess, service: Service, is_over: Callable[[], bool]) -> None:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": SERVICE,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **QUIET,
        }
    )
    consumer.subscribe([TOPIC])
    while not is_over():
        messages = consumer.consume(20, timeout=0.1)
        if not messages:
            continue
        for message in messages:
            assert message.error() is None, message.error()
        consumer.commit(
            asynchronous=False
        )  # before they are processed: whoever may not commit may not process
        for message in messages:
            service.process(message.key().decode(), int(message.value()), "kafka")
    consumer.close()


def pulsar_consumer(client: pulsar.Client, service: Service, is_over: Callable[[], bool], seed: int) -> None:
    chance = random.Random(seed)
    consumer = client.subscribe(
        TOPIC,
        SERVICE,
        pulsar.ConsumerType.KeyShared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
        receiver_queue_size=50,
    )
    waiting: dict[str, list[pulsar.Message]] = {}
    while not is_over():
        try:
            message = consumer.receive(50)
            waiting.setdefault(message.partition_key(), []).append(message)
        except pulsar.Timeout:
            pass
        if sum(map(len, waiting.values())) < 10 and chance.random() < 0.8:
            continue
        for key in chance.sample(sorted(waiting), min(3, len(waiting))):
            message = waiting[key].pop(0)
            if not waiting[key]:
                del waiting[key]
            service.process(key, int(message.data()), "pulsar")
            consumer.acknowledge(message)
    consumer.close()


def run_turn(workers: list[Callable[[Callable[[], bool]], None]], is_over: Callable[[], bool]) -> None:
    failed: list[BaseException] = []

    def run(worker: Callable[[Callable[[], bool]], None]) -> None:
        try:
            worker(is_over)
        except BaseException as error:  # noqa: BLE001  for who waits
            failed.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def ranges_ahead(broker: BrokerProcess) -> int:
    """How many runs of messages the subscription has acknowledged ahead of its position."""
    found = 0
    for index in range(PARTITIONS):
        url = f"{broker.admin}/admin/v2/persistent/public/default/{TOPIC}-partition-{index}/stats"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found += json.load(answer)["subscriptions"][SERVICE]["nonContiguousDeletedMessagesRanges"]
    return found


@pytest.mark.timeout(TURNS * TURN_S + 400)
def test_a_service_alternates_between_both_clients(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        client = pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        service, load = Service(), Load(broker, client)
        members = [lambda is_over: kafka_member(broker, service, is_over)] * 2
        ahead = 0
        load.start()
        try:
            for turn in range(TURNS):
                consumers = [
                    lambda is_over, seed=seed: pulsar_consumer(client, service, is_over, seed)
                    for seed in (2 * turn, 2 * turn + 1)
                ]
                end = time.monotonic() + TURN_S
                run_turn(members if turn % 2 else consumers, lambda end=end: time.monotonic() > end)
                ahead += 0 if turn % 2 else ranges_ahead(broker)
        finally:
            total = load.stop()
        end = time.monotonic() + 150
        run_turn(members, lambda: len(service.done) >= total or time.monotonic() > end)
        client.close()
        by = Counter(by for _, _, by in service.done)
        assert service.wrong(load.sent) == [], f"{total} messages, processed {by}"
        assert min(by.values()) > total / 20, by
        assert ahead > TURNS / 2, "hardly anything was acknowledged ahead"
