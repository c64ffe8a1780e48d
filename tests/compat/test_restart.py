"""A broker that was stopped or killed goes on where it was, and its clients with it."""

import time
from collections.abc import Callable

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.compat.clients import raw
from tests.compat.consumers import READERS
from tests.support.broker import BrokerFailed, BrokerProcess

OwnBroker = Callable[..., BrokerProcess]
ENDS = {"stopped": BrokerProcess.stop, "killed": BrokerProcess.kill}


@pytest.mark.parametrize("end", ENDS)
def test_topics_records_and_settings_survive(end: str, own_broker: OwnBroker) -> None:
    broker = own_broker()
    with raw.Connection(broker.bootstrap) as connection:
        ident = raw.create_topic(connection, "kept", 3, retention_ms="12345678")
        raw.create_topic(connection, "gone")
        connection.call(raw.DELETE_TOPICS, 1, {"topic_names": ["gone"], "timeout": 5000})
        for partition in range(3):
            raw.produce(connection, "kept", raw.batch([b"%d" % partition] * 3), partition=partition)
        told = {
            "topics": [{"name": "kept", "partitions": [{"partition_index": 1, "offset": 2}]}],
            "timeout": 5000,
        }
        connection.call(raw.DELETE_RECORDS, 2, told)
        cluster = connection.call(raw.METADATA, 12, {"topics": []}).cluster_id
    ENDS[end](broker)
    broker.start()
    with raw.Connection(broker.bootstrap) as connection:
        assert connection.call(raw.METADATA, 12, {"topics": []}).cluster_id == cluster
        assert raw.topic_id(connection, "kept") == ident
        everything = connection.call(raw.METADATA, 12, {"topics": None}).topics
        assert [topic.name for topic in everything] == ["kept"]
        for partition, start in ((0, 0), (1, 2), (2, 0)):
            told = {"name": "kept", "partitions": [{"partition_index": partition, "timestamp": -2}]}
            answer = connection.call(raw.LIST_OFFSETS, 5, {"replica_id": -1, "topics": [told]})
            found = answer.topics[0].partitions[0].offset
            # Deleted records may come back after a kill: Kafka, too, writes the low watermark once a minute.
            assert found == start or (end == "killed" and found == 0)
    assert READERS["confluent"](broker.bootstrap, "kept", 2, 3) == [(i, b"2") for i in range(3)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    entries = next(iter(admin.describe_configs([resource]).values())).result()
    assert entries["retention.ms"].value == "12345678"


@pytest.mark.parametrize("end", ENDS)
def test_sequences_are_remembered(end: str, own_broker: OwnBroker) -> None:
    """A retry that reaches the broker after its restart is still a duplicate, and a gap still a gap."""
    broker = own_broker()

    def batch(*values: bytes, sequence: int) -> bytes:
        # Of now: a producer whose last record is a day old is forgotten.
        return raw.batch(values, producer=(me, 0, sequence), base_ms=int(time.time() * 1000))

    with raw.Connection(broker.bootstrap) as connection:
        raw.create_topic(connection, "counted")
        me = raw.new_producer(connection)
        for start in range(0, 12, 2):
            data = batch(b"a", b"b", sequence=start)
            assert raw.produce(connection, "counted", data).base_offset == start
    ENDS[end](broker)
    broker.start()
    with raw.Connection(broker.bootstrap) as connection:
        again = raw.produce(connection, "counted", batch(b"a", b"b", sequence=10))
        assert (again.error_code, again.base_offset) == (0, 10)
        assert raw.produce(connection, "counted", batch(b"x", sequence=20)).error_code == 45
        onward = raw.produce(connection, "counted", batch(b"c", sequence=12))
        assert (onward.error_code, onward.base_offset) == (0, 12)
        assert raw.new_producer(connection) > me


def next_value(consumer: ck.Consumer) -> bytes | None:
    """What it reads next; it may still believe that a topic that has just been made is not there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            return message.value()
    raise AssertionError("nothing comes")


@pytest.mark.parametrize("end", ENDS)
def test_clients_find_it_again(end: str, own_broker: OwnBroker) -> None:
    broker = own_broker()
    quick = {
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        "log_level": 0,
    }
    conf = {"bootstrap.servers": broker.bootstrap} | quick
    producer = ck.Producer(conf | {"enable.idempotence": True})
    consumer = ck.Consumer(conf | {"group.id": "unused", "enable.auto.commit": False})
    failed: list[str] = []
    for number in range(200):
        producer.produce(
            "lasting", b"%d" % number, on_delivery=lambda e, _: failed.append(e.name()) if e else None
        )
        producer.poll(0)
        if number == 50:
            producer.flush(60)
            consumer.assign([ck.TopicPartition("lasting", 0, 0)])
            assert next_value(consumer) == b"0"
        if number == 100:
            ENDS[end](broker)
        if number == 150:
            broker.start()
    assert producer.flush(60) == 0
    assert not failed
    values: list[bytes] = []
    deadline = time.monotonic() + 90
    while len(values) < 199 and time.monotonic() < deadline:
        values += [m.value() for m in consumer.consume(200, timeout=0.5) if m.error() is None]
    consumer.close()
    assert values == [b"%d" % number for number in range(1, 200)]


def test_a_second_broker_on_the_same_folder_is_refused(own_broker: OwnBroker) -> None:
    broker = own_broker()
    with pytest.raises(BrokerFailed, match="ended at once"):
        BrokerProcess(broker.data.parent).start()
    assert broker.running
    with raw.Connection(broker.bootstrap) as connection:
        raw.create_topic(connection, "unharmed")
