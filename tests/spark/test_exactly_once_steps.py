"""An exactly-once write, step by step, with a crash between any two: what Spark does next is done by hand.

A micro-batch is three tasks and the driver's commit.  Whatever part of that was done before the crash, the
micro-batch is then run again whole, and every row is there once.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from anabranch.base.errors import Fenced, Invalid
from anabranch.client.cluster import LATEST, Cluster
from anabranch.client.group_offsets import Committed
from anabranch.client.settings import Settings
from anabranch.spark.options import STREAM_WRITE, Options, write_options
from anabranch.spark.stream_writer import StreamWriter, StreamWritten, complaint_of
from tests.spark.conftest import Topics

TASKS = 3
SCHEMA = StructType([StructField("value", StringType())])


class Query:
    """What Spark does for a query, in this process."""

    def __init__(self, topics: Topics, topic: str) -> None:
        given = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
        self._writer = StreamWriter(write_options(Options(given, STREAM_WRITE, "")), SCHEMA)
        self._id = str(uuid.uuid4())

    def write(
        self, batch: int, task: int, tasks: int = TASKS, rows: Iterator[pa.RecordBatch] | None = None
    ) -> StreamWritten:
        """The rows of one task: those of the micro-batch's ten whose turn it is."""
        properties = {"sql.streaming.queryId": self._id, "streaming.sql.batchId": str(batch)}
        context: Any = TaskContext(partitionId=task, localProperties=properties)
        TaskContext._setTaskContext(context)
        values = [f"{batch}-{number}" for number in range(task, 10, tasks)]
        written = self._writer.write(rows or iter([pa.record_batch([pa.array(values)], names=["value"])]))
        assert isinstance(written, StreamWritten)
        return written

    def write_all(self, batch: int, tasks: int = TASKS) -> list[Any]:
        return [self.write(batch, task, tasks) for task in range(tasks)]

    def commit(self, batch: int, messages: list[Any]) -> None:
        self._writer.commit(messages, batch)

    def abort(self, batch: int, messages: list[Any]) -> None:
        self._writer.abort(messages, batch)

    def run(self, batch: int) -> None:
        self.commit(batch, self.write_all(batch))


@pytest.fixture(autouse=True)
def no_context() -> Iterator[None]:
    yield
    TaskContext._setTaskContext(None)


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create(partitions=2)


@pytest.fixture
def query(topics: Topics, topic: str) -> Query:
    made = Query(topics, topic)
    made.run(0)
    return made


def expected(batches: int) -> list[bytes]:
    return sorted(b"%d-%d" % (batch, number) for batch in range(batches) for number in range(10))


def test_nothing_is_seen_before_the_commit(query: Query, topics: Topics, topic: str) -> None:
    messages = query.write_all(1)
    assert sorted(topics.values(topic)) == expected(1)
    query.commit(1, messages)
    assert sorted(topics.values(topic)) == expected(2)


@pytest.mark.parametrize("written", range(TASKS + 1))
def test_a_crash_after_some_tasks(query: Query, topics: Topics, topic: str, written: int) -> None:
    for task in range(written):
        query.write(1, task)
    query.run(1)
    query.run(2)
    assert sorted(topics.values(topic)) == expected(3)


@pytest.mark.parametrize("committed", range(TASKS + 1))
def test_a_crash_after_some_commits(query: Query, topics: Topics, topic: str, committed: int) -> None:
    messages = query.write_all(1)
    half = [*messages[:committed], *(StreamWritten(None, None, 0, one.query) for one in messages[committed:])]
    query.commit(1, half)
    query.run(1)
    query.run(2)
    assert sorted(topics.values(topic)) == expected(3)


def test_a_task_that_is_tried_again(query: Query, topics: Topics, topic: str) -> None:
    query.write(1, 1)
    query.write(1, 1)
    query.run(1)
    assert sorted(topics.values(topic)) == expected(2)


def test_a_task_that_was_replaced_cannot_be_committed(query: Query, topics: Topics, topic: str) -> None:
    old = query.write_all(1)
    new = query.write_all(1)
    with pytest.raises(Fenced):
        query.commit(1, old)
    query.commit(1, new)
    assert sorted(topics.values(topic)) == expected(2)


def test_a_micro_batch_that_failed_leaves_nothing(query: Query, topics: Topics, topic: str) -> None:
    query.abort(1, [query.write(1, 0), None, query.write(1, 2)])
    assert sorted(topics.values(topic)) == expected(1)
    query.run(1)
    assert sorted(topics.values(topic)) == expected(2)


def test_half_a_commit_and_then_other_tasks(query: Query, topics: Topics, topic: str) -> None:
    messages = query.write_all(1)
    query.commit(1, [StreamWritten(None, None, 0, messages[0].query), *messages[1:]])
    with pytest.raises(Invalid, match="half committed by 3 tasks"):
        query.commit(1, query.write_all(1, tasks=2))
    others = [b"1-%d" % number for number in range(10) if number % TASKS]
    assert sorted(topics.values(topic)) == sorted(expected(1) + others)
    query.run(1)
    assert sorted(topics.values(topic)) == expected(2)


def test_half_a_commit_and_then_fewer_tasks_all_of_which_were_there(
    query: Query, topics: Topics, topic: str
) -> None:
    messages = query.write_all(1, tasks=4)
    query.commit(1, [*messages[:2], *(StreamWritten(None, None, 0, one.query) for one in messages[2:])])
    fewer = query.write_all(1, tasks=2)
    assert all(one.found_stored for one in fewer)
    with pytest.raises(Invalid, match="half committed by 4 tasks"):
        query.commit(1, fewer)
    query.commit(1, query.write_all(1, tasks=4))
    query.commit(1, query.write_all(1, tasks=4))
    query.run(2)
    assert sorted(topics.values(topic)) == expected(3)


def test_what_is_said_of_a_note() -> None:
    assert not complaint_of(None, 5, 2, any_stored=False)
    assert "the note is gone" in complaint_of(None, 5, 2, any_stored=True)
    assert not complaint_of(Committed(6, "2 tasks"), 5, 2, any_stored=True)
    assert not complaint_of(Committed(5, "3 tasks"), 5, 2, any_stored=False)
    assert "half committed by 3 tasks" in complaint_of(Committed(6, "3 tasks"), 5, 2, any_stored=True)


def is_open(topics: Topics, topic: str) -> bool:
    """Whether readers of committed records wait for a transaction."""
    with Cluster(Settings(topics.bootstrap)) as cluster:
        latest = dict.fromkeys(cluster.partitions([topic]), LATEST)
        return cluster.offsets_at(latest) != cluster.offsets_at(latest, committed=True)


def test_an_abort_ends_what_failed_tasks_left_open(query: Query, topics: Topics, topic: str) -> None:
    first, _ = query.write(1, 0), query.write(1, 1)
    assert is_open(topics, topic)
    query.abort(1, [first, None, None])
    assert not is_open(topics, topic)
    query.run(1)
    assert sorted(topics.values(topic)) == expected(2)


def test_a_task_that_fails_ends_its_transaction(query: Query, topics: Topics, topic: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(["x" * 500_000] * 20)], names=["value"])
        assert is_open(topics, topic)
        raise ValueError("the rows are not to be had")

    with pytest.raises(ValueError, match="not to be had"):
        query.write(1, 0, rows=failing())
    assert not is_open(topics, topic)
    query.run(1)
    assert sorted(topics.values(topic)) == expected(2)


def test_queries_do_not_know_each_other(query: Query, topics: Topics, topic: str) -> None:
    Query(topics, topic).run(0)
    assert sorted(topics.values(topic)) == sorted(2 * expected(1))
