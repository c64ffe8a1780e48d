"""A topic with a table as a DataFrame whose history Spark reads by itself.

    orders = topic_table(spark, {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"})

The rows of a batch read with the same options, as of the moment of the call: what the table has from its
files, with Spark's own reader, and the rest with ours.  Spark asks sources in Python for all columns,
whatever a query is for, and has every row cross from one process to another.  Its own reader leaves out
columns, and parts of files, that a query has no use for.  The price is that a DataFrame stays as of its
moment: it sees nothing new, and it fails once files of it were merged, longer than
`anabranch.table.file.delete.delay.ms` ago.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from anabranch.base.errors import Corrupt, Unavailable
from anabranch.client.destinations import TopicPartition
from anabranch.spark.batch_reader import BatchReader
from anabranch.spark.options import BATCH_READ, OF_SCHEMAS, Options
from anabranch.spark.ranges import Range
from anabranch.spark.reading import chosen_columns, spark_schema
from anabranch.tables.snapshot import Span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from anabranch.tables.seam import Slice

_OFFERED = BATCH_READ - {*OF_SCHEMAS, "useTable", "readCompacted", "minPartitions", "maxRecordsPerPartition"}
_POSITIONS = ("startingoffsets", "startingtimestamp", "endingoffsets", "endingtimestamp")
_CHOICES = ("subscribe", "subscribepattern", "assign")
_STRICT = {
    "parquet.page.verify-checksum.enabled": "true",
    # Whatever the session has: no row is left out, or has another time, without a word.
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "ignoredPathSegmentRegex": "",
    "datetimeRebaseMode": "CORRECTED",
}
_PATTERNS = re.compile(r"([{}\[\]*?\\])")  # what Hadoop takes for one


def topic_table(spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
    """What a batch read with `options` has.  Options of schemas, of tasks and of compaction are refused."""
    how = Options(options, _OFFERED, "a topic's table")
    schema = spark_schema(how)
    plan = BatchReader(how, chosen_columns(schema, how)).plan()
    frames = [
        _in_files(spark, plan.history.folder(topic), slices, schema)
        for topic, slices in plan.parts.in_files.items()
        if slices
    ]
    frames += [_in_log(spark, options, ranges) for ranges in _once_each(plan.parts.in_log)]
    return reduce(lambda one, other: one.unionAll(other), frames or [spark.createDataFrame([], schema)])


def _in_files(spark: "SparkSession", folder: Path, slices: list["Slice"], schema: StructType) -> "DataFrame":
    places = [folder / one.file.path for one in slices]
    _check(places, slices)
    rows = spark.read.schema(schema).options(**_STRICT).parquet(*map(_name, places))
    cut = {one.file.partition for one in slices if not one.is_whole}
    if not cut:
        return rows
    return rows.where(_inside({number: span for number, span in _spans(slices).items() if number in cut}))


def _name(place: Path) -> str:
    return "file://" + _PATTERNS.sub(r"\\\1", str(place))


def _spans(slices: list["Slice"]) -> dict[int, Span]:
    """What is asked for of each partition, which is one range, as far as files have it."""
    spans: dict[int, Span] = {}
    for one in slices:
        known = spans.get(one.file.partition, one.span)
        spans[one.file.partition] = Span(min(known.start, one.span.start), max(known.end, one.span.end))
    return spans


def _inside(wanted: Mapping[int, Span]) -> "Column":
    from pyspark.sql.functions import col

    number, offset = col("partition"), col("offset")
    return reduce(
        lambda one, other: one & other,
        (
            (number != partition) | ((offset >= span.start) & (offset < span.end))
            for partition, span in wanted.items()
        ),
    )


def _check(places: list[Path], slices: list["Slice"]) -> None:
    """Files say of themselves what we know of them.  Their pages have checksums that Spark looks at."""
    from anabranch.tables.scanning import footer_crc

    for place, one in zip(places, slices, strict=True):
        try:
            is_whole = footer_crc(place) == one.file.footer_crc
        except OSError as error:
            raise Unavailable(f"{place} cannot be read from here: {error}") from error
        if not is_whole:
            raise Corrupt(f"{place} is damaged: it does not have its checksum")


def _once_each(ranges: Iterable[Range]) -> list[list[Range]]:
    """In lists that have a partition once: a table may have the middle of what is asked for."""
    lists: list[list[Range]] = []
    seen: Counter[TopicPartition] = Counter()
    for one in ranges:
        if seen[one.partition] == len(lists):
            lists.append([])
        lists[seen[one.partition]].append(one)
        seen[one.partition] += 1
    return lists


def _in_log(spark: "SparkSession", options: Mapping[str, str], ranges: list[Range]) -> "DataFrame":
    """Exactly `ranges`, from the table if the log has dropped them by the time that they are read."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in ranges:
        starts.setdefault(one.partition.topic, {})[str(one.partition.partition)] = one.start
        ends.setdefault(one.partition.topic, {})[str(one.partition.partition)] = one.end
    others = {
        name: value
        for name, value in options.items()
        if name.lower() not in _CHOICES and not name.lower().startswith(_POSITIONS)
    }
    chosen = {topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}
    exact = {"assign": chosen, "startingOffsets": starts, "endingOffsets": ends}
    reader = spark.read.format("anabranch").options(**others)
    return reader.options(**{name: json.dumps(value) for name, value in exact.items()}).load()
