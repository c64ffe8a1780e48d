"""A streaming read: from one offset to the next, a micro-batch at a time.

Spark keeps one of these in a process beside the driver for as long as the query runs and asks it in turn

    latestOffset(start, limit)     how far the next micro-batch goes; written to the checkpoint
    partitions(start, end)         the ranges of that micro-batch, one per task; `read` runs in the executors
    commit(end)                    everything before `end` is done

After a restart it goes on from the checkpoint: the same `start` and `end` give the same ranges.  Partitions
that come up later are read from their beginning.  Ones that went, and offsets that went before they were
read, are losses (failOnDataLoss).

maxOffsetsPerTrigger bounds a micro-batch.  minOffsetsPerTrigger holds it back until so many offsets are
there or maxTriggerDelay is over, except for a query that only does what there is (availableNow), where
waiting would mean waiting forever.

A small micro-batch is read by few tasks, though it comes from many partitions (minRecordsPerPartition).
"""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from anabranch.base.errors import Invalid, UnknownTopic
from anabranch.client.cluster import EARLIEST, LATEST, Cluster, Offsets
from anabranch.client.group_offsets import commit_offsets
from anabranch.spark.options import Options
from anabranch.spark.planning import behind, divided, gathered, limited, ranges_between
from anabranch.spark.positions import from_json, resolve, starting, to_json
from anabranch.spark.ranges import DataLost
from anabranch.spark.reading import Layout, OffsetRanges, fetching_of
from anabranch.spark.selection import selection_of
from anabranch.spark.worker_process import Travels, keep_what_is_loaded

_ADVICE = 'Set the option failOnDataLoss to "false" to go on with what is there.'
_LONGEST_DELAY_S = 15 * 60.0
# Spark's part in a task, with a process to read and one to write, takes as long as reading so many.
_WORTH_A_TASK = 1000
_MOST_ROWS = (1 << 63) - 1


class StreamReader(Travels, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, layout: Layout) -> None:
        self._selection = selection_of(options)
        self._start = starting(options, streaming=True)
        self._how = fetching_of(options, layout)
        self._most = options.whole("maxOffsetsPerTrigger")
        self._least = options.whole("minOffsetsPerTrigger")
        if self._most is not None and self._least is not None and self._least > self._most:
            raise Invalid(
                f"minOffsetsPerTrigger {self._least} is more than maxOffsetsPerTrigger {self._most}"
            )
        self._delay_s = options.duration_s("maxTriggerDelay", _LONGEST_DELAY_S)
        self._least_ranges = options.whole("minPartitions")
        self._least_records = options.number("minRecordsPerPartition", _WORTH_A_TASK)
        self._most_records = options.whole("maxRecordsPerPartition")
        self._group = _group(options)
        self._schema = layout.schema
        self._cluster: Cluster | None = None
        self._last_batch_s = time.monotonic()
        self._all_there_is: Offsets | None = None
        self._latest: Offsets = {}
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:
        there = self._selection.partitions(self._client())
        return to_json(resolve(self._start, there, self._client(), committed=self._how.committed))

    def prepareForTriggerAvailableNow(self) -> None:
        self._all_there_is = self._ends({})

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark hands it back to latestOffset, unless a trigger wants everything.
        return (
            ReadAllAvailable()
            if self._most is None and self._least is None
            else ReadMaxRows(self._most or _MOST_ROWS)
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_json(start)
        # What comes before `start` is done.  Spark's own commit() of it only comes with the next micro-batch,
        # and a group that waits for that looks behind while there is nothing to do.
        self._commit_to_group(begin)
        latest = self._all_there_is
        if latest is None or any(latest.get(one, -1) < at for one, at in begin.items()):
            # If all there was ends before the checkpoint, that is lost, or the query begins at what came
            # a moment later: that is asked, too.
            ends = self._ends(begin)
            latest = ends if latest is None else latest
        self._latest = latest
        begin = self._with_new(begin, latest)
        # A partition that has gone from the topic keeps its place in the checkpoint.
        latest = {one: max(latest.get(one, at), at) for one, at in begin.items()}
        if not isinstance(limit, ReadMaxRows):
            return to_json(latest)
        if self._holds_back(behind(begin, latest)):
            return start
        self._last_batch_s = time.monotonic()
        return to_json(limited(begin, latest, limit.max_rows))

    def _holds_back(self, available: int) -> bool:
        """Whether too little is there for a micro-batch, and it has not waited long enough."""
        if self._least is None or self._all_there_is is not None or available >= self._least:
            return False
        return time.monotonic() - self._last_batch_s < self._delay_s

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._latest) if self._latest else None

    def _ends(self, begin: Offsets) -> Offsets:
        """How far each partition can be read now."""
        client = self._client()
        try:
            there = self._selection.partitions(client)
        except UnknownTopic as error:
            self._lost(f"a topic is not there any more: {error}")
            return dict(begin)
        ends = client.offsets_at(dict.fromkeys(there, LATEST), committed=self._how.committed)
        for one in begin:
            if one not in ends:
                self._lost(f"{one} is not there any more")
            elif ends[one] < begin[one]:
                self._lost(f"{one} ends at offset {ends[one]}, before {begin[one]}: it was made anew, or cut")
        return ends

    def _lost(self, what: str) -> None:
        if self._how.fail_on_data_loss:
            raise DataLost(f"{what}. {_ADVICE}")

    def _with_new(self, begin: Offsets, latest: Offsets) -> Offsets:
        """`begin`, and partitions that have come up since, which are read from their beginning."""
        new = [one for one in latest if one not in begin]
        if not new:
            return begin
        earliest = self._client().offsets_at(dict.fromkeys(new, EARLIEST))
        return begin | {one: min(earliest[one], latest[one]) for one in new}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = from_json(start), from_json(end)
        ranges = ranges_between(begin | self._first_of_new(begin, until), until)
        parts = divided(ranges, self._least_ranges, self._most_records)
        # Who says how many tasks there should be gets as many.
        least_records = 1 if self._least_ranges else self._least_records
        return [OffsetRanges(of_a_task) for of_a_task in gathered(parts, least_records)]

    def _first_of_new(self, begin: Offsets, until: Offsets) -> Offsets:
        new = [one for one in until if one not in begin]
        return self._client().offsets_at(dict.fromkeys(new, EARLIEST)) if new else {}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from anabranch.spark.fetching import read_ranges  # a stream waits for the process that only plans

        if isinstance(partition, OffsetRanges):
            yield from read_ranges(partition.wanted, self._how, self._schema)
            keep_what_is_loaded()

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_to_group(from_json(end))

    def _commit_to_group(self, done: Offsets) -> None:
        if self._group is not None and done != self._committed:
            commit_offsets(self._client(), self._group, done)
            self._committed = done

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _client(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._how.settings)
        return self._cluster


def _group(options: Options) -> str | None:
    """The group that the query's progress is committed to, if one is wanted."""
    if not options.flag("commitOffsets", False):
        return None
    group = options.text("kafka.group.id") or options.text("groupIdPrefix")
    if not group:
        raise Invalid("commitOffsets needs the name of a group: kafka.group.id or groupIdPrefix")
    return group
