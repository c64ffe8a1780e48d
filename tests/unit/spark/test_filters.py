"""Filters that brokers can answer are taken, exactly where they can; Spark keeps the others."""

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from anabranch.client.destinations import TopicPartition
from anabranch.spark.filters import push
from anabranch.spark.ranges import Range


def test_partitions_and_offsets_are_exact() -> None:
    filters: list[Filter] = [
        IsNotNull(("partition",)),
        In(("partition",), (1, 2, None)),
        EqualTo(("partition",), 2),
        GreaterThan(("offset",), 10),
        LessThanOrEqual(("offset",), 20),
    ]
    wanted, left = push(filters)
    assert not left
    assert wanted.allows(TopicPartition("t", 2))
    assert not wanted.allows(TopicPartition("t", 1))
    assert wanted.of(Range(TopicPartition("t", 2), 0, 100)) == (TopicPartition("t", 2), 11, 21)


def test_one_offset_and_one_topic() -> None:
    wanted, left = push([EqualTo(("offset",), 7), EqualNullSafe(("topic",), "t"), LessThan(("offset",), 50)])
    assert not left
    assert wanted.of(Range(TopicPartition("t", 0), 0, 100))[1:] == (7, 8)
    assert not wanted.allows(TopicPartition("u", 0))


def test_times_say_where_to_begin_and_are_checked_again() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    filters: list[Filter] = [GreaterThanOrEqual(("timestamp",), since), LessThan(("timestamp",), since)]
    wanted, left = push(filters)
    assert left == filters
    assert wanted.since_ms == wanted.until_ms == since.timestamp() * 1000


def test_what_is_not_understood_stays_with_spark() -> None:
    filters: list[Filter] = [
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        EqualTo(("headers", "key"), "x"),
        StringStartsWith(("topic",), "t"),
        GreaterThan(("partition",), 3),
    ]
    wanted, left = push(filters)
    assert left == filters
    assert wanted.allows(TopicPartition("t", 0))
