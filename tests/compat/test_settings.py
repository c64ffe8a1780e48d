"""Settings that clients notice: of the broker at its start, of a topic at any time."""

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.compat.clients import raw
from tests.support.broker import BrokerProcess

OwnBroker = Callable[..., BrokerProcess]
CHECK_OFTEN = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "0"}


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = admin_of(broker)
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        future.result(timeout=60)


def alter(broker: BrokerProcess, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(broker)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=60)


def send(broker: BrokerProcess, topic: str, *records: dict[str, Any], **conf: Any) -> list[str]:
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0, "message.max.bytes": 9_000_000}
    producer = ck.Producer(settings | {key.replace("_", "."): value for key, value in conf.items()})
    reports: list[str] = []
    for record in records:
        producer.produce(topic, **record, on_delivery=lambda e, _: reports.append(e.name() if e else "ok"))
        producer.flush(60)
    return reports


def watermarks(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0})
    low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=60)
    consumer.close()
    return low, high


def eventually(condition: Callable[[], bool], within_s: float = 90.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.1)


def test_topics_are_not_made_when_that_is_off(own_broker: OwnBroker) -> None:
    broker = own_broker({"auto.create.topics.enable": "false"})
    impatient = {"message_timeout_ms": 2000, "topic_metadata_propagation_max_ms": 0}
    report = send(broker, "absent", {"value": "x"}, **impatient)
    assert report in (["_UNKNOWN_TOPIC"], ["UNKNOWN_TOPIC_OR_PART"], ["_MSG_TIMED_OUT"])
    assert "absent" not in admin_of(broker).list_topics(timeout=60).topics


def test_topics_are_made_with_the_brokers_defaults(own_broker: OwnBroker) -> None:
    broker = own_broker({"num.partitions": "4", "log.retention.ms": "12345678", "message.max.bytes": "2000"})
    assert send(broker, "made", {"value": "x", "partition": 3}) == ["ok"]
    admin = admin_of(broker)
    assert sorted(admin.list_topics(timeout=60).topics["made"].partitions) == [0, 1, 2, 3]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "made")
    entries = next(iter(admin.describe_configs([resource]).values())).result()
    assert entries["retention.ms"].value == "12345678"
    assert entries["max.message.bytes"].value == "2000"
    assert send(broker, "made", {"value": b"x" * 3000, "partition": 0}) == ["MSG_SIZE_TOO_LARGE"]


def test_a_changed_limit_holds_at_once(own_broker: OwnBroker) -> None:
    broker = own_broker()
    create(broker, "limited")
    big = {"value": b"x" * 3_000_000}
    assert send(broker, "limited", big) == ["MSG_SIZE_TOO_LARGE"]
    alter(broker, "limited", "max.message.bytes", "4000000")
    assert send(broker, "limited", big) == ["ok"]
    alter(broker, "limited", "max.message.bytes", "1000")
    assert send(broker, "limited", big) == ["MSG_SIZE_TOO_LARGE"]


def test_old_segments_go_by_size(own_broker: OwnBroker) -> None:
    broker = own_broker(CHECK_OFTEN)
    create(broker, "short", segment_bytes=str(1 << 20), retention_bytes=str(2 << 20))
    assert set(send(broker, "short", *({"value": b"x" * 250_000} for _ in range(24)))) == {"ok"}
    eventually(lambda: watermarks(broker, "short")[0] > 0)
    low, high = watermarks(broker, "short")
    assert high == 24
    assert (high - low) * 250_000 <= (3 << 20) + (1 << 20)


def test_old_records_go_by_time(own_broker: OwnBroker) -> None:
    broker = own_broker(CHECK_OFTEN)
    create(broker, "brief", retention_ms="1000", segment_ms="500")
    assert send(broker, "brief", {"value": "1"}, {"value": "2"}) == ["ok", "ok"]
    eventually(lambda: watermarks(broker, "brief") == (2, 2))


def read_all(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    conf = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = ck.Consumer(conf | {"enable.partition.eof": True, "log_level": 0})
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        rows.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return rows


def test_compaction_keeps_the_last_of_every_key(own_broker: OwnBroker) -> None:
    broker = own_broker({"log.cleaner.backoff.ms": "200"})
    create(
        broker,
        "table",
        cleanup_policy="compact",
        segment_ms="300",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )
    for number in range(40):
        records = [{"key": f"k{k}", "value": f"{k}-{number}"} for k in range(5)]
        assert set(send(broker, "table", *records)) == {"ok"}
    assert send(broker, "table", {"key": "k4", "value": None}) == ["ok"]
    time.sleep(0.4)
    last = watermarks(broker, "table")[1]
    assert send(broker, "table", {"key": "end", "value": "end"}) == ["ok"]  # rolls the segment before it
    eventually(lambda: len(read_all(broker, "table")) <= 7)
    rows = read_all(broker, "table")
    offsets = [offset for offset, _, _ in rows]
    assert offsets == sorted(set(offsets))
    state: dict[bytes | None, bytes | None] = {}
    for _, key, value in rows:
        state[key] = value
    assert {key: value for key, value in state.items() if value is not None} == {
        **{b"k%d" % k: b"%d-39" % k for k in range(4)},
        b"end": b"end",
    }
    assert watermarks(broker, "table") == (0, last + 1)


@pytest.mark.parametrize(("wanted", "attribute"), [("zstd", 4), ("uncompressed", 0), ("producer", 1)])
def test_batches_are_stored_as_the_topic_says(
    wanted: str, attribute: int, bootstrap: str, name: Callable[[str], str]
) -> None:
    """gzip from the producer: recompressed, unpacked, or left as it came."""
    topic = name(f"codec-{wanted}")
    with raw.Connection(bootstrap) as broker:
        ident = raw.create_topic(broker, topic, 1, compression_type=wanted)
        conf = {"bootstrap.servers": bootstrap, "compression.type": "gzip", "linger.ms": 5000, "log_level": 0}
        producer = ck.Producer(conf)  # whose flush does not wait that long
        producer.list_topics(topic, timeout=60)
        for i in range(50):
            producer.produce(topic, b"%d" % i + b" and again" * 20)
        assert producer.flush(60) == 0
        answer = broker.call(raw.FETCH, 17, raw.fetch_request([(ident, [(0, 0)])]))
    data = answer.responses[0].partitions[0].records
    assert [(first, last) for first, last, _ in raw.batches(data)] == [(0, 49)]
    assert data[22] & 7 == attribute
    assert (len(data) < 2000) == (wanted != "uncompressed")


def test_what_a_producer_sends_is_stored_byte_for_byte(bootstrap: str, name: Callable[[str], str]) -> None:
    """Only the base offset and the leader epoch are the broker's; the checksum does not cover them."""
    topic = name("as-sent")
    with raw.Connection(bootstrap) as broker:
        ident = raw.create_topic(broker, topic)
        raw.produce(broker, topic, raw.batch([b"before"]))
        sent = raw.batch([b"one", None, b"three"], keys=[None, b"k", b""], producer=(-1, -1, -1))
        raw.produce(broker, topic, sent)
        answer = broker.call(raw.FETCH, 17, raw.fetch_request([(ident, [(0, 1)])]))
    stored = answer.responses[0].partitions[0].records
    assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]
    assert (stored[:8], stored[12:16]) == (bytes(7) + b"\1", bytes(4))


def test_a_full_session_cache_serves_without_sessions(own_broker: OwnBroker) -> None:
    broker = own_broker({"max.incremental.fetch.session.cache.slots": "2"})
    connections = [raw.Connection(broker.bootstrap) for _ in range(3)]
    ident = raw.create_topic(connections[0], "watched")
    raw.produce(connections[0], "watched", raw.batch([b"seen"]))
    told = raw.fetch_request([(ident, [(0, 0)])], session_id=0, session_epoch=0)
    answers = [connection.call(raw.FETCH, 17, told) for connection in connections]
    assert sum(answer.session_id != 0 for answer in answers) <= 2
    assert all(raw.batches(a.responses[0].partitions[0].records) for a in answers)
    for connection in connections:
        connection.close()
