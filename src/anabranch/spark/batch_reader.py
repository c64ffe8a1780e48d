"""A batch read: everything between two positions, as it stood when the query was planned.

Spark makes one in a process of its own for every action, pushes filters down, asks for `partitions` (the
only time that the cluster is asked for anything but records), and sends it to the executors, whose `read`
fetches one range each.

Spark pushes filters down to Python only where spark.sql.python.filterPushdown.enabled is set, and refuses a
reader that could take them where it is not.  So there are two, and `batch_reader` makes the one that fits.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from anabranch.base.errors import Unavailable
from anabranch.client.cluster import EARLIEST, Cluster, Offsets
from anabranch.client.destinations import TopicPartition
from anabranch.spark.column_types import in_table
from anabranch.spark.filters import Wanted, push
from anabranch.spark.history import Files, History, Parts, open_history
from anabranch.spark.options import Options
from anabranch.spark.planning import divided, ranges_between
from anabranch.spark.positions import KnowsOffsets, ending, resolve, starting
from anabranch.spark.ranges import DataLost, Range
from anabranch.spark.reading import Layout, OffsetRanges, fetching_of
from anabranch.spark.selection import selection_of
from anabranch.spark.worker_process import Travels

_ADVICE = 'Set the option failOnDataLoss to "false" to go on with what is there.'


class TableFiles(InputPartition):
    """What one task reads of a table."""

    def __init__(self, wanted: Files) -> None:
        self.wanted = wanted


class Plan(NamedTuple):
    """What is to be read, as of one moment."""

    history: History
    ranges: list[Range]
    parts: Parts
    earliest: Offsets
    """Where the log begins, of partitions of which some of the ranges is in it."""

    @property
    def gone(self) -> list[Range]:
        """What begins before the log does."""
        return [one for one in self.parts.in_log if one.start < self.earliest[one.partition]]


class BatchReader(Travels, DataSourceReader):
    def __init__(self, options: Options, layout: Layout) -> None:
        self._selection = selection_of(options)
        self._start = starting(options, streaming=False)
        self._end = ending(options)
        self._how = fetching_of(options, layout)
        self._least = options.whole("minPartitions")
        self._most_records = options.whole("maxRecordsPerPartition")
        self._use_table = options.flag("useTable", True)
        self._schema = layout.schema
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        plan = self.plan()
        times = (self._wanted.since_ms, self._wanted.until_ms)
        in_files = plan.history.tasks(plan.parts, times, self._least, self._most_records)
        parts = divided(plan.parts.in_log, self._least, self._most_records)
        # Spark makes a task of its own for an empty list, with a partition that has nothing in it.
        return [*(TableFiles(one) for one in in_files), *(OffsetRanges([one]) for one in parts)]

    def plan(self) -> Plan:
        """What there is to read now.  DataLost if the query must not go on with that."""
        with Cluster(self._how.settings) as cluster:
            plan = self._plan(cluster)
            earliest = plan.earliest
            self._check_losses(plan.gone, plan.parts.lost, earliest)
            in_log = [
                one._replace(start=max(one.start, earliest[one.partition])) for one in plan.parts.in_log
            ]
            return plan._replace(parts=plan.parts._replace(in_log=self._since(in_log, cluster)))

    def _plan(self, cluster: Cluster) -> Plan:
        there = self._selection.partitions(cluster)
        deadline = time.monotonic() + self._how.settings.timeout_s
        while True:
            history = open_history(cluster, {one.topic for one in there} if self._use_table else ())
            ranges = self._ranges(there, history)
            parts = history.parts(ranges)
            earliest = cluster.offsets_at(dict.fromkeys({one.partition for one in parts.in_log}, EARLIEST))
            plan = Plan(history, ranges, parts, earliest)
            # The log may have moved on just after a table did.
            if not plan.gone or not history.is_stale():
                return plan
            if time.monotonic() > deadline:
                raise Unavailable("the topics' tables change faster than they can be looked at")

    def _ranges(self, there: list[TopicPartition], known: KnowsOffsets) -> list[Range]:
        committed = self._how.committed
        # Positions are checked on all partitions, so that a filter does not hide what is wrong with them.
        start = resolve(self._start, there, known, committed=committed)
        end = resolve(self._end, there, known, committed=committed)
        chosen = [one for one in there if self._wanted.allows(one)]
        whole = ranges_between({one: start[one] for one in chosen}, {one: end[one] for one in chosen})
        return [part for one in whole if (part := self._wanted.of(one)).size]

    def _since(self, ranges: list[Range], cluster: Cluster) -> list[Range]:
        """`ranges` from where the records that a filter asks for may begin."""
        if self._wanted.since_ms is not None and self._wanted.since_ms > 0:
            later = cluster.offsets_at(
                dict.fromkeys({one.partition for one in ranges}, self._wanted.since_ms)
            )
            ranges = [
                one._replace(start=one.end if (at := later[one.partition]) < 0 else max(one.start, at))
                for one in ranges
            ]
        return [one for one in ranges if one.size]

    def _check_losses(self, gone: list[Range], lost: list[Range], earliest: Offsets) -> None:
        """DataLost if the query must not go on without them."""
        if not self._how.fail_on_data_loss:
            return
        for one in gone:
            raise DataLost(
                f"{one.partition} begins at offset {earliest[one.partition]}, after {one.start}: what lies "
                f"between is gone. {_ADVICE}"
            )
        for one in lost:
            raise DataLost(
                f"offsets {one.start} to {one.end - 1} of {one.partition} were gone from the log before they "
                f"came into its table. {_ADVICE}"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OffsetRanges):
            from anabranch.spark.fetching import read_ranges  # as little as possible for who only plans

            yield from read_ranges(partition.wanted, self._how, self._schema)
        elif isinstance(partition, TableFiles):
            yield from self._read_files(partition.wanted)

    def _read_files(self, files: Files) -> Iterator[pa.RecordBatch]:
        typed = self._how.typed
        if typed is None:
            return files.read(self._schema)
        from anabranch.spark.columns import of_table

        needed = in_table(self._schema.names)
        return (of_table(rows, self._schema, typed) for rows in files.read(needed) if rows.num_rows)


class FilteringReader(BatchReader):
    """One that takes filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted, left = push(filters)
        return left


_PUSHES_DOWN = "pyspark.sql.worker.data_source_pushdown_filters"


def batch_reader(options: Options, layout: Layout) -> BatchReader:
    """The reader for the process of Spark's that we are in: only one kind of them hands filters over."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    pushes = _PUSHES_DOWN in sys.modules or (program is not None and program.name == _PUSHES_DOWN)
    if options.flag("readCompacted", False):
        from anabranch.spark.compacted_reader import CompactedReader, FilteringCompactedReader

        return (FilteringCompactedReader if pushes else CompactedReader)(options, layout)
    return (FilteringReader if pushes else BatchReader)(options, layout)
