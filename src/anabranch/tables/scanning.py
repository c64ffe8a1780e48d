"""Rows of a table's files, with Arrow: only the columns and offsets that are asked for, in bounded batches.

What the statistics of a file say is not read: row groups that hold no wanted offset, and columns that are
the same in all rows (the topic, the partition, usually the kind of timestamp, keys if there are none),
which are made once and shared by all batches.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from os import SEEK_END
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from anabranch.base.errors import Corrupt, Invalid, Unavailable
from anabranch.tables.seam import Slice
from anabranch.tables.snapshot import DataFile

_BATCH_BYTES = 8 << 20
_MOST_BATCH_ROWS = 1 << 14
_OFFSET = "offset"
_END = struct.Struct("<I4s")
_LARGEST_FOOTER_BYTES = 1 << 28


def read_slices(table: Path, slices: Sequence[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of `slices`, with the columns of `schema`."""
    for one in slices:
        yield from _read(table, one, schema)


def _read(table: Path, wanted: Slice, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    place = table / wanted.file.path
    try:
        if footer_crc(place) != wanted.file.footer_crc:
            raise Corrupt(f"{place} is damaged: it does not have its checksum")
        with pq.ParquetFile(place, page_checksum_verification=True) as file:
            _check(file, wanted, schema.names)
            yield from _rows(file, wanted, schema)
    except FileNotFoundError as error:
        raise Unavailable(
            f"{place} is not there: the folder is not reached from here, or the query took longer than "
            "anabranch.table.file.delete.delay.ms and the file was merged into another"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise Corrupt(f"{place} cannot be read: {error}") from error


def footer_crc(place: Path) -> int:
    """The CRC-32C of a file's end: its description of itself, how long that is, and the mark."""
    with place.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(max(0, size - _END.size))
        end = file.read()
        length, _ = _END.unpack(end) if len(end) == _END.size else (0, b"")
        if length > min(size, _LARGEST_FOOTER_BYTES):
            raise Corrupt(f"{place} is damaged: its end is not that of a file of ours")
        file.seek(max(0, size - _END.size - length))
        return crc32c(file.read())


def _check(file: pq.ParquetFile, wanted: Slice, needed: Iterable[str]) -> None:
    if file.metadata.num_rows != wanted.file.rows:
        raise Corrupt(f"{wanted.file.path} has {file.metadata.num_rows} rows, not {wanted.file.rows}")
    there = file.schema_arrow.names
    if missing := [name for name in (_OFFSET, *needed) if name not in there]:
        raise Invalid(f"the table has no column {missing[0]}: {wanted.file.path} was written without it")


def _rows(file: pq.ParquetFile, wanted: Slice, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    groups = list(_groups(file, wanted))
    rows_a_batch = _batch_rows(file)
    same = {
        field.name: pa.repeat(value.cast(field.type), rows_a_batch)
        for field in schema
        if (value := _same_in_all(file, groups, field.name)) is not None
    }
    needed = [name for name in schema.names if name not in same]
    if (not wanted.is_whole or not needed) and _OFFSET not in needed:
        needed.append(_OFFSET)
    left = sum(file.metadata.row_group(at).num_rows for at in groups)
    # No threads: there are as many tasks as cores already.
    for rows in file.iter_batches(rows_a_batch, groups, columns=needed, use_threads=False):
        left -= rows.num_rows
        found = rows if wanted.is_whole else _inside(rows, wanted)
        if found.num_rows:
            yield _arranged(found, same, schema)
    if left:  # headers of pages have no checksum, and one that is damaged may end a column early
        raise Corrupt(f"{wanted.file.path} is damaged: {left} rows of it cannot be found")


def _batch_rows(file: pq.ParquetFile) -> int:
    """Rows of about a batch's bytes, if values are as large here as elsewhere in the file."""
    described = file.metadata
    total = sum(described.row_group(at).total_byte_size for at in range(described.num_row_groups))
    return int(max(1, min(_MOST_BATCH_ROWS, _BATCH_BYTES * described.num_rows // max(1, total))))


def _leaf(file: pq.ParquetFile, name: str) -> int | None:
    """Where a column that is not nested is among those that Parquet counts."""
    leaves = (at for at in range(len(file.schema)) if file.schema.column(at).path == name)
    return next(leaves, None)


def _groups(file: pq.ParquetFile, wanted: Slice) -> Iterator[int]:
    """The row groups that may hold wanted offsets."""
    leaf = _leaf(file, _OFFSET)
    assert leaf is not None, "checked"
    for at in range(file.num_row_groups):
        statistics = file.metadata.row_group(at).column(leaf).statistics
        known = statistics is not None and statistics.has_min_max
        if not known or (statistics.max >= wanted.span.start and statistics.min < wanted.span.end):
            yield at


def _same_in_all(file: pq.ParquetFile, groups: Sequence[int], name: str) -> pa.Scalar | None:
    """The one value that a column has in all of these row groups, None if that is not known to be so."""
    leaf = _leaf(file, name)
    if leaf is None or not groups:
        return None
    told = [file.metadata.row_group(at).column(leaf) for at in groups]
    if any(one.statistics is None or not one.statistics.has_null_count for one in told):
        return None
    type = file.schema_arrow.field(name).type
    if all(one.statistics.null_count == one.num_values for one in told):
        return pa.scalar(None, type)
    if not pa.types.is_int32(type) and not pa.types.is_string(type):
        return None
    if any(one.statistics.null_count or not one.statistics.has_min_max for one in told):
        return None
    values = {value for one in told for value in (one.statistics.min, one.statistics.max)}
    return pa.scalar(values.pop(), type) if len(values) == 1 else None


def _inside(rows: pa.RecordBatch, wanted: Slice) -> pa.RecordBatch:
    offsets = np.asarray(rows.column(rows.schema.get_field_index(_OFFSET)))
    return rows.filter(pa.array((offsets >= wanted.span.start) & (offsets < wanted.span.end)))


def _arranged(rows: pa.RecordBatch, same: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name in same:
            columns.append(same[field.name].slice(0, rows.num_rows))
        else:
            column = rows.column(rows.schema.get_field_index(field.name))
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def first_offset_at(table: Path, file: DataFile, time_ms: int) -> int | None:
    """The first offset in `file` whose record is not before that time."""
    columns = pa.schema([(_OFFSET, pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    found: int | None = None
    for rows in _read(table, Slice(file, file.span), columns):
        late = np.asarray(rows.column("timestamp").cast(pa.int64())) >= time_ms * 1000
        if late.any():
            offset = int(np.asarray(rows.column(_OFFSET))[late].min())
            found = offset if found is None else min(found, offset)
    return found
