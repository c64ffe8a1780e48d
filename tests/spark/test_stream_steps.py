"""A streaming read, step by step: what Spark asks of the reader is asked by hand, without a JVM."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from anabranch.spark.options import STREAM_READ, Options
from anabranch.spark.ranges import DataLost
from anabranch.spark.reading import chosen_columns, spark_schema
from anabranch.spark.stream_reader import StreamReader
from tests.spark.conftest import Topics


def reader_of(topics: Topics, name: str, **more: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name, **more}
    options = Options(given, STREAM_READ, "a streaming read")
    return StreamReader(options, chosen_columns(spark_schema(options), options))


def all_from(reader: StreamReader, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """How far an availableNow query goes that is started again."""
    reader.prepareForTriggerAvailableNow()
    try:
        return reader.latestOffset(checkpoint, ReadAllAvailable())
    finally:
        reader.stop()


def test_all_there_is_and_a_log_that_is_shorter_than_the_checkpoint(topics: Topics) -> None:
    name = topics.create(partitions=1)
    topics.fill(name, range(10), partitions=1)
    assert all_from(reader_of(topics, name), {name: {"0": 4}}) == {name: {"0": 10}}
    beyond = {name: {"0": 500}}
    with pytest.raises(DataLost, match="ends at offset 10, before 500"):
        all_from(reader_of(topics, name), beyond)
    assert all_from(reader_of(topics, name, failOnDataLoss="false"), beyond) == beyond


def test_all_there_is_and_a_partition_that_is_gone(topics: Topics) -> None:
    name = topics.create(partitions=1)
    checkpoint = {name: {"0": 0, "1": 7}}
    with pytest.raises(DataLost, match=f"{name}-1 is not there any more"):
        all_from(reader_of(topics, name), checkpoint)
    assert all_from(reader_of(topics, name, failOnDataLoss="false"), checkpoint) == checkpoint


def test_what_comes_between_the_end_and_the_beginning_is_no_loss(topics: Topics) -> None:
    name = topics.create(partitions=1)
    reader = reader_of(topics, name)
    reader.prepareForTriggerAvailableNow()
    topics.fill(name, range(10), partitions=1)
    begin = reader.initialOffset()  # the latest
    assert begin == {name: {"0": 10}}
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin
    reader.stop()
