"""A batch read: everything between two positions, as it stood when the query was planned.

Spark makes one in a process of its own for every action, pushes filters down, asks for `partitions` (the
only time that the cluster is asked for anything but records), and sends it to the executors, whose `read`
fetches one range each.

Spark pushes filters down to Python only where spark.sql.python.filterPushdown.enabled is set, and refuses a
reader that could take them where it is not.  So there are two, and `batch_reader` makes the one that fits.
"""

import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from anabranch.spark.cluster import EARLIEST, Cluster, TopicPartition
from anabranch.spark.fetching import DataLost, Range, read_range
from anabranch.spark.filters import Wanted, push
from anabranch.spark.options import Options
from anabranch.spark.planning import divided, ranges_between
from anabranch.spark.positions import ending, resolve, starting
from anabranch.spark.reading import fetching_of
from anabranch.spark.selection import selection_of


class OffsetRange(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Range) -> None:
        self.wanted = wanted


class BatchReader(DataSourceReader):
    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._selection = selection_of(options)
        self._start = starting(options, streaming=False)
        self._end = ending(options)
        self._how = fetching_of(options)
        self._least = options.whole("minPartitions")
        self._most_records = options.whole("maxRecordsPerPartition")
        self._schema = schema
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        with Cluster(self._how.settings) as cluster:
            ranges = self._ranges(cluster)
        parts = divided(ranges, self._least, self._most_records)
        # Spark makes a task of its own for an empty list, with a partition that has nothing in it.
        return [OffsetRange(one) for one in parts]

    def _ranges(self, cluster: Cluster) -> list[Range]:
        there = self._selection.partitions(cluster)
        committed = self._how.committed
        # Positions are checked on all partitions, so that a filter does not hide what is wrong with them.
        start = resolve(self._start, there, cluster, committed=committed)
        end = resolve(self._end, there, cluster, committed=committed)
        chosen = [one for one in there if self._wanted.allows(one)]
        start = self._after_losses({one: start[one] for one in chosen}, cluster)
        if self._wanted.since_ms is not None:
            later = cluster.offsets_at(dict.fromkeys(chosen, self._wanted.since_ms))
            start = {one: max(start[one], end[one] if later[one] < 0 else later[one]) for one in chosen}
        return [
            part
            for whole in ranges_between(start, {one: end[one] for one in chosen})
            if (part := self._wanted.of(whole)).size
        ]

    def _after_losses(self, start: dict[TopicPartition, int], cluster: Cluster) -> dict[TopicPartition, int]:
        """`start`, or where each partition begins now if that is later and the query may go on."""
        earliest = cluster.offsets_at(dict.fromkeys(start, EARLIEST))
        gone = [one for one in start if start[one] < earliest[one]]
        if gone and self._how.fail_on_data_loss:
            one = gone[0]
            raise DataLost(
                f"{one} begins at offset {earliest[one]}, after {start[one]}: what lies between is gone. "
                'Set the option failOnDataLoss to "false" to go on with what is there.'
            )
        return {one: max(start[one], earliest[one]) for one in start}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OffsetRange):
            yield from read_range(partition.wanted, self._how, self._schema)


class FilteringReader(BatchReader):
    """One that takes filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted, left = push(filters)
        return left


_PUSHES_DOWN = "pyspark.sql.worker.data_source_pushdown_filters"


def batch_reader(options: Options, schema: pa.Schema) -> BatchReader:
    """The reader for the process of Spark's that we are in: only one kind of them hands filters over."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    pushes = _PUSHES_DOWN in sys.modules or (program is not None and program.name == _PUSHES_DOWN)
    return (FilteringReader if pushes else BatchReader)(options, schema)
