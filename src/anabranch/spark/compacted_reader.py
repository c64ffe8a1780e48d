"""A batch read of the last row of every key: `readCompacted`, as Pulsar calls it.

    offsets   0   1   2   3   4   5   6          rows: b at 3, c at 6
    keys      a   b   a   b   c   a   c
    values    1   2   3   4   5   -   6          a was deleted, by a record without value

Of every key of a partition, the last committed record before the end of the query; nothing of keys whose last
record deletes them, and nothing without a key.  That is exact, whatever compaction has done so far: Pulsar's
own compacted readers, and readers of a Kafka topic with cleanup.policy=compact, also see what the last
compaction has not come to yet.

A partition is read by one task, twice: its keys first, then the rows that count.  So memory grows with the
number of different keys, not with what is read.  If the broker has a compacted view of the partition
(`wire/kafka/fetch`), that is read in place of the log, as far as it goes: it is shorter, and has what
retention took from the log.

If the topic is kept as a table, its files are read for what they cover and the broker for the rest, as by
other batch reads; rows that compaction took from the log are there.

If a compaction takes, between the two, a row that counts (a later one, after the query's end, has replaced
it), the task fails and says so: it is tried again, and the key is then not there.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import Filter, InputPartition

from anabranch.base.errors import Invalid, Unavailable
from anabranch.client.cluster import EARLIEST, Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.spark.batch_reader import BatchReader
from anabranch.spark.column_types import in_table
from anabranch.spark.columns import DELETES, of_table
from anabranch.spark.fetching import among, read_ranges
from anabranch.spark.filters import push
from anabranch.spark.history import Files
from anabranch.spark.options import Options
from anabranch.spark.positions import KnowsOffsets
from anabranch.spark.ranges import Fetching, Range
from anabranch.spark.reading import Layout
from anabranch.spark.varints import Ints

_KEYS = pa.schema([("key", pa.binary()), ("offset", pa.int64()), (DELETES, pa.bool_())])
_KEYS_IN_FILES = pa.schema(
    [("key", pa.binary()), ("offset", pa.int64()), ("value", pa.binary()), ("producerName", pa.string())]
)
_TOGETHER_ROWS = 1 << 20


class PartitionRows(InputPartition):
    """What one task reads: all of a partition that is asked for, by who has it.  No offset is in two."""

    def __init__(self, partition: TopicPartition, in_log: list[Range], in_files: list[Files]) -> None:
        self.partition = partition
        self.in_log = in_log
        self.in_files = in_files


class CompactedReader(BatchReader):
    def __init__(self, options: Options, layout: Layout) -> None:
        super().__init__(options, layout)
        if options.text("kafka.isolation.level") == "read_uncommitted":
            raise Invalid("readCompacted reads what is committed: an aborted row would hide the one before")
        for name in ("minPartitions", "maxRecordsPerPartition"):
            if options.text(name) is not None:
                raise Invalid(f"{name} has no meaning with readCompacted: one task reads a partition")
        # What is gone from the log may be in the view.  A row that goes while we read is missed in the end.
        self._how = self._how._replace(committed=True, compacted=True, fail_on_data_loss=False)

    def partitions(self) -> list[InputPartition]:
        with Cluster(self._how.settings) as cluster:
            plan = self._plan(cluster)
        found: list[InputPartition] = []
        for one in plan.ranges:
            parts = plan.history.parts([one])
            in_files = plan.history.tasks(parts, (None, None), None, None)
            found.append(PartitionRows(one.partition, parts.in_log, in_files))
        return found

    def _ranges(self, there: list[TopicPartition], known: KnowsOffsets) -> list[Range]:
        """From the very beginning, where all is asked for: the view may have what the log has no more."""
        ranges = super()._ranges(there, known)
        earliest = known.offsets_at(dict.fromkeys((one.partition for one in ranges), EARLIEST))
        return [one._replace(start=0) if one.start <= earliest[one.partition] else one for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, PartitionRows):
            yield from compacted_rows(partition, self._how, self._schema)


class FilteringCompactedReader(CompactedReader):
    """One that takes filters from Spark: where to begin, but not where to end, or older rows would count."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        given = list(filters)
        self._wanted = push(given)[0]._replace(end_offset=None)
        return given


def compacted_rows(wanted: PartitionRows, how: Fetching, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The last row of every key of `wanted`."""
    # Whether an empty message deletes depends on who sent it.
    in_log = read_ranges(wanted.in_log, how._replace(described=True, typed=None), _KEYS)
    last = _last_of_keys(chain(_keys_in_files(wanted.in_files), in_log))
    if not len(last):
        return
    found = 0
    start, end = int(last[0]), int(last[-1]) + 1
    parts = [one._replace(start=max(start, one.start), end=min(end, one.end)) for one in wanted.in_log]
    in_log = read_ranges([one for one in parts if one.size], how._replace(only=last), schema)
    for rows in chain(_rows_in_files(wanted.in_files, last, how, schema), in_log):
        found += rows.num_rows
        yield rows
    if found < len(last):
        raise Unavailable(
            f"{wanted.partition} was compacted meanwhile: {len(last) - found} rows are gone; run it again"
        )


def _keys_in_files(in_files: Iterable[Files]) -> Iterator[pa.RecordBatch]:
    for files in in_files:
        for rows in files.read(_KEYS_IN_FILES):
            empty = pc.equal(pc.binary_length(rows.column("value")), 0)
            sent_by_pulsars = pc.and_(empty, rows.column("producerName").is_valid())
            gone = pc.or_(rows.column("value").is_null(), sent_by_pulsars.fill_null(False))
            yield pa.RecordBatch.from_arrays([rows.column("key"), rows.column("offset"), gone], schema=_KEYS)


def _rows_in_files(
    in_files: Iterable[Files], last: Ints, how: Fetching, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Those rows whose offsets are `last`."""
    typed = how.typed
    needed = in_table(schema.names)
    if typed is None and (needed := schema).get_field_index("offset") < 0:
        needed = schema.append(pa.field("offset", pa.int64()))
    for files in in_files:
        for rows in files.read(needed):
            chosen = rows.filter(pa.array(among(last, np.asarray(rows.column("offset")))))
            if chosen.num_rows:
                yield chosen.select(schema.names) if typed is None else of_table(chosen, schema, typed)


def _last_of_keys(batches: Iterable[pa.RecordBatch]) -> Ints:
    """The offsets of the rows that count, in order."""
    merged = pa.table({"key": pa.array([], pa.binary()), "last": pa.array([], pa.int64())})
    waiting: list[pa.Table] = []
    count = 0
    for batch in batches:
        # The last bit says whether the row deletes its key: so the largest number is that of the last row.
        numbers = np.asarray(batch.column("offset")) * 2 + np.asarray(batch.column(DELETES))
        rows = pa.table({"key": batch.column("key"), "last": pa.array(numbers)})
        waiting.append(rows.filter(rows["key"].is_valid()))
        count += batch.num_rows
        if count >= max(_TOGETHER_ROWS, merged.num_rows):
            merged, waiting, count = _largest([merged, *waiting]), [], 0
    numbers = np.asarray(_largest([merged, *waiting])["last"])
    return np.sort(numbers[numbers % 2 == 0] // 2)


def _largest(tables: list[pa.Table]) -> pa.Table:
    found = pa.concat_tables(tables).group_by("key", use_threads=False).aggregate([("last", "max")])
    return found.rename_columns(["key", "last"])
