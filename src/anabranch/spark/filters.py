"""Filters on partition, offset, time and topic, given to the brokers' indexes instead of to Spark.

A query that asks for `partition = 3 and offset >= 1000` reads that and nothing else; one that asks for an
hour of time reads from the first offset that may be of that hour.  Partition, topic and offset are exact,
so Spark need not look again.  A time only says where to begin: records may be out of order, so Spark looks
again, and records later than the end of the hour are read for it to drop.

What is not understood is left to Spark.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

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
)

from anabranch.client.destinations import TopicPartition
from anabranch.spark.ranges import Range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_NEVER_NULL = {"topic", "partition", "offset", "timestamp", "timestampType"}


class Wanted(NamedTuple):
    """What is left to read when filters are pushed down."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    least_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None
    """No record before it, by its timestamp, is wanted."""
    until_ms: int | None = None
    """Nor one after it.  Files of tables know; a log has no index that says where such records end."""

    def allows(self, one: TopicPartition) -> bool:
        if self.topics is not None and one.topic not in self.topics:
            return False
        return self.partitions is None or one.partition in self.partitions

    def of(self, whole: Range) -> Range:
        """The part of `whole` that is wanted."""
        end = whole.end if self.end_offset is None else min(whole.end, self.end_offset)
        return whole._replace(start=max(whole.start, self.least_offset), end=end)


def push(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What `filters` leave to read, and those that Spark has to apply all the same."""
    wanted = Wanted()
    left: list[Filter] = []
    for one in filters:
        narrowed, exact = _narrow(wanted, one)
        if narrowed is not None:
            wanted = narrowed
        if narrowed is None or not exact:
            left.append(one)
    return wanted, left


def _narrow(wanted: Wanted, one: Filter) -> tuple[Wanted | None, bool]:
    """`wanted` under one more filter, None if the filter means nothing here; and whether that is exact."""
    column = getattr(one, "attribute", ("",))
    if len(column) != 1:
        return None, False
    name = column[0]
    if isinstance(one, IsNotNull):
        return (wanted, True) if name in _NEVER_NULL else (None, False)
    values = _values(one)
    if name == "topic" and values is not None:
        return wanted._replace(topics=_both(wanted.topics, values)), True
    if name == "partition" and values is not None:
        return wanted._replace(partitions=_both(wanted.partitions, values)), True
    if name == "offset":
        return _narrow_offsets(wanted, one), True
    if name == "timestamp":
        return _narrow_time(wanted, one), False
    return None, False


def _values(one: Filter) -> list[Any] | None:
    """The values that a filter allows, if it lists them."""
    if isinstance(one, In):
        return [value for value in one.value if value is not None]
    if isinstance(one, EqualTo | EqualNullSafe):
        return [one.value] if one.value is not None else []
    return None


def _both(before: "frozenset[Any] | None", values: list[Any]) -> "frozenset[Any]":
    return frozenset(values) if before is None else before & frozenset(values)


def _narrow_offsets(wanted: Wanted, one: Filter) -> Wanted | None:
    least, end = wanted.least_offset, wanted.end_offset
    value = getattr(one, "value", None)
    if not isinstance(value, int):
        return None
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return wanted._replace(least_offset=max(least, value + isinstance(one, GreaterThan)))
    if isinstance(one, LessThan | LessThanOrEqual):
        bound = value + isinstance(one, LessThanOrEqual)
        return wanted._replace(end_offset=bound if end is None else min(end, bound))
    if isinstance(one, EqualTo | EqualNullSafe):
        bound = value + 1 if end is None else min(end, value + 1)
        return wanted._replace(least_offset=max(least, value), end_offset=bound)
    return None


def _narrow_time(wanted: Wanted, one: Filter) -> Wanted | None:
    value = getattr(one, "value", None)
    if not isinstance(value, datetime):
        return None
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    at_ms = (aware - _EPOCH) // _MS
    since = at_ms if wanted.since_ms is None else max(at_ms, wanted.since_ms)
    until = at_ms if wanted.until_ms is None else min(at_ms, wanted.until_ms)
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return wanted._replace(since_ms=since)
    if isinstance(one, LessThan | LessThanOrEqual):
        return wanted._replace(until_ms=until)
    if isinstance(one, EqualTo | EqualNullSafe):
        return wanted._replace(since_ms=since, until_ms=until)
    return None
