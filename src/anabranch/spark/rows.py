"""A DataFrame's rows as records to be: which columns count, what they must be, where each row goes.

    value        string or binary, needed
    key          string or binary
    topic        string; needed unless the option `topic` is given, which wins
    partition    int; where it is null or missing, the key decides (see `partitioner`)
    timestamp    timestamp; the time of writing where it is null or missing
    headers      array of (key, value), written if the option includeHeaders is not false

Other columns are an error rather than lost: a sink that drops what it does not know hides mistakes.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.base.errors import Invalid
from anabranch.spark.cluster import Cluster, TopicPartition
from anabranch.spark.encode import Rows, as_binary, encode_headers, no_headers, row_sizes
from anabranch.spark.partitioner import Partitioner
from anabranch.spark.varints import Ints

_TEXT = (StringType, BinaryType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, TimestampNTZType),
    "headers": (ArrayType,),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Invalid unless rows of `schema` can be written."""
    for field in schema:
        if field.name not in _TYPES:
            raise Invalid(f"a topic has no column {field.name} to write; there are {', '.join(_TYPES)}")
        if not isinstance(field.dataType, _TYPES[field.name]):
            wanted = " or ".join(kind.typeName() for kind in _TYPES[field.name])
            raise Invalid(f"the column {field.name} is {field.dataType.simpleString()}, not {wanted}")
        if isinstance(field.dataType, ArrayType):
            _check_headers(field.dataType)
    names = schema.fieldNames()
    if "value" not in names:
        raise Invalid("the column value is needed")
    if topic is None and "topic" not in names:
        raise Invalid("a topic is needed: the option topic, or a column topic")


def _check_headers(kind: ArrayType) -> None:
    pair = kind.elementType
    fits = isinstance(pair, StructType) and [type(one.dataType) for one in pair] == [StringType, BinaryType]
    if not fits or pair.fieldNames() != ["key", "value"]:  # type: ignore[attr-defined]
        raise Invalid(
            f"the column headers is {kind.simpleString()}, not array<struct<key:string,value:binary>>"
        )


class Destined(NamedTuple):
    partition: TopicPartition
    rows: Rows


class Sorter:
    """Sends rows to their partitions."""

    def __init__(self, cluster: Cluster, topic: str | None, headers: bool, partitioner: Partitioner) -> None:
        self._cluster = cluster
        self._topic = topic
        self._headers = headers
        self._partitioner = partitioner
        self._counts: dict[str, int] = {}

    def sort(self, batch: pa.Table) -> Iterator[Destined]:
        """The rows of `batch`, partition by partition, each in order."""
        for topic, part in self._by_topic(batch):
            rows = self._rows(part)
            partitions = self._partitions(topic, part, rows)
            order = np.argsort(partitions, kind="stable")
            firsts = np.flatnonzero(np.diff(partitions[order], prepend=-1))
            for chosen in np.split(order, firsts[1:]):
                yield Destined(TopicPartition(topic, int(partitions[chosen[0]])), rows.take(chosen))

    def _by_topic(self, batch: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if not batch.num_rows:
            return
        if self._topic is not None:
            yield self._topic, batch
            return
        column = _whole(batch["topic"])
        if column.null_count:
            raise Invalid("a row has no topic: its column topic is null")
        for topic in pc.unique(column).to_pylist():
            yield topic, batch.filter(pc.equal(column, topic))

    def _rows(self, part: pa.Table) -> Rows:
        count = part.num_rows
        keys = as_binary(_whole(part["key"])) if "key" in part.column_names else pa.nulls(count, pa.binary())
        headers = no_headers(count)
        if self._headers and "headers" in part.column_names:
            headers = encode_headers(_whole(part["headers"]))
        now_ms = time.time_ns() // 1_000_000
        times: Ints = np.full(count, now_ms, np.int64)
        if "timestamp" in part.column_names:
            micros = _whole(part["timestamp"]).view(pa.int64())
            times = np.asarray(pc.fill_null(micros, now_ms * 1000)).astype(np.int64) // 1000
        return Rows(keys, as_binary(_whole(part["value"])), times, headers)

    def _partitions(self, topic: str, part: pa.Table, rows: Rows) -> Ints:
        count = self._count(topic)
        given = _whole(part["partition"]) if "partition" in part.column_names else None
        if given is not None and not given.null_count:
            return _checked(np.asarray(given).astype(np.int64), topic, count)
        sizes = row_sizes(rows.keys, rows.values, rows.headers)
        chosen = self._partitioner.choose(rows.keys, sizes, count)
        if given is None:
            return chosen
        asked = np.asarray(pc.fill_null(given, 0)).astype(np.int64)
        return np.where(np.asarray(given.is_null()), chosen, _checked(asked, topic, count))

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(self._cluster.partitions([topic], create=True))
        return self._counts[topic]


def _checked(partitions: Ints, topic: str, count: int) -> Ints:
    if ((partitions < 0) | (partitions >= count)).any():
        wrong = int(partitions[(partitions < 0) | (partitions >= count)][0])
        raise Invalid(f"a row is for partition {wrong} of {topic!r}, which has {count}")
    return partitions


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
