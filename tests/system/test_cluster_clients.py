"""Kafka's Python clients on three brokers, one of which is killed with -9 while they produce and read.

One death for all clients: the broker leads a third of the partitions and coordinates every group, and is
started again.  What an idempotent producer was told of is in the log once, in order and without gaps, and the
group beside it reads all of that.
"""

import asyncio
import gc
import logging
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.clients import raw
from tests.support.local_cluster import LocalCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas the old way
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaTimeoutError, RetriableError

VICTIM = 2
REPLICAS = [[2, 3, 1], [3, 1, 2], [1, 2, 3]]
A_WHILE = 400
"""Records, about: before the death, during the absence, after the return."""
PAUSE_S = 0.005
PATIENCE_S = 90.0
FIND_COORDINATOR = 10

# kafka-python closes no socket whose connection was refused.
pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


class Place(NamedTuple):
    partition: int
    offset: int


class Work:
    """What one client does: numbers that it sends, and those that its group reads."""

    def __init__(self, client: str, bootstrap: str, group: str) -> None:
        self.topic = f"of-{client}"
        self.bootstrap = bootstrap
        self.group = group
        self.acked: dict[Place, int] = {}
        self.read: dict[Place, int] = {}
        self.failures: list[str] = []
        self.sent = 0
        self.over = threading.Event()
        """No more is sent."""

    def numbers(self) -> Iterator[int]:
        while not self.over.wait(PAUSE_S):
            yield self.sent
            self.sent += 1

    def was_acked(self, partition: int, offset: int, number: int) -> None:
        self.acked[Place(partition, offset)] = number

    def was_read(self, partition: int, offset: int, value: bytes | None) -> None:
        assert value is not None
        self.read[Place(partition, offset)] = int(value)

    def reads_on(self) -> bool:
        done = self.over.is_set() and len(self.acked) == self.sent and self.read.keys() >= self.acked.keys()
        return not done and not self.failures


def confluent_produces(work: Work) -> None:
    def told(number: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            work.failures.append(f"{number}: {error}")
        else:
            work.was_acked(message.partition() or 0, message.offset() or 0, number)

    options = {"bootstrap.servers": work.bootstrap, "enable.idempotence": True, "log_level": 0}
    producer = ck.Producer(options)
    for number in work.numbers():
        producer.produce(
            work.topic,
            str(number),
            partition=number % len(REPLICAS),
            on_delivery=lambda error, message, number=number: told(number, error, message),
        )
        producer.poll(0)
    producer.flush(PATIENCE_S)


def confluent_reads(work: Work) -> None:
    options = {"bootstrap.servers": work.bootstrap, "group.id": work.group, "log_level": 0}
    consumer = ck.Consumer({**options, "auto.offset.reset": "earliest"})
    consumer.subscribe([work.topic])
    while work.reads_on():
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                work.was_read(message.partition() or 0, message.offset() or 0, message.value())
    consumer.close()


def kafka_python_produces(work: Work) -> None:
    producer = KafkaProducer(bootstrap_servers=work.bootstrap, acks="all", enable_idempotence=True)
    for number in work.numbers():
        future = producer.send(work.topic, str(number).encode(), partition=number % len(REPLICAS))
        future.add_callback(lambda told, number=number: work.was_acked(told.partition, told.offset, number))
        future.add_errback(lambda error, number=number: work.failures.append(f"{number}: {error}"))
    producer.flush(PATIENCE_S)
    producer.close()


def kafka_python_reads(work: Work) -> None:
    consumer = KafkaConsumer(
        work.topic,
        bootstrap_servers=work.bootstrap,
        group_id=work.group,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    while work.reads_on():
        with suppress(RetriableError, KafkaTimeoutError):  # its polls may raise while a broker is away
            for batch in consumer.poll(timeout_ms=100).values():
                for record in batch:
                    work.was_read(record.partition, record.offset, record.value)
    consumer.close()


async def _aiokafka_produces(work: Work) -> None:
    def told(number: int, future: "asyncio.Future[Place]") -> None:
        if (error := future.exception()) is not None:
            work.failures.append(f"{number}: {error}")
        else:
            work.was_acked(future.result().partition, future.result().offset, number)

    async def numbers() -> AsyncIterator[int]:
        while not work.over.is_set():
            yield work.sent
            work.sent += 1
            await asyncio.sleep(PAUSE_S)

    producer = AIOKafkaProducer(bootstrap_servers=work.bootstrap, enable_idempotence=True)
    await producer.start()
    async for number in numbers():
        future = await producer.send(work.topic, str(number).encode(), partition=number % len(REPLICAS))
        future.add_done_callback(lambda future, number=number: told(number, future))
    await producer.stop()


async def _aiokafka_reads(work: Work) -> None:
    consumer = AIOKafkaConsumer(
        work.topic,
        bootstrap_servers=work.bootstrap,
        group_id=work.group,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    await consumer.start()
    while work.reads_on():
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            for record in batch:
                work.was_read(record.partition, record.offset, record.value)
    await consumer.stop()


Client = Callable[[Work], None]
CLIENTS: dict[str, tuple[Client, Client]] = {
    "confluent": (confluent_produces, confluent_reads),
    "kafka-python": (kafka_python_produces, kafka_python_reads),
    "aiokafka": (
        lambda work: asyncio.run(_aiokafka_produces(work)),
        lambda work: asyncio.run(_aiokafka_reads(work)),
    ),
}


def coordinated_by(broker: int, bootstrap: str, client: str) -> str:
    """A group of which this broker is the coordinator."""
    names = [f"{client}-{number}" for number in range(60)]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with raw.Connection(bootstrap.split(",")[0], 10) as connection:
            answer = connection.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": names})
        for found in answer.coordinators:
            if not found.error_code and found.node_id == broker:
                return str(found.key)
        time.sleep(0.1)
    raise AssertionError(f"broker {broker} coordinates nothing")


def until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def run(cluster: LocalCluster, works: list[Work]) -> None:
    """Until every client has sent for a while with each broker there, without one, and with it again."""

    def get_on() -> None:
        aims = [len(work.acked) + A_WHILE for work in works]
        until(
            lambda: all(
                len(work.acked) >= aim or work.failures for work, aim in zip(works, aims, strict=True)
            ),
            lambda: {work.topic: (len(work.acked), work.sent) for work in works},
        )

    try:
        get_on()
        cluster.ask("kill", f"broker-{VICTIM}")
        get_on()
        cluster.ask("restart", f"broker-{VICTIM}")
        get_on()
    finally:
        for work in works:
            work.over.set()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Work]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what is logged keeps sockets from the collector
    folder: Path = tmp_path_factory.mktemp("clients")
    with LocalCluster(folder) as cluster:
        bootstrap = cluster.bootstrap
        works = {name: Work(name, bootstrap, coordinated_by(VICTIM, bootstrap, name)) for name in CLIENTS}
        new = [NewTopic(work.topic, len(REPLICAS), replica_assignment=REPLICAS) for work in works.values()]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics(new).values():
            future.result(60)
        threads = [
            threading.Thread(target=does, args=(work,), daemon=True)
            for name, work in works.items()
            for does in CLIENTS[name]
        ]
        for thread in threads:
            thread.start()
        run(cluster, list(works.values()))
        for thread in threads:
            thread.join(PATIENCE_S)
    gc.collect()
    return works


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.timeout(400)
def test_what_a_client_was_told_of_is_there_once(done: dict[str, Work], client: str) -> None:
    work = done[client]
    assert not work.failures
    assert sorted(work.acked.values()) == list(range(work.sent))
    for partition in range(len(REPLICAS)):
        own = sorted(place for place in work.acked if place.partition == partition)
        assert [place.offset for place in own] == list(range(len(own)))
        assert [work.acked[place] for place in own] == list(range(partition, work.sent, len(REPLICAS)))
    assert work.read == work.acked
