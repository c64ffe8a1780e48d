"""The client that reads and writes for Spark, on a real broker, without Spark."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer as KafkaProducer

from anabranch.base.errors import Fenced, Unavailable, UnknownTopic
from anabranch.client.cluster import EARLIEST, LATEST, Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.group_offsets import commit_offsets, committed_offsets
from anabranch.client.producer import Producer
from anabranch.client.settings import Settings
from anabranch.client.transactions import end_transaction
from anabranch.spark import decode
from anabranch.spark.column_types import arrow_schema
from anabranch.spark.encode import Rows, encode, no_headers
from anabranch.spark.fetching import read_ranges
from anabranch.spark.ranges import DataLost, Fetching, Range
from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess

VALUE = arrow_schema(["value"])


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(Settings(bootstrap, timeout_s=60)) as cluster:
        yield cluster


def values_in(cluster_settings: Settings, wanted: Range, **how: object) -> list[int]:
    fetching = Fetching(cluster_settings, **how)  # type: ignore[arg-type]
    found = [batch["value"].to_pylist() for batch in read_ranges([wanted], fetching, VALUE)]
    return [int(value) for batch in found for value in batch]


def send(producer: Producer, partition: TopicPartition, values: list[int]) -> None:
    count = len(values)
    column = pa.array([b"%d" % value for value in values], pa.binary())
    made = Rows(pa.nulls(count, pa.binary()), column, np.full(count, 1_700_000_000_000), no_headers(count))
    for batch in encode(made, producer.writer, producer.sequence(partition, count), 2000, 0):
        producer.send(partition, batch)


def test_topics_partitions_and_offsets(cluster: Cluster, topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, range(0, 20, 2), partitions=2)
    assert name in cluster.topics()
    first, second = cluster.partitions([name])
    assert cluster.offsets_at({first: LATEST, second: LATEST}) == {first: 10, second: 0}
    assert cluster.offsets_at({first: EARLIEST}) == {first: 0}
    assert cluster.offsets_at({first: 1000, second: 1000}) == {first: 0, second: -1}
    with pytest.raises(UnknownTopic):
        cluster.partitions(["nowhere"])
    with pytest.raises(UnknownTopic, match="no partition 9"):
        cluster.offsets_at({TopicPartition(name, 9): LATEST})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_any_range_of_what_a_client_wrote(bootstrap: str, topics: Topics, codec: str) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(3000), partitions=1, **{"compression.type": codec, "batch.num.messages": 100})
    settings = Settings(bootstrap)
    for start, end in ((0, 3000), (0, 1), (2999, 3000), (150, 1777)):
        wanted = Range(TopicPartition(name, 0), start, end)
        assert values_in(settings, wanted, fetch_bytes=5000) == list(range(start, end))


def test_a_fetch_that_becomes_large_is_read_in_parts(
    bootstrap: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(2000), partitions=1, **{"compression.type": "zstd", "batch.num.messages": 100})
    monkeypatch.setattr(decode, "_PART_BYTES", 3000)
    wanted = Range(TopicPartition(name, 0), 150, 1950)
    batches = list(read_ranges([wanted], Fetching(Settings(bootstrap)), arrow_schema(["offset"])))
    assert len(batches) > 5
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(150, 1950))


def test_what_was_aborted_is_not_read_if_only_the_committed_is_wanted(bootstrap: str, topics: Topics) -> None:
    name = topics.create(partitions=1)
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(20)
    for number in range(20):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number)
        producer.flush(20)
        (producer.abort_transaction if number % 3 else producer.commit_transaction)(20)
    wanted = Range(TopicPartition(name, 0), 0, 40)
    assert values_in(Settings(bootstrap), wanted, committed=True) == list(range(0, 20, 3))
    assert values_in(Settings(bootstrap), wanted) == list(range(20))


def test_offsets_that_are_gone(bootstrap: str, topics: Topics) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(100), partitions=1)
    topics.trim(name, 0, 40)
    wanted = Range(TopicPartition(name, 0), 10, 100)
    with pytest.raises(DataLost, match=r"offsets 10 to 39 of .* are gone; the first that is there is 40"):
        values_in(Settings(bootstrap), wanted)
    assert values_in(Settings(bootstrap), wanted, fail_on_data_loss=False) == list(range(40, 100))


def test_a_log_that_ends_too_early(bootstrap: str, topics: Topics) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(10), partitions=1)
    soon = Settings(bootstrap, timeout_s=2)
    for start in (5, 10, 50):
        wanted = Range(TopicPartition(name, 0), start, 60)
        with pytest.raises(DataLost):
            values_in(soon, wanted)
        assert values_in(soon, wanted, fail_on_data_loss=False) == list(range(start, 10))


def test_a_topic_that_was_deleted(bootstrap: str, topics: Topics) -> None:
    name = topics.create(partitions=1)
    topics.delete(name)
    wanted = Range(TopicPartition(name, 0), 0, 10)
    with pytest.raises(DataLost, match="not there any more"):
        values_in(Settings(bootstrap, timeout_s=5), wanted)
    assert values_in(Settings(bootstrap, timeout_s=5), wanted, fail_on_data_loss=False) == []


def test_transactions_are_ended_by_another_process(cluster: Cluster, bootstrap: str, topics: Topics) -> None:
    name = topics.create(partitions=2)
    partitions = cluster.partitions([name])
    transactional_id = uuid.uuid4().hex
    for commit in (True, False, True):
        with Cluster(Settings(bootstrap)) as theirs, Producer(theirs, -1, 10) as producer:
            producer.begin(transactional_id, 60_000)
            for partition in partitions:
                send(producer, partition, list(range(500)))
            producer.flush()
            producer.commit_offset(transactional_id, partitions[0], 7 if commit else 9, "so far")
            transaction = producer.transaction
        assert transaction is not None
        end_transaction(cluster, transaction, commit)
        end_transaction(cluster, transaction, commit)
    assert sorted(map(int, topics.values(name))) == sorted(4 * list(range(500)))
    assert committed_offsets(cluster, transactional_id) == {partitions[0]: (7, "so far")}


def test_a_producer_that_was_replaced_is_stopped(cluster: Cluster, bootstrap: str, topics: Topics) -> None:
    name = topics.create(partitions=1)
    (partition,) = cluster.partitions([name])
    transactional_id = uuid.uuid4().hex
    with (
        Producer(cluster, -1, 10) as old,
        Cluster(Settings(bootstrap)) as other,
        Producer(other, -1, 10) as new,
    ):
        old.begin(transactional_id, 60_000)
        send(old, partition, [1])
        old.flush()
        new.begin(transactional_id, 60_000)
        send(new, partition, [2])
        new.flush()
        assert new.transaction is not None
        end_transaction(other, new.transaction, True)
        send(old, partition, [3])
        with pytest.raises(Fenced):
            old.flush()
        assert old.transaction is not None
        with pytest.raises(Fenced):
            end_transaction(cluster, old.transaction, True)
    assert topics.values(name) == [b"2"]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_without_transactions(cluster: Cluster, topics: Topics, acks: int) -> None:
    name = topics.create(partitions=1)
    (partition,) = cluster.partitions([name])
    with Producer(cluster, acks, 10) as producer:
        if acks == -1:
            producer.identify()
        send(producer, partition, list(range(2000)))
        producer.flush()
        if acks == 0:  # nobody says when it is there
            cluster.persist(lambda: _at_least(cluster, partition, 2000))
    assert topics.values(name) == [b"%d" % number for number in range(2000)]


def _at_least(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    if cluster.offsets_at({partition: LATEST})[partition] < offset:
        raise Unavailable("not yet")


def test_groups(cluster: Cluster, topics: Topics) -> None:
    name = topics.create(partitions=2)
    first, second = cluster.partitions([name])
    group = uuid.uuid4().hex
    assert committed_offsets(cluster, group) == {}
    commit_offsets(cluster, group, {first: 3, second: 4})
    assert {one: found.offset for one, found in committed_offsets(cluster, group).items()} == {
        first: 3,
        second: 4,
    }


def test_a_broker_that_comes_back_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        topics = Topics(broker.bootstrap)
        name = topics.create(partitions=2)
        with Cluster(Settings(broker.bootstrap)) as cluster, Producer(cluster, -1, 20) as producer:
            producer.begin("phoenix", 60_000)
            partitions = cluster.partitions([name])
            for round_number in range(6):
                for partition in partitions:
                    send(producer, partition, list(range(round_number * 300, (round_number + 1) * 300)))
                if round_number in (1, 3):
                    broker.kill()
                    broker.start()
            producer.flush()
            assert producer.transaction is not None
            end_transaction(cluster, producer.transaction, True)
        for partition in partitions:
            wanted = Range(partition, 0, 1800)
            assert values_in(Settings(broker.bootstrap), wanted, committed=True) == list(range(1800))


def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        Cluster(Settings("127.0.0.1:1", timeout_s=0.1)).topics()
