"""Table copy tasks: offsets of a partition copied into files, small files merged into one.

A task reads from the broker and writes Parquet in the same worker, so records do not pass through the JVM.
What it returns is a few lines about its files; nobody sees them until the driver puts them into a snapshot.
A task that is run again writes other files, and those of the first are removed when they are old.

Files have all columns of a topic, those of Pulsar's too.  If values have a schema in the registry, what it
makes of them is there as well, in the column `record`, for readers of the files without us; it is null where
a value does not match its schema.
"""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa

from anabranch.base.errors import Invalid, NotFound
from anabranch.client.destinations import TopicPartition
from anabranch.spark.column_types import PULSARS, TYPES
from anabranch.spark.columns import of_table
from anabranch.spark.fetching import read_ranges
from anabranch.spark.options import Options
from anabranch.spark.ranges import Fetching, Range
from anabranch.spark.values.typed import Typed, typed_of
from anabranch.tables.changes import Copied
from anabranch.tables.data_files import HourlyFiles, merge_files
from anabranch.tables.snapshot import DataFile, Span

RECORD = "record"
MOST_BYTES = 1 << 30
_DEEPEST = 32  # a list is two levels in Parquet, and Arrow reads a hundred
_MOST_PARTS = 2000
_COLUMNS = pa.schema([*TYPES.items(), *PULSARS.items()])


class Copy(msgspec.Struct, frozen=True, tag=True):
    """Offsets of a partition, to be copied into the files of a table."""

    folder: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    registry: str = ""
    """Where schemas are, if somewhere."""
    most_bytes: int = MOST_BYTES
    """Of rows in memory: once there are so many the rest is left to the next round."""


class Merge(msgspec.Struct, frozen=True, tag=True):
    """Files of a table that are to become one."""

    folder: str
    files: list[DataFile]


class Done(msgspec.Struct, frozen=True):
    """What came of one piece of work: files, or why there are none."""

    folder: str
    topic_id: str = ""
    partition: int = -1
    copied: Copied | None = None
    merged: list[str] = []
    files: list[DataFile] = []
    error: str = ""


def perform(work: Copy | Merge, how: Fetching) -> Done:
    return _copy(work, how) if isinstance(work, Copy) else _merge(work)


def _copy(work: Copy, how: Fetching) -> Done:
    typed = _typed(work) if work.registry else None
    schema = _COLUMNS if typed is None else _COLUMNS.append(pa.field(RECORD, typed.sides[0].type))
    with HourlyFiles(Path(work.folder), work.partition, schema) as files:
        end = _add(files, work, _read(work, how, typed, schema))
        written = files.finish()
    copied = Copied(work.partition, Span(work.start, end), written)
    return Done(work.folder, work.topic_id, work.partition, copied)


def _add(files: HourlyFiles, work: Copy, batches: Generator[pa.RecordBatch]) -> int:
    """Add rows until there are enough.  Where that ends, exclusive."""
    room = work.most_bytes
    with closing(batches):
        for rows in batches:
            files.add(rows)
            room -= rows.nbytes
            if room <= 0 and rows.num_rows:
                return int(rows.column("offset")[-1].as_py()) + 1
    return work.end


def failed(work: Copy | Merge, problem: str) -> Done:
    """That `work` came to nothing."""
    if isinstance(work, Copy):
        problem = f"partition {work.partition} could not be copied: {problem}"
        return Done(work.folder, work.topic_id, work.partition, error=problem)
    return Done(work.folder, merged=[file.path for file in work.files], error=problem)


def _read(work: Copy, how: Fetching, typed: Typed | None, schema: pa.Schema) -> Generator[pa.RecordBatch]:
    wanted = Range(TopicPartition(work.topic, work.partition), work.start, work.end)
    for rows in read_ranges([wanted], how._replace(described=True), _COLUMNS):
        if typed is None:
            yield rows
        else:
            value = pa.schema([("value", typed.sides[0].type)])
            (record,) = of_table(rows, value, typed).columns
            yield pa.RecordBatch.from_arrays([*rows.columns, record], schema=schema)


def _typed(work: Copy) -> Typed | None:
    """How values are read by their schema, None if the topic has none that can be a column of a file."""
    given = {
        "valueSchema": "registry",
        "valueAs": "struct",
        "mode": "PERMISSIVE",
        "schema.registry.url": work.registry,
    }
    try:
        typed = typed_of(Options(given, given, "a table"), lambda: [work.topic])
    except (Invalid, NotFound):
        return None
    assert typed is not None, "asked for"
    return typed if _fits_a_file(typed.sides[0].type) else None


def _fits_a_file(type: pa.DataType) -> bool:
    """Parquet has no structures without fields, and its readers follow them to some depth only, whoever wrote
    them.  A file describes all its columns, be it of one row: if they are very many, these are not worth it.
    """
    level, parts = [type], 0
    for _ in range(_DEEPEST):
        parts += len(level)
        if parts > _MOST_PARTS or any(pa.types.is_struct(one) and not one.num_fields for one in level):
            return False
        level = [one.field(number).type for one in level for number in range(one.num_fields)]
    return not level


def _merge(work: Merge) -> Done:
    written = merge_files(Path(work.folder), work.files)
    return Done(work.folder, merged=[file.path for file in work.files], files=list(written))
