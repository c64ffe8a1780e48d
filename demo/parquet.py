"""Reads a table that Spark wrote, without Spark: the rows that its readers would see, and no others.

A table that a stream writes has a log, `_spark_metadata`, with a file for each micro-batch; Parquet files
that it does not list were never committed.  Every tenth file of the log is a summary of all before it.

    orders_clean/_spark_metadata/9.compact      v1, then a line {"path": …, "action": "add"} for each file
    orders_clean/_spark_metadata/10
    orders_clean/part-00000-….snappy.parquet
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

LOG = "_spark_metadata"


def read_table(folder: Path, columns: list[str]) -> list[dict[str, Any]]:
    """The table's rows, times as whole milliseconds.  No rows if there is no such table yet."""
    files = _committed(folder) if (folder / LOG).exists() else sorted(folder.glob("*.parquet"))
    tables = [pq.read_table(file, columns=columns, partitioning=None) for file in files]
    rows = pa.concat_tables(tables).select(columns) if tables else pa.table({name: [] for name in columns})
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            milliseconds = rows.column(number).cast(pa.timestamp("ms", field.type.tz)).cast(pa.int64())
            rows = rows.set_column(number, field.name, milliseconds)
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def _committed(folder: Path) -> list[Path]:
    """The files that the log lists."""
    entries = sorted(
        (int(file.name.split(".")[0]), file) for file in (folder / LOG).iterdir() if file.name[0].isdigit()
    )
    summary = max((number for number, file in entries if file.suffix == ".compact"), default=0)
    added: set[Path] = set()
    for number, file in entries:
        if number < summary:
            continue
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            entry = json.loads(line)
            path = Path(unquote(urlparse(entry["path"]).path))
            if entry["action"] == "add":
                added.add(path)
            else:
                added.discard(path)
    return sorted(added)
