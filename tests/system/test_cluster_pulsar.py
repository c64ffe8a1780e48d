"""Pulsar's Python client on three brokers, one of which is killed with -9 while it produces and reads.

The four kinds of subscription read one topic of six partitions, and so does a reader.  Each gets what the
producer was told of; what consumers had acknowledged when they closed does not come again.
"""

import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pulsar
import pytest

from tests.support.local_cluster import LocalCluster

VICTIM = 2
PARTITIONS = 6
A_WHILE = 120
"""Messages: before the death, during the absence, after the return."""
PAUSE_S = 0.005
PATIENCE_S = 60.0
TOPIC = "persistent://public/default/orders"
KINDS = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
    "failover": pulsar.ConsumerType.Failover,
    "key-shared": pulsar.ConsumerType.KeyShared,
}

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(200)]


class Work:
    def __init__(self, url: str, log: Path) -> None:
        self._logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(log))
        self._url = url
        self.sent = 0
        self.acked: set[int] = set()
        self.read: dict[str, Counter[int]] = {name: Counter() for name in (*KINDS, "reader")}
        self.again: dict[str, list[int]] = {}
        self.failures: list[str] = []
        self.fresh: dict[str, bytes] = {}
        self.fresh_s = 0.0
        self.looked_up: set[str] = set()
        self.over = threading.Event()
        """No more is to be sent."""
        self.flushed = threading.Event()
        """No more is sent, and all of it answered."""

    @contextmanager
    def client(self) -> Iterator[pulsar.Client]:
        client = pulsar.Client(self._url, logger=self._logger, operation_timeout_seconds=30)
        try:
            yield client
        finally:
            client.close()

    def produce(self) -> None:
        def told(number: int, result: pulsar.Result) -> None:
            if result == pulsar.Result.Ok:
                self.acked.add(number)
            else:
                self.failures.append(f"{number}: {result}")

        with self.client() as client:
            producer = client.create_producer(TOPIC, block_if_queue_full=True)
            while not self.over.wait(PAUSE_S):
                number = self.sent
                self.sent += 1
                producer.send_async(
                    str(number).encode(),
                    lambda result, _, number=number: told(number, result),
                    partition_key=str(number % 50),
                )
            producer.flush()
        self.flushed.set()

    def consume(self, name: str) -> None:
        with self.client() as client:
            consumer = self.subscribe(client, name)
            while self._reads_on(name):
                with suppress(pulsar.Timeout):
                    message = consumer.receive(100)
                    consumer.acknowledge(message)
                    self.read[name][int(message.data())] += 1
            consumer.close()

    def subscribe(self, client: pulsar.Client, name: str) -> pulsar.Consumer:
        start = pulsar.InitialPosition.Earliest
        return client.subscribe(TOPIC, name, KINDS[name], initial_position=start)

    def read_all(self) -> None:
        with self.client() as client:
            readers = [
                client.create_reader(f"{TOPIC}-partition-{index}", pulsar.MessageId.earliest)
                for index in range(PARTITIONS)
            ]
            while self._reads_on("reader"):
                for reader in readers:
                    with suppress(pulsar.PulsarException):  # who asks while it is reattached is refused
                        while reader.has_message_available():
                            self.read["reader"][int(reader.read_next(5000).data())] += 1

    def _reads_on(self, name: str) -> bool:
        done = self.flushed.is_set() and self.read[name].keys() >= self.acked
        return not done and not self.failures

    def look_again(self) -> None:
        """What each subscription has still to read."""
        with self.client() as client:
            consumers = {name: self.subscribe(client, name) for name in KINDS}
            time.sleep(0.5)
            for name, consumer in consumers.items():
                self.again[name] = []
                with suppress(pulsar.Timeout):
                    while True:
                        self.again[name].append(int(consumer.receive(50).data()))

    def use_new_topics(self) -> None:
        """Each is made by its consumer, who asks any broker; a third of them come to the one that leads."""
        with self.client() as client:
            for topic in (*(f"fresh-{n}" for n in range(4)), "non-persistent://public/default/live"):
                consumer = client.subscribe(topic, "s")
                client.create_producer(topic).send(topic.encode())
                self.fresh[topic] = consumer.receive(10_000).data()


def until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def guarded(work: Work, does: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        try:
            does()
        except Exception as error:  # noqa: BLE001  a thread's end must not go unseen
            work.failures.append(repr(error))

    return threading.Thread(target=run, daemon=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Work:
    folder: Path = tmp_path_factory.mktemp("pulsar")
    with LocalCluster(folder) as cluster:
        web = f"http://{cluster.told('broker-1')['http']}"
        make = urllib.request.Request(
            f"{web}/admin/v2/persistent/public/default/orders/partitions",
            method="PUT",
            data=json.dumps(PARTITIONS).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(make, timeout=30).close()
        work = Work(f"pulsar://{cluster.ready['pulsar']}", folder / "client.log")
        threads = [guarded(work, work.produce), guarded(work, work.read_all)]
        threads += [guarded(work, lambda name=name: work.consume(name)) for name in KINDS]  # type: ignore[misc]
        for thread in threads:
            thread.start()

        def get_on() -> None:
            aim = len(work.acked) + A_WHILE
            until(
                lambda: (
                    bool(work.failures)
                    or (len(work.acked) >= aim and all(len(read) >= aim for read in work.read.values()))
                ),
                lambda: (aim, len(work.acked), {name: len(read) for name, read in work.read.items()}),
            )

        try:
            get_on()
            cluster.ask("kill", f"broker-{VICTIM}")
            get_on()
            cluster.ask("restart", f"broker-{VICTIM}")
            get_on()
        finally:
            work.over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        work.look_again()
        began_s = time.monotonic()
        work.use_new_topics()
        work.fresh_s = time.monotonic() - began_s
        work.looked_up = {look_up(cluster, f"broker-{id}", "orders-partition-0") for id in (1, 2, 3)}
    return work


def look_up(cluster: LocalCluster, broker: str, topic: str) -> str:
    url = f"http://{cluster.told(broker)['http']}/lookup/v2/topic/persistent/public/default/{topic}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(json.load(answer)["brokerUrl"])


def test_what_the_producer_was_told_of_everybody_gets(done: Work) -> None:
    assert not done.failures
    assert done.acked == set(range(done.sent))
    for name, read in done.read.items():
        assert read.keys() == done.acked, name


def test_what_is_acknowledged_does_not_come_again(done: Work) -> None:
    assert done.again == {name: [] for name in KINDS}


def test_topics_are_made_and_found_by_any_broker(done: Work) -> None:
    assert done.fresh == {topic: topic.encode() for topic in done.fresh}
    assert len(done.fresh) == 5
    assert done.fresh_s < 20  # and none waited for a time-out
    assert len(done.looked_up) == 1
