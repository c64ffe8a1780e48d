"""The Parquet files of a table, written with Arrow.

Made for scans: values and keys are stored plainly, since looking for repetitions costs more than it saves
below zstd; offsets and times as differences; what is the same in all rows by a dictionary.  Row groups are
large, and their statistics say which of them hold which offsets.  Every page has a checksum, and that of the
rest, the file's description of itself, goes into the snapshot.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from anabranch.tables.folder import sync_folder
from anabranch.tables.merging import FILE_BYTES, VARIOUS, hour_name
from anabranch.tables.scanning import footer_crc, read_slices
from anabranch.tables.seam import Slice
from anabranch.tables.snapshot import DataFile

_HOUR_US = 3_600_000_000
_LAST_HOUR = 8_000 * 8_766  # a good way before the calendar ends
_MOST_HOURS = 24
_GROUP_BYTES = 32 << 20
_HELD_BYTES = 96 << 20
_CONSTANT = ("topic", "partition", "timestampType")
_RISING = ("offset", "timestamp")


def layout_of(schema: pa.Schema) -> str:
    """Short, and different for other columns or types."""
    return f"{crc32c(schema.remove_metadata().to_string().encode()):08x}"


class _OneFile:
    """A file on its way, of one hour."""

    def __init__(self, table: Path, hour: str, partition: int, schema: pa.Schema, first: int) -> None:
        self._path = f"{hour}/{partition}-{first}-{uuid.uuid4().hex}.parquet"
        self._table = table
        self._partition = partition
        self._layout = layout_of(schema)
        (table / hour).mkdir(parents=True, exist_ok=True)
        self._file = (table / self._path).open("xb")
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name in _CONSTANT],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in _RISING},
            write_page_checksum=True,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._first, self._end, self._rows = first, first, 0
        self._min_us, self._max_us = (1 << 63) - 1, -(1 << 63)
        self.waiting_bytes = 0
        self.given_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        times = rows.column("timestamp").cast(pa.int64())
        extent = pc.min_max(times).as_py()
        self._min_us, self._max_us = min(self._min_us, extent["min"]), max(self._max_us, extent["max"])
        self._end = rows.column("offset")[-1].as_py() + 1
        self._rows += rows.num_rows
        self._waiting.append(rows)
        size = rows.nbytes
        self.waiting_bytes += size
        self.given_bytes += size

    def write_waiting(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._waiting, self.waiting_bytes = [], 0

    def finish(self) -> DataFile:
        """The file, whole and on disk."""
        self.write_waiting()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_folder((self._table / self._path).parent)
        return DataFile(
            path=self._path,
            partition=self._partition,
            first=self._first,
            end=self._end,
            rows=self._rows,
            size_bytes=size,
            plain_bytes=self.given_bytes,
            min_ms=self._min_us // 1000,
            max_ms=self._max_us // 1000,
            layout=self._layout,
            footer_crc=footer_crc(self._table / self._path),
        )

    def abandon(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.close()
        (self._table / self._path).unlink(missing_ok=True)


class HourlyFiles:
    """Takes rows of one partition in order of offsets, and puts them into files by hour.

    However the times of records are spread, few files are open at once and few bytes wait for them: once
    there are many hours the rest shares files in a folder for various.  Use it as a context.
    """

    def __init__(self, table: Path, partition: int, schema: pa.Schema, hour: str | None = None) -> None:
        """All rows go to `hour` if there is one."""
        self._table = table
        self._partition = partition
        self._schema = schema
        self._hour = hour
        self._open: dict[str, _OneFile] = {}
        self._done: list[DataFile] = []
        self._hours: set[str] = set()

    def add(self, rows: pa.RecordBatch) -> None:
        for hour, part in self._by_hour(rows):
            if hour not in self._open:
                first = part.column("offset")[0].as_py()
                self._open[hour] = _OneFile(self._table, hour, self._partition, self._schema, first)
            file = self._open[hour]
            file.add(part)
            if file.waiting_bytes > _GROUP_BYTES:
                file.write_waiting()
            if file.given_bytes > FILE_BYTES:
                self._done.append(file.finish())
                del self._open[hour]
        if sum(file.waiting_bytes for file in self._open.values()) > _HELD_BYTES:
            max(self._open.values(), key=lambda file: file.waiting_bytes).write_waiting()

    def _by_hour(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not rows.num_rows:
            return
        if self._hour is not None:
            yield self._hour, rows
            return
        hours = np.asarray(rows.column("timestamp").cast(pa.int64())) // _HOUR_US
        if hours[0] == hours[-1] and (hours == hours[0]).all():
            yield self._folder(int(hours[0])), rows
            return
        folders = {int(hour): self._folder(int(hour)) for hour in np.unique(hours)}
        for folder in dict.fromkeys(folders.values()):
            mine = np.array([hour for hour, name in folders.items() if name == folder])
            yield folder, rows.filter(pa.array(np.isin(hours, mine)))

    def _folder(self, hour: int) -> str:
        if not 0 <= hour <= _LAST_HOUR:
            return VARIOUS
        name = hour_name(hour)
        if name not in self._hours and len(self._hours) >= _MOST_HOURS:
            return VARIOUS
        self._hours.add(name)
        return name

    def finish(self) -> tuple[DataFile, ...]:
        """All files, whole and on disk."""
        while self._open:
            hour = next(iter(self._open))
            self._done.append(self._open[hour].finish())
            del self._open[hour]
        return tuple(self._done)

    def __enter__(self) -> "HourlyFiles":
        return self

    def __exit__(self, *_: object) -> None:
        """Files that were not finished leave nothing behind."""
        for file in self._open.values():
            file.abandon()


def merge_files(table: Path, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The rows of `files`, all of one partition and hour, written again as few files."""
    schema = pq.read_schema(table / files[0].path)
    with HourlyFiles(table, files[0].partition, schema, files[0].hour) as written:
        for file in files:
            for rows in read_slices(table, [Slice(file, file.span)], schema):
                written.add(rows)
        return written.finish()
