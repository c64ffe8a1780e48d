"""Encoding: columns into record batches, with no object per row, the reverse of `decode`.

    length, time, offset, key length     varints, written for all rows at once
    key, value, headers                  as they lie in Arrow's columns
    a record                             these joined, row by row, by Arrow

The records of a batch lie one after the other in what Arrow makes of that: a batch is a header and a slice.
Rows are cut into batches of about `batch_bytes`; a row that is larger is a batch of its own.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.base.errors import Invalid
from anabranch.client.producer import Writer
from anabranch.records.batch import MAGIC, TRANSACTIONAL, BatchHeader
from anabranch.records.builder import seal
from anabranch.records.compression import compress
from anabranch.spark import varints
from anabranch.spark.partitioner import pieces
from anabranch.spark.varints import Ints

_OTHER_BYTES = 24  # of a record: lengths, deltas, attributes; at most


class Rows(NamedTuple):
    """What is to be written to one partition, in order."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    timestamps_ms: Ints
    headers: pa.BinaryArray
    """As they stand in a record: their count, then each."""

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, chosen: Ints) -> "Rows":
        index = pa.array(chosen)
        return Rows(
            self.keys.take(index),
            self.values.take(index),
            self.timestamps_ms[chosen],
            self.headers.take(index),
        )


def row_sizes(keys: pa.BinaryArray, values: pa.BinaryArray, headers: pa.BinaryArray) -> Ints:
    """About what each row takes in a batch."""
    sizes = pieces(keys)[1] + pieces(values)[1] + pieces(headers)[1]
    return sizes + _OTHER_BYTES


def encode(rows: Rows, writer: Writer, base_sequence: int, batch_bytes: int, codec: int) -> list[bytearray]:
    """The batches of `rows`, the first with `base_sequence` (-1 if the producer has no id)."""
    if not len(rows):
        return []
    filled = np.cumsum(row_sizes(rows.keys, rows.values, rows.headers))
    firsts = _firsts(filled, batch_bytes)
    counts = np.diff(np.append(firsts, len(rows)))
    deltas = np.arange(len(rows)) - np.repeat(firsts, counts)
    stamps = rows.timestamps_ms - np.repeat(rows.timestamps_ms[firsts], counts)
    records = _records(rows, deltas, stamps)
    edges = np.frombuffer(records.buffers()[1], np.int32)
    content = memoryview(records.buffers()[2])
    batches = []
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        times = rows.timestamps_ms[first : first + count]
        header = BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec | (TRANSACTIONAL if writer.transactional else 0),
            last_offset_delta=count - 1,
            base_timestamp=int(times[0]),
            max_timestamp=int(times.max()),
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            base_sequence=(base_sequence + first) & 0x7FFFFFFF if base_sequence >= 0 else -1,
            count=count,
        )
        batches.append(seal(header, compress(codec, content[edges[first] : edges[first + count]])))
    return batches


def _firsts(filled: Ints, batch_bytes: int) -> Ints:
    """The first row of each batch, if after each row so many bytes are `filled`."""
    firsts = [0]
    while True:
        before = int(filled[firsts[-1] - 1]) if firsts[-1] else 0
        following = int(np.searchsorted(filled, before + batch_bytes, side="right"))
        following = max(following, firsts[-1] + 1)
        if following >= len(filled):
            return np.array(firsts, np.int64)
        firsts.append(following)


def _records(rows: Rows, deltas: Ints, stamps: Ints) -> pa.BinaryArray:
    key_sizes, value_sizes = sizes_of(rows.keys), sizes_of(rows.values)
    body = (
        1
        + varints.sizes(stamps)
        + varints.sizes(deltas)
        + varints.sizes(key_sizes)
        + varints.sizes(value_sizes)
    )
    body += np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + sizes_of(rows.headers)
    return joined(
        numbers(body, None, stamps, deltas, key_sizes),
        rows.keys,
        numbers(value_sizes),
        rows.values,
        rows.headers,
    )


def joined(*columns: pa.BinaryArray) -> pa.BinaryArray:
    """The columns' bytes one behind the other, row by row; nulls have none."""
    return pc.binary_join_element_wise(*columns, b"", null_handling="replace", null_replacement=b"")


def sizes_of(column: pa.BinaryArray) -> Ints:
    """The length of each element, -1 for nulls."""
    sizes = pieces(column)[1]
    if column.null_count:
        sizes[np.asarray(column.is_null())] = -1
    return sizes


def numbers(*columns: Ints | None) -> pa.BinaryArray:
    """Varints of several columns, one behind the other, row by row.  None is a zero byte."""
    given = next(column for column in columns if column is not None)
    widths = [np.ones(len(given), np.int64) if one is None else varints.sizes(one) for one in columns]
    edges = np.zeros(len(given) + 1, np.int64)
    np.cumsum(sum(widths, np.int64(0)), out=edges[1:])
    out = np.zeros(int(edges[-1]), np.uint8)
    at = edges[:-1].copy()
    for column in columns:
        at = at + 1 if column is None else varints.write(out, at, column)
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(given), buffers)


def no_headers(count: int) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(b"\0", pa.binary()), count)


def encode_headers(column: pa.ListArray) -> pa.BinaryArray:
    """Each row's headers as they stand in a record.  A null is no headers."""
    counts = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    pairs = column.flatten()
    names, contents = (as_binary(one) for one in pairs.flatten())
    if names.null_count:
        raise Invalid("a header has no key")
    each = joined(numbers(sizes_of(names)), names, numbers(sizes_of(contents)), contents)
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    together = pc.binary_join(pa.ListArray.from_arrays(pa.array(edges), each), b"")
    return joined(numbers(counts), together)


def as_binary(column: pa.Array) -> pa.BinaryArray:
    """A column of text or bytes, as bytes."""
    return column if column.type == pa.binary() else column.cast(pa.binary())
