"""A service moves from Pulsar's clients to Kafka's and back: nothing is lost, nothing comes again."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pulsar
import pytest
from aiokafka import AIOKafkaConsumer

from tests.compat.crossing import made_topic
from tests.support.broker import BrokerProcess

COUNT = 100


@pytest.fixture
def shared_broker(shared_broker: BrokerProcess, request: pytest.FixtureRequest) -> BrokerProcess:
    if request.node.get_closest_marker("plain_broker"):
        plain: BrokerProcess = request.getfixturevalue("plain_broker")
        return plain
    return shared_broker


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(
        shared_broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    yield made
    made.close()


def filled(broker: BrokerProcess, client: pulsar.Client, name: str) -> str:
    """A topic with messages 0 to 99, of both protocols' producers, in batches of ten and alone."""
    topic = made_topic(broker, name)
    ours = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "compression.type": "lz4", "log_level": 0}
    )
    theirs = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=5000
    )
    for start in range(0, COUNT, 20):
        for number in range(start, start + 10):
            ours.produce(topic, b"%d" % number, key=b"k%d" % (number % 5))
        ours.flush(60)
        for number in range(start + 10, start + 20):
            theirs.send_async(b"%d" % number, None, partition_key=f"k{number % 5}")
        theirs.flush()
    theirs.close()
    return topic


def received(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(30_000) for _ in range(count)]


def confluent_group(broker: BrokerProcess, group: str, topic: str, count: int, **settings: str) -> list[int]:
    """What a member of the group reads, and commits."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    deadline = time.monotonic() + 90
    quiet = 0
    while time.monotonic() < deadline and quiet < 2:
        messages = consumer.consume(500, timeout=0.3)
        for message in messages:
            assert message.error() is None, message.error()
            found.append(int(message.value()))
        quiet = quiet + 1 if len(found) >= count and not messages else 0
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def newer_group(broker: BrokerProcess, group: str, topic: str, count: int) -> list[int]:
    return confluent_group(broker, group, topic, count, **{"group.protocol": "consumer"})


def aiokafka_group(broker: BrokerProcess, group: str, topic: str, count: int) -> list[int]:
    async def read() -> list[int]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        found: list[int] = []
        quiet = 0
        while quiet < 2:
            polled = [record for part in (await consumer.getmany(timeout_ms=300)).values() for record in part]
            found += [int(record.value) for record in polled]
            quiet = quiet + 1 if len(found) >= count and not polled else 0
        await consumer.commit()
        await consumer.stop()
        return found

    return asyncio.run(asyncio.wait_for(read(), 90))


Group = Callable[[BrokerProcess, str, str, int], list[int]]


@pytest.mark.plain_broker  # acknowledgements without receipts do not survive the leader they were meant for
@pytest.mark.parametrize("kafka_group", [confluent_group, newer_group, aiokafka_group])
def test_what_was_acknowledged_ahead_does_not_come_again(
    shared_broker: BrokerProcess, client: pulsar.Client, kafka_group: Group
) -> None:
    topic = filled(shared_broker, client, "handover")
    shared = client.subscribe(
        topic,
        "g" + topic,
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    acked = {0, 1, 2, 17, 18, 19, *range(31, 90, 3), 99}
    for message in received(shared, COUNT):
        if int(message.data()) in acked:
            shared.acknowledge(message)
    shared.close()
    left = [number for number in range(COUNT) if number not in acked]
    assert kafka_group(shared_broker, "g" + topic, topic, len(left)) == left

    producer = ck.Producer({"bootstrap.servers": shared_broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"100")
    producer.flush(60)
    back = client.subscribe(topic, "g" + topic, pulsar.ConsumerType.Shared)
    assert [int(message.data()) for message in received(back, 1)] == [100]
    back.close()


def test_a_group_is_continued_as_a_subscription(shared_broker: BrokerProcess, client: pulsar.Client) -> None:
    topic = filled(shared_broker, client, "handover-back")
    group = "g" + topic
    member = ck.Consumer(
        {
            "bootstrap.servers": shared_broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    member.subscribe([topic])
    found: list[ck.Message] = []
    while len(found) < 43:
        found += member.consume(43 - len(found), timeout=5)
    with pytest.raises(pulsar.ConsumerBusy):  # its members read the topic
        client.subscribe(topic, group)
    member.commit(message=found[-1], asynchronous=False)
    member.close()
    consumer = client.subscribe(topic, group)
    assert [int(message.data()) for message in received(consumer, COUNT - 43)] == list(range(43, COUNT))
    committer = ck.Consumer({"bootstrap.servers": shared_broker.bootstrap, "group.id": group, "log_level": 0})
    with pytest.raises(ck.KafkaException, match="UNKNOWN_MEMBER_ID"):  # the subscription's consumers have it
        committer.commit(offsets=[ck.TopicPartition(topic, 0, 0)], asynchronous=False)
    committer.close()


def test_commits_of_kafka_move_a_subscription_that_is_open(
    shared_broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = filled(shared_broker, client, "handover-open")
    group = "g" + topic
    consumer = client.subscribe(
        topic, group, pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    consumer.close()
    assert backlog(shared_broker, topic, group) == COUNT
    admin = ck.Consumer({"bootstrap.servers": shared_broker.bootstrap, "group.id": group, "log_level": 0})
    for offset in (60, 20, 90):
        admin.commit(offsets=[ck.TopicPartition(topic, 0, offset)], asynchronous=False)
        assert backlog(shared_broker, topic, group) == COUNT - offset
        [committed] = admin.committed([ck.TopicPartition(topic, 0)], timeout=60)
        assert committed.offset == offset
    admin.close()


def backlog(broker: BrokerProcess, topic: str, subscription: str) -> int:
    url = f"{broker.admin}/admin/v2/persistent/public/default/{topic}-partition-0/stats"
    with urllib.request.urlopen(url, timeout=60) as answer:
        stats = json.load(answer)
    return int(stats["subscriptions"][subscription]["msgBacklog"])


@pytest.mark.plain_broker  # batches of several keys go to whoever has their first, and come again
def test_keys_of_kafkas_batches_are_shared_in_order(
    shared_broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = filled(shared_broker, client, "handover-keys")
    consumers = [
        client.subscribe(
            topic, "keyed", pulsar.ConsumerType.KeyShared, initial_position=pulsar.InitialPosition.Earliest
        )
        for _ in range(2)
    ]
    by_key: dict[str, list[tuple[int, int]]] = {}
    deadline = time.monotonic() + 90
    seen = 0
    while seen < COUNT and time.monotonic() < deadline:
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            by_key.setdefault(message.partition_key(), []).append((number, int(message.data())))
            seen += 1
    assert seen == COUNT
    for key, came in by_key.items():
        assert [value for _, value in came] == sorted(value for _, value in came), key
    # Pulsar's batches of several keys go where their first message's key goes; Kafka's go key by key.
    owners = {key: {number for number, value in came if value % 20 < 10} for key, came in by_key.items()}
    assert all(len(numbers) == 1 for numbers in owners.values()), owners
