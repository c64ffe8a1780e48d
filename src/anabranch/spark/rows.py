"""Rows on their way to partitions: a DataFrame's columns as those of records, and where each row goes.

What the columns are stands in `row_columns`.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.base.errors import Invalid
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.spark.encode import Rows, as_binary, encode_headers, no_headers, row_sizes
from anabranch.spark.partitioner import Partitioner
from anabranch.spark.varints import Ints


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
