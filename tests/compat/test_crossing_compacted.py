"""A compacted topic that both protocols write to: both read what is left, and nothing stays behind."""

import json
import time
import urllib.request
from collections.abc import Callable

import confluent_kafka as ck
import pulsar

from tests.compat.crossing import kafka_reads, made_topic
from tests.support.broker import BrokerProcess

QUICK = {
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "log.initial.task.delay.ms": "200",
}
TABLE = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
KEYS = 7
ROUNDS = 300


def test_both_read_what_compaction_left(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(QUICK)
    client = pulsar.Client(broker.pulsar, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    topic = made_topic(broker, "table", **TABLE)
    ours = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 0})
    theirs = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=50, batching_max_publish_delay_ms=50
    )
    last: dict[bytes, bytes] = {}
    for number in range(ROUNDS):
        for index in range(KEYS):
            key, value = b"k%d" % index, b"%d " % number * 300
            if (number + index) % 2:
                ours.produce(topic, value, key=key)
            else:
                theirs.send_async(value, None, partition_key=key.decode())
        if number % 20 == 19:  # so that the order within a key is known
            ours.flush(60)
            theirs.flush()
    ours.flush(60)
    theirs.flush()
    for index in range(KEYS):  # the last word on every key, by one protocol or the other
        last[b"k%d" % index] = b"last %d" % index
        if index % 2:
            ours.produce(topic, b"last %d" % index, key=b"k%d" % index)
            ours.flush(60)
        else:
            theirs.send(b"last %d" % index, partition_key=f"k{index}")
    total = ROUNDS * KEYS + KEYS

    deadline = time.monotonic() + 90
    found: list[ck.Message] = []
    while time.monotonic() < deadline:
        found = kafka_reads(broker, topic, total, until_offset=total - 1)
        if len(found) < total / 2:
            break
    assert len(found) < total / 2, "nothing was compacted"
    assert {message.key(): message.value() for message in found} == last

    shared = client.subscribe(
        topic,
        "shared",
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    seen: dict[str, bytes] = {}
    while backlog(broker, topic) and time.monotonic() < deadline + 60:
        try:
            message = shared.receive(500)
        except pulsar.Timeout:
            continue
        seen[message.partition_key()] = message.data()
        shared.acknowledge(message)
    assert {key.encode(): value for key, value in seen.items()} == last
    assert backlog(broker, topic) == 0
    client.close()


def backlog(broker: BrokerProcess, topic: str) -> int:
    url = f"{broker.admin}/admin/v2/persistent/public/default/{topic}-partition-0/stats"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return int(json.load(answer)["subscriptions"]["shared"]["msgBacklog"])
