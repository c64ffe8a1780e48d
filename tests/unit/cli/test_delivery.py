"""Delivery of lines: batches, partitions, what is refused, a broker that is gone."""

import zlib
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from anabranch.base.errors import Invalid, TooLarge, Unavailable, UnknownTopic
from anabranch.cli.client_options import ProduceSettings
from anabranch.cli.delivery import Delivery, KeyValue
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import Address
from anabranch.client.requests import INIT_PRODUCER_ID, PRODUCE
from anabranch.client.settings import Settings
from anabranch.records.batch import read_header
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.fake_brokers import FakeBrokers

B1, B2 = Address("b1", 9092), Address("b2", 9092)


class Logs:
    """Partitions that keep the headers of batches."""

    def __init__(self) -> None:
        self.brokers = FakeBrokers({1: B1, 2: B2})
        self.brokers.topics = {"orders": [(1, 0), (2, 0), (1, 0)]}
        self.brokers.answers[PRODUCE] = self._produce
        self.brokers.answers[INIT_PRODUCER_ID] = self._identify
        self.batches: dict[int, list[Any]] = {0: [], 1: [], 2: []}
        self.codes: list[int] = []
        self.producer_ids = 0

    def _produce(self, address: Address, request: Any) -> Any:
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        code = self.codes.pop(0) if self.codes else 0
        end = sum(header.count for header in self.batches[part.index])
        if not code:
            self.batches[part.index].append(read_header(part.records))
        stored = {
            "index": part.index,
            "error_code": code,
            "base_offset": -1 if code else end,
            "log_append_time": -1,
            "log_start_offset": 0,
            "record_errors": [],
            "error_message": None,
        }
        return {"responses": [{"name": topic.name, "partition_responses": [stored]}]}

    def _identify(self, address: Address, request: Any) -> Any:
        self.producer_ids += 1
        return {"error_code": 0, "producer_id": self.producer_ids, "producer_epoch": 0}

    @property
    def counts(self) -> dict[int, list[int]]:
        return {at: [header.count for header in headers] for at, headers in self.batches.items()}


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def cluster(logs: Logs) -> Iterator[Cluster]:
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    settings = Settings("b1:9092", timeout_s=5, topics_come_s=1)
    with Cluster(settings, logs.brokers.dial, lambda: now_s[0], sleep, Random(1)) as made:
        yield made


def delivery(cluster: Cluster, acks: int = -1, **how: int) -> Delivery:
    return Delivery(cluster, "orders", ProduceSettings(timeout_ms=5000, **how), acks, 0)


def test_keys_say_where_and_the_others_take_turns(cluster: Cluster, logs: Logs) -> None:
    sent = delivery(cluster)
    for key in (b"alice", b"bob", b"carol", b"alice"):
        sent.send(KeyValue(key, b"v"))
    sent.catch_up()
    expected: dict[int, int] = {}
    for key in (b"alice", b"bob", b"carol", b"alice"):
        expected[zlib.crc32(key) % 3] = expected.get(zlib.crc32(key) % 3, 0) + 1
    assert {at: sum(counts) for at, counts in logs.counts.items() if counts} == expected
    others = delivery(cluster, batch_records=2)
    for _ in range(12):
        others.send(KeyValue(None, b"v"))
    others.catch_up()
    assert {at: counts[-2:] for at, counts in logs.counts.items()} == {0: [2, 2], 1: [2, 2], 2: [2, 2]}
    assert others.sent == 12


def test_batches_are_full_by_number_and_by_size(cluster: Cluster, logs: Logs) -> None:
    by_number = delivery(cluster, batch_records=4)
    by_number.partition = 1
    for _ in range(10):
        by_number.send(KeyValue(None, b"v"))
    by_number.catch_up()
    assert logs.counts[1] == [4, 4, 2]
    assert by_number.offsets == {1: (0, 9)}
    by_size = delivery(cluster, batch_bytes=1000)
    by_size.partition = 0
    for _ in range(4):
        by_size.send(KeyValue(None, bytes(400)))
    by_size.catch_up()
    assert logs.counts[0] == [2, 2]
    assert by_size.summary(1.0)["partitions"] == [{"partition": 0, "first": 0, "last": 3}]


def test_what_is_refused_is_counted_and_the_others_are_sent(cluster: Cluster, logs: Logs) -> None:
    sent = delivery(cluster, record_bytes=500, batch_records=2)
    sent.partition = 0
    logs.codes = [int(ErrorCode.message_too_large)]
    sent.send(KeyValue(None, bytes(600)))
    for _ in range(4):
        sent.send(KeyValue(None, b"v"))
    sent.catch_up()
    assert (sent.sent, sent.failed, sent.is_hopeless) == (2, 3, False)
    assert isinstance(sent.first_failure, TooLarge)


def test_after_a_refusal_another_producer_goes_on(cluster: Cluster, logs: Logs) -> None:
    sent = delivery(cluster, batch_records=1)
    sent.partition = 0
    sent.identify()
    for number in range(5):
        if number == 2:
            logs.codes = [int(ErrorCode.invalid_record)]
        sent.send(KeyValue(None, b"v"))
        sent.catch_up()
    assert (sent.sent, sent.failed) == (4, 1)
    assert isinstance(sent.first_failure, Invalid)
    told = [(header.producer_id, header.base_sequence) for header in logs.batches[0]]
    assert told == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_leader_that_moves_takes_the_rest_in_order(cluster: Cluster, logs: Logs) -> None:
    sent = delivery(cluster, batch_records=1)
    sent.partition = 0
    sent.identify()
    logs.codes = [0, int(ErrorCode.not_leader_or_follower)] + 4 * [int(ErrorCode.not_leader_or_follower)]
    for _ in range(6):
        sent.send(KeyValue(None, b"v"))
    sent.catch_up()
    assert (sent.sent, sent.failed) == (6, 0)
    assert [header.base_sequence for header in logs.batches[0]] == list(range(6))


def test_a_broker_that_is_gone(cluster: Cluster, logs: Logs) -> None:
    sent = delivery(cluster, batch_records=2)
    sent.partition = 0
    sent.send(KeyValue(None, b"v"))
    sent.catch_up()
    logs.brokers.away = {B1, B2}
    for _ in range(7):
        sent.send(KeyValue(None, b"v"))
    sent.catch_up()
    assert (sent.sent, sent.failed, sent.is_hopeless) == (1, 7, True)
    assert isinstance(sent.first_failure, Unavailable)


@pytest.mark.parametrize("partition", [None, 7])
def test_what_is_not_there(cluster: Cluster, logs: Logs, partition: int | None) -> None:
    if partition is None:
        logs.brokers.topics = {}
    sent = delivery(cluster)
    sent.partition = partition
    for _ in range(2):
        sent.send(KeyValue(b"k", b"v"))
    sent.catch_up()
    assert (sent.sent, sent.failed, sent.is_hopeless) == (0, 2, False)
    assert isinstance(sent.first_failure, UnknownTopic)


def test_without_acknowledgements(cluster: Cluster, logs: Logs) -> None:
    sent = delivery(cluster, acks=0)
    sent.send(KeyValue(b"k", b"v"))
    sent.catch_up()
    assert (sent.sent, sent.offsets) == (1, {})
