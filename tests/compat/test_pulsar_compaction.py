"""Compaction as Pulsar's client sees it: compacted readers, table views, batches, Kafka's side, kill -9."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus

import confluent_kafka as ck
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.double_broker import ON_DOUBLE

EARLIEST = pulsar.MessageId.earliest
Codec = pulsar.CompressionType
PATIENCE_S = 90.0


@pytest.fixture
def connect() -> Iterator[Callable[[str], pulsar.Client]]:
    clients: list[pulsar.Client] = []

    def open(url: str) -> pulsar.Client:
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        clients.append(pulsar.Client(url, operation_timeout_seconds=60, logger=quiet))
        return clients[-1]

    yield open
    for client in clients:
        client.close()


def call(admin: str, method: str, path: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    url = f"{admin}/admin/v2/{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            told: bytes = answer.read()
            return told.decode()
    except urllib.error.HTTPError as error:
        if not ON_DOUBLE or error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
    time.sleep(0.05)  # nobody leads at the moment
    return call(admin, method, path, body)


def status(admin: str, topic: str) -> str:
    told: str = json.loads(call(admin, "GET", f"persistent/public/default/{topic}/compaction"))["status"]
    return told


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def compact(admin: str, topic: str) -> None:
    """Until it is done.  It is given up when the leader resigns, as when a topic is unloaded."""

    def has_run() -> bool:
        call(admin, "PUT", f"persistent/public/default/{topic}/compaction")
        wait_until(lambda: status(admin, topic) != "RUNNING")
        return not ON_DOUBLE or status(admin, topic) != "NOT_RUN"

    wait_until(has_run)
    assert status(admin, topic) == "SUCCESS"


def read(client: pulsar.Client, topic: str, **options: bool) -> list[tuple[str, bytes]]:
    reader = client.create_reader(topic, EARLIEST, **options)
    found = []
    while reader.has_message_available():
        message = reader.read_next(30_000)
        found.append((message.partition_key(), message.data()))
    reader.close()
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZLib, Codec.ZSTD, Codec.SNAPPY])
@pytest.mark.parametrize("batching", [False, True])
def test_every_way_to_send(
    pulsar_url: str,
    admin_url: str,
    name: Callable[[str], str],
    connect: Callable[[str], pulsar.Client],
    codec: Codec,
    batching: bool,
) -> None:
    client, topic = connect(pulsar_url), name("table")
    producer = client.create_producer(
        topic, batching_enabled=batching, compression_type=codec, batching_max_publish_delay_ms=20
    )
    client.subscribe(topic, "s", is_read_compacted=True).close()
    sent = [(f"k{i % 7}", b"%d" % i) for i in range(40)]
    for key, value in sent:
        producer.send_async(value, None, partition_key=key)
    producer.flush()
    # By a producer that does not compress: this client throws away what ZLib makes of nothing.
    client.create_producer(topic).send(b"", partition_key="k3")
    expected = {key: value for key, value in dict(sent).items() if key != "k3"}
    compact(admin_url, topic)
    found = read(client, topic, is_read_compacted=True)
    assert dict(found) == expected
    assert len(found) == 6
    assert [each for each in read(client, topic) if each[1]] == sent
    producer.send(b"tail", partition_key="k1")
    assert read(client, topic, is_read_compacted=True)[6:] == [("k1", b"tail")]
    consumer = client.subscribe(topic, "s", is_read_compacted=True)
    assert [consumer.receive(30_000).data() for _ in range(7)][-1] == b"tail"
    compact(admin_url, topic)
    assert dict(read(client, topic, is_read_compacted=True)) == expected | {"k1": b"tail"}


def test_a_table_view(
    pulsar_url: str, admin_url: str, name: Callable[[str], str], connect: Callable[[str], pulsar.Client]
) -> None:
    client, topic = connect(pulsar_url), name("table")
    producer = client.create_producer(topic)
    for i in range(30):
        producer.send(b"%d" % i, partition_key=f"k{i % 3}")
    compact(admin_url, topic)
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in ("k0", "k1", "k2")} == {"k0": b"27", "k1": b"28", "k2": b"29"}
    producer.send(b"new", partition_key="k0")
    producer.send(b"", partition_key="k1")
    wait_until(lambda: len(view) == 2)
    assert view.get("k0") == b"new"
    view.close()


def test_partitions_and_thresholds(
    pulsar_url: str, admin_url: str, name: Callable[[str], str], connect: Callable[[str], pulsar.Client]
) -> None:
    client, topic = connect(pulsar_url), name("table")
    call(admin_url, "PUT", f"persistent/public/default/{topic}/partitions", 2)
    producer = client.create_producer(topic)
    for i in range(40):
        producer.send(b"%d" % i, partition_key=f"k{i % 4}")
    call(admin_url, "PUT", f"persistent/public/default/{topic}/compaction")
    parts = [f"{topic}-partition-{index}" for index in range(2)]
    wait_until(lambda: all(status(admin_url, part) == "SUCCESS" for part in parts))
    found = [each for part in parts for each in read(client, part, is_read_compacted=True)]
    assert sorted(found) == [(f"k{i % 4}", b"%d" % i) for i in range(36, 40)]
    path = f"persistent/public/default/{topic}/compactionThreshold"
    call(admin_url, "POST", path, 1_000_000)
    assert call(admin_url, "GET", path) == "1000000"


@pytest.mark.plain_broker  # one that is given up leaves nothing to be found
def test_killed_while_it_compacts(
    own_broker: Callable[..., BrokerProcess], connect: Callable[[str], pulsar.Client]
) -> None:
    broker = own_broker()
    client = connect(broker.pulsar)
    producer = client.create_producer("table", batching_enabled=True, block_if_queue_full=True)
    for i in range(2000):
        producer.send_async(b"%d " % i + bytes(500), None, partition_key=f"k{i % 50}")
    producer.flush()
    compact(broker.admin, "table")
    for i in range(2000, 4000):
        producer.send_async(b"%d " % i + bytes(500), None, partition_key=f"k{i % 60}")
    producer.flush()
    pace = "brokers/configuration/log.cleaner.io.max.bytes.per.second"
    call(broker.admin, "POST", f"{pace}/100000")
    call(broker.admin, "PUT", "persistent/public/default/table/compaction")
    time.sleep(1.0)
    assert status(broker.admin, "table") == "RUNNING"
    broker.kill()
    broker.start()
    assert status(broker.admin, "table") == "NOT_RUN"
    expected = {f"k{i % 50}": i for i in range(2000)} | {f"k{i % 60}": i for i in range(2000, 4000)}
    after = read(client, "table", is_read_compacted=True)
    assert {key: int(value.split()[0]) for key, value in after} == expected
    assert len(after) == 50 + 2000
    call(broker.admin, "DELETE", pace)
    compact(broker.admin, "table")
    after = read(client, "table", is_read_compacted=True)
    assert {key: int(value.split()[0]) for key, value in after} == expected
    assert len(after) == 60
    assert len(read(client, "table")) == 4000
    (folder,) = broker.data.glob("topics/public/default/table-0/compacted")
    assert len(list(folder.iterdir())) == 2


def test_kafkas_compaction_of_both_protocols_messages(
    own_broker: Callable[..., BrokerProcess], connect: Callable[[str], pulsar.Client]
) -> None:
    """cleanup.policy=compact looks into Pulsar's batches, and readers of both protocols see the same."""
    broker = own_broker({"log.cleaner.backoff.ms": "200"})
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic("both", 1, 1, config=config)]).values():
        future.result(timeout=60)
    client = connect(broker.pulsar)
    producer = client.create_producer("persistent://public/default/both-partition-0")
    for i in range(50):
        producer.send_async(b"%d" % i, None, partition_key=f"k{i % 5}")
    producer.flush()
    kafka = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    kafka.produce("both", b"kafka's", b"k1")
    assert kafka.flush(60) == 0
    time.sleep(0.6)
    producer.send(b"last", partition_key="other")  # it rolls the segment before
    expected = [("k0", b"45"), ("k2", b"47"), ("k3", b"48"), ("k4", b"49"), ("k1", b"kafka's")]
    expected.append(("other", b"last"))
    plain = "persistent://public/default/both-partition-0"
    wait_until(lambda: len(read(client, plain)) == 6)
    assert read(client, plain) == expected
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["both"])
    found = consumer.consume(6, 90)
    assert [(message.key().decode(), message.value()) for message in found] == expected
    assert [message.offset() for message in found] == [45, 47, 48, 49, 50, 51]
    consumer.close()
