"""Streaming reads and writes through Spark: micro-batches, checkpoints, limits, progress, exactly once."""

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.client.cluster import Cluster
from anabranch.client.group_offsets import committed_offsets
from anabranch.client.settings import Settings
from tests.spark.conftest import Topics

Reader = Callable[..., DataFrame]
WAIT_S = 300


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str) -> Reader:
    def read(topic: str, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        given |= {name.replace("__", "."): value for name, value in options.items()}
        return spark.readStream.format("anabranch").options(**given).load()

    return read


def start(frame: DataFrame, checkpoint: Path, **sink: str) -> StreamingQuery:
    """To the topic that `sink` names: what there is, and no more."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return writer.format("anabranch").options(**sink).start()


def run(query: StreamingQuery) -> list[dict[str, Any]]:
    """The progress of every micro-batch that had rows."""
    assert query.awaitTermination(WAIT_S), "still running"
    return [json.loads(one.json) for one in query.recentProgress if one.numInputRows]


def test_topic_to_topic_exactly_once(stream: Reader, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(), topics.create()
    topics.fill(source, range(1000))
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": sink}
    group = uuid.uuid4().hex

    def again() -> list[dict[str, Any]]:
        frame = stream(
            source,
            maxOffsetsPerTrigger="300",
            commitOffsets="true",
            kafka__group__id=group,
            minPartitions="4",
        )
        return run(start(frame.select("key", "value"), tmp_path, **options))

    progress = again()
    assert len(progress) >= 4
    assert max(one["numInputRows"] for one in progress) <= 300
    assert sum(one["sink"]["numOutputRows"] for one in progress) == 1000
    last = progress[-1]["sources"][0]
    assert last["endOffset"] == last["latestOffset"] == {source: {"0": 334, "1": 333, "2": 333}}
    with Cluster(Settings(topics.bootstrap)) as cluster:
        assert {one.partition: at.offset for one, at in committed_offsets(cluster, group).items()} == {
            0: 334, 1: 333, 2: 333,
        }  # fmt: skip
    # A driver that died after the sink's commit and before Spark's own.
    newest = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    topics.fill(source, range(1000, 1100))
    topics.grow(source, 4)
    topics.fill(source, range(3, 40, 4), partitions=4)
    assert sum(one["numInputRows"] for one in again()) > 110
    numbers = sorted(int(value) for value in topics.values(sink))
    assert numbers == sorted([*range(1100), *range(3, 40, 4)])


def rows_of(query: StreamingQuery) -> list[int]:
    """How many rows each batch had that had any."""
    return [one.numInputRows for one in query.recentProgress if one.numInputRows]


def test_limits_of_a_micro_batch(stream: Reader, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(), topics.create()
    topics.fill(source, range(30))
    frame = stream(source, minOffsetsPerTrigger="100", maxTriggerDelay="1h", maxOffsetsPerTrigger="150")
    writer = frame.select("value").writeStream.format("anabranch").option("checkpointLocation", str(tmp_path))
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap).option("topic", sink)
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        time.sleep(3)
        assert topics.values(sink) == []
        topics.fill(source, range(30, 200))
        deadline = time.monotonic() + WAIT_S
        while len(topics.values(sink)) < 140 and time.monotonic() < deadline:
            time.sleep(0.2)
        # Spark tells of a batch a little after it is there.
        while not rows_of(query) and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        query.stop()
    batches = rows_of(query)
    assert len(batches) == 1
    assert 140 <= batches[0] <= 150


def test_losses(stream: Reader, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(), topics.create()
    topics.fill(source, range(300))
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": sink}
    run(start(stream(source).select("value"), tmp_path, **options))
    topics.fill(source, range(300, 600))
    topics.trim(source, 0, 150)
    query = start(stream(source).select("value"), tmp_path, **options)
    with pytest.raises(StreamingQueryException, match=r"offsets 100 to 149 of .* are gone"):
        query.awaitTermination(WAIT_S)
    assert len(topics.values(sink)) == 300
    run(start(stream(source, failOnDataLoss="false").select("value"), tmp_path, **options))
    assert len(topics.values(sink)) == 550


def test_options_that_make_no_sense_for_a_stream(stream: Reader, topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=1)
    wrong = {
        "endingOffsets has no meaning": {"endingOffsets": "latest"},
        "is more than maxOffsetsPerTrigger": {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
        "commitOffsets needs the name of a group": {"commitOffsets": "true"},
    }
    for said, options in wrong.items():
        query = stream(name, **options).select("value").writeStream.format("noop").trigger(availableNow=True)
        with pytest.raises(StreamingQueryException, match=said):
            query.start().awaitTermination(WAIT_S)
