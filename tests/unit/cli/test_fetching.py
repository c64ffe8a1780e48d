"""Fetches of `consume`: ends, leaders that move, offsets that are gone; on brokers that are a function."""

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any

import pytest

from anabranch.base.errors import Unavailable, UnknownTopic
from anabranch.cli.client_options import ConsumeSettings
from anabranch.cli.fetching import Fetcher
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import Address, TopicPartition
from anabranch.client.requests import FETCH, LIST_OFFSETS
from anabranch.client.settings import Settings
from anabranch.records.builder import build_batch
from anabranch.records.record import Record
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.fake_brokers import FakeBrokers

B1, B2 = Address("b1", 9092), Address("b2", 9092)
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
PER_BATCH = 10


class Logs:
    """Two partitions with batches of ten records each."""

    def __init__(self) -> None:
        self.brokers = FakeBrokers({1: B1, 2: B2})
        self.brokers.topics = {"orders": [(1, 1), (2, 1)]}
        self.brokers.answers[FETCH] = self._fetch
        self.brokers.answers[LIST_OFFSETS] = self._list
        self.starts = {0: 0, 1: 0}
        self.ends = {0: 50, 1: 30}
        self.moves: dict[int, tuple[int, int]] = {}
        """What becomes of a partition's leader and epoch when it is next fetched."""

    def _fetch(self, address: Address, request: Any) -> Any:
        (topic,) = request.topics
        parts = [self._fetched(address, one) for one in topic.partitions]
        return {"error_code": 0, "session_id": 0, "responses": [{"topic": topic.topic, "partitions": parts}]}

    def _fetched(self, address: Address, asked: Any) -> dict[str, Any]:
        index, offset, records, code = asked.partition, asked.fetch_offset, b"", ErrorCode.none
        if index in self.moves:
            self.brokers.topics["orders"][index] = self.moves.pop(index)
        if self.brokers.brokers[self.brokers.topics["orders"][index][0]] != address:
            code = ErrorCode.not_leader_or_follower
        elif not self.starts[index] <= offset <= self.ends[index]:
            code = ErrorCode.offset_out_of_range
        elif offset < self.ends[index]:
            base = offset // PER_BATCH * PER_BATCH
            made = [Record(at, at, b"%d" % index, b"%d" % at) for at in range(base, base + PER_BATCH)]
            records = bytes(build_batch(made))
        return {
            "partition_index": index,
            "error_code": code,
            "high_watermark": self.ends[index],
            "last_stable_offset": self.ends[index],
            "log_start_offset": self.starts[index],
            "aborted_transactions": [],
            "preferred_read_replica": -1,
            "records": records,
        }

    def _list(self, address: Address, request: Any) -> Any:
        (topic,) = request.topics
        parts = [
            {
                "partition_index": one.partition_index,
                "error_code": 0,
                "timestamp": -1,
                "offset": (self.starts if one.timestamp == -2 else self.ends)[one.partition_index],
                "leader_epoch": 0,
            }
            for one in topic.partitions
        ]
        return {"topics": [{"name": topic.name, "partitions": parts}]}


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def cluster(logs: Logs) -> Iterator[Cluster]:
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    with Cluster(
        Settings("b1:9092", timeout_s=5), logs.brokers.dial, lambda: now_s[0], sleep, Random(1)
    ) as made:
        yield made


def read(
    cluster: Cluster,
    positions: dict[TopicPartition, int],
    ends: dict[TopicPartition, int] | None,
    limit: int = 999,
) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {0: [], 1: []}
    fetcher = Fetcher(cluster, ConsumeSettings(), True, positions, ends)
    for record in chain.from_iterable(fetcher.batches(lambda: False)):
        assert record.value == b"%d" % record.offset
        found[record.partition].append(record.offset)
        if sum(map(len, found.values())) == limit:
            break
    return found


def test_every_partition_up_to_its_end(cluster: Cluster) -> None:
    assert read(cluster, {FIRST: 0, SECOND: 0}, {FIRST: 50, SECOND: 30}) == {
        0: list(range(50)),
        1: list(range(30)),
    }
    assert read(cluster, {FIRST: 7, SECOND: 30}, {FIRST: 23, SECOND: 30}) == {0: list(range(7, 23)), 1: []}


def test_more_is_waited_for_if_there_is_no_end(cluster: Cluster, logs: Logs) -> None:
    assert read(cluster, {FIRST: 45}, None, limit=5) == {0: list(range(45, 50)), 1: []}
    logs.ends[0] = 60
    assert read(cluster, {FIRST: 50}, None, limit=10) == {0: list(range(50, 60)), 1: []}


def test_a_leader_that_moves_shows_nothing_twice(cluster: Cluster, logs: Logs) -> None:
    fetcher = Fetcher(cluster, ConsumeSettings(), True, {FIRST: 0, SECOND: 0}, {FIRST: 50, SECOND: 30})
    found: dict[int, list[int]] = {0: [], 1: []}
    for record in chain.from_iterable(fetcher.batches(lambda: False)):
        found[record.partition].append(record.offset)
        if record.offset == 15:
            logs.moves = {0: (2, 2), 1: (1, 2)}
    assert found == {0: list(range(50)), 1: list(range(30))}


def test_offsets_that_are_not_there(cluster: Cluster, logs: Logs) -> None:
    logs.starts[0] = 20
    assert read(cluster, {FIRST: 5}, {FIRST: 50}) == {0: list(range(20, 50)), 1: []}
    assert read(cluster, {FIRST: 45}, None, limit=5)[0][0] == 45
    logs.ends[1] = 40
    assert read(cluster, {SECOND: 99, FIRST: 40}, None, limit=10)[1] == []


def test_a_log_that_ends_too_early(cluster: Cluster) -> None:
    with pytest.raises(Unavailable, match="orders-0 gives nothing from 50 on"):
        read(cluster, {FIRST: 40}, {FIRST: 60})


def test_a_topic_that_is_gone(cluster: Cluster, logs: Logs) -> None:
    logs.brokers.topics = {}
    with pytest.raises(UnknownTopic):
        read(cluster, {FIRST: 0}, {FIRST: 50})


def test_it_ends_when_it_is_told_to(cluster: Cluster) -> None:
    seen: list[int] = []
    fetcher = Fetcher(cluster, ConsumeSettings(), True, {FIRST: 0}, None)
    for records in fetcher.batches(lambda: len(seen) >= 3):
        seen.extend(record.offset for record in records)
    assert seen == list(range(10))
