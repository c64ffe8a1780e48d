"""What Pulsar's own client does every day, while brokers come and go under it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import confluent_kafka as ck
import pulsar
import pytest

from tests.support.broker import BrokerProcess
from tests.support.double_broker import ON_DOUBLE

EARLIEST = pulsar.InitialPosition.Earliest
Kind = pulsar.ConsumerType
Connect = Callable[[str], pulsar.Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Clients that end with the test."""
    clients: list[pulsar.Client] = []

    def open(url: str) -> pulsar.Client:
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        clients.append(pulsar.Client(url, operation_timeout_seconds=60, logger=quiet))
        return clients[-1]

    yield open
    for client in clients:
        client.close()


def take(
    consumer: pulsar.Consumer, count: int, wait_ms: int = 30_000, *, after: Sequence[pulsar.Message] = ()
) -> list[pulsar.Message]:
    """So many messages, which come `after` others.

    What a new leader delivers again, since it was not acknowledged, counts once.
    """
    messages: list[pulsar.Message] = []
    places = {str(message.message_id()) for message in after}
    while len(messages) < count:
        try:
            message = consumer.receive(timeout_millis=wait_ms)
        except pulsar.Timeout:
            break
        place = str(message.message_id())
        if ON_DOUBLE and place in places:
            continue
        places.add(place)
        messages.append(message)
    return messages


def values(messages: list[pulsar.Message]) -> list[int]:
    return [int(message.data()) for message in messages]


def kept_at(broker: BrokerProcess, offset: int) -> None:
    """Wait until the subscription's position is kept: as the offset of the group of its name."""
    group = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "s", "log_level": 0})
    deadline = time.monotonic() + 60
    while group.committed([ck.TopicPartition("orders", 0)], timeout=60)[0].offset < offset:
        assert time.monotonic() < deadline, "acknowledgements are not kept"
        time.sleep(0.1)
    group.close()


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
def test_clients_go_on_when_the_broker_comes_back(
    own_broker: Callable[..., BrokerProcess], connect: Connect, end: Callable[[BrokerProcess], None]
) -> None:
    broker = own_broker()
    client = connect(broker.pulsar)
    producer = client.create_producer("orders")
    consumer = client.subscribe("orders", "s", Kind.Shared, initial_position=EARLIEST)
    for n in range(50):
        producer.send(b"%d" % n)
    before = take(consumer, 50)
    assert values(before) == list(range(50))
    for message in before[:30]:
        consumer.acknowledge(message)
    kept_at(broker, 30)  # acknowledgements without a receipt are kept after a second
    end(broker)
    broker.start()
    for n in range(50, 60):
        producer.send(b"%d" % n)
    rest = take(consumer, 30)
    assert sorted(values(rest)) == list(range(30, 60))
    assert take(consumer, 1, 300, after=rest) == []


def test_nothing_is_lost_or_doubled_under_load_when_the_broker_stops(
    own_broker: Callable[..., BrokerProcess], connect: Connect
) -> None:
    broker = own_broker({"brokerDeduplicationEnabled": "true"})
    client = connect(broker.pulsar)
    producer = client.create_producer(
        "load", producer_name="p", block_if_queue_full=True, send_timeout_millis=120_000
    )
    failed: list[object] = []
    count = 20_000

    def write() -> None:
        for n in range(count):
            producer.send_async(
                b"%d" % n, lambda result, id: result == pulsar.Result.Ok or failed.append(result)
            )
        producer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(2):
        time.sleep(0.3)
        broker.stop()
        broker.start()
    writer.join(120)
    assert not writer.is_alive()
    assert failed == []
    consumer = client.subscribe("load", "s", initial_position=EARLIEST)
    taken = take(consumer, count)
    assert values(taken) == list(range(count))
    assert take(consumer, 1, 1_000, after=taken) == []


def test_a_consumer_that_dies_leaves_its_messages_to_others(
    own_broker: Callable[..., BrokerProcess], connect: Connect
) -> None:
    broker = own_broker()
    stays, goes = connect(broker.pulsar), connect(broker.pulsar)
    consumers = [
        client.subscribe("shared", "s", Kind.Shared, initial_position=EARLIEST, receiver_queue_size=20)
        for client in (stays, goes)
    ]
    producer = stays.create_producer("shared")
    for n in range(40):
        producer.send(b"%d" % n)
    mine = take(consumers[0], 1) + take(consumers[0], 39, 500)
    assert 0 < len(mine) < 40
    for message in mine:
        consumers[0].acknowledge(message)
    goes.shutdown()  # without a word to the broker
    rest = take(consumers[0], 40 - len(mine))
    assert sorted(values(mine) + values(rest)) == list(range(40))


def test_a_consumer_that_does_not_take_its_messages_harms_nobody(
    own_broker: Callable[..., BrokerProcess], connect: Connect
) -> None:
    broker = own_broker()
    client = connect(broker.pulsar)
    idle = client.subscribe("stream", "idle", initial_position=EARLIEST, receiver_queue_size=5)
    busy = client.subscribe("stream", "busy", initial_position=EARLIEST)
    producer = client.create_producer("stream", block_if_queue_full=True)
    for n in range(2_000):
        producer.send_async(b"%d" % n, None)
    producer.flush()
    received = []
    while len(received) < 2_000:
        message = busy.receive(timeout_millis=30_000)
        busy.acknowledge(message)
        received.append(int(message.data()))
    assert received == list(range(2_000))
    assert values(take(idle, 10)) == list(range(10))


def test_a_topic_that_is_deleted_is_made_anew_by_who_uses_it(
    own_broker: Callable[..., BrokerProcess], connect: Connect
) -> None:
    from confluent_kafka.admin import AdminClient

    broker = own_broker()
    client = connect(broker.pulsar)
    producer = client.create_producer("short-lived", send_timeout_millis=60_000)
    consumer = client.subscribe("short-lived", "s", initial_position=EARLIEST)
    producer.send(b"1")
    assert values(take(consumer, 1)) == [1]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_topics(["short-lived"]).values():
        done.result(60)
    producer.send(b"2")
    assert values(take(consumer, 1)) == [2]


def test_kafka_and_pulsar_share_a_topic(own_broker: Callable[..., BrokerProcess], connect: Connect) -> None:
    from confluent_kafka import Producer

    broker = own_broker()
    client = connect(broker.pulsar)
    consumer = client.subscribe("both", "s", initial_position=EARLIEST)
    client.create_producer("both").send(b"pulsar", partition_key="p")
    writer = Producer({"bootstrap.servers": broker.bootstrap})
    writer.produce("both", b"kafka", b"k")
    assert writer.flush(60) == 0
    messages = take(consumer, 2)
    assert [(message.partition_key(), message.data()) for message in messages] == [
        ("p", b"pulsar"),
        ("k", b"kafka"),
    ]
    for message in messages:
        consumer.acknowledge(message)
    reader = client.create_reader("both", messages[0].message_id())
    assert reader.read_next(30_000).data() == b"kafka"
    assert not reader.has_message_available()
