"""Decoding: record batches into columns, a buffer at a time, with no object per record.

    bytes of many batches ->  where each record ends       one pass over the lengths
                          ->  times, offsets, lengths      numpy, a column at a time
                          ->  keys and values              Arrow cuts them out of the buffer

A record's length is the only thing that leads to the next record, so that pass is a loop in Python: an
addition per record, a sixth of a microsecond; records of one length are found together (`_run`).  What
follows works on all records of the buffer at once, a tenth of a microsecond each, so buffers should hold
thousands.  (A compiled loop, numba's, took a quarter of the time and would have cost every worker 0.8 s to
load and every installation 200 MB.)

What a batch claims is checked as the broker's own readers do: the records fill the batch exactly, each
ends where it says, offsets rise and stay inside the batch.  Anything else is Corrupt.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt
from anabranch.client.visible import Stored
from anabranch.records.batch import LOG_APPEND_TIME
from anabranch.records.compression import NONE, decompress
from anabranch.spark import varints
from anabranch.spark.column_types import HEADER_FIELDS
from anabranch.spark.varints import Bytes, Ints

LARGEST_BATCH_BYTES = 256 << 20
"""Once decompressed.  A broker's own limit is a megabyte unless somebody raised it."""

_PART_BYTES = 64 << 20  # more than what is fetched at a time becomes, usually
_LEAST_HEADER_BYTES = 2
_LEAST_RUN = 64  # records that are looked at together in less time than one by one
_MOST_RUN = 4096  # or looking far ahead for what is near would cost the square of a batch's records
_MOST_WIDTH = 5  # bytes of a length


class Region(NamedTuple):
    """The plain records of one batch, in a buffer that they may share with others."""

    batch: Stored
    start: int
    end: int


class Fields(NamedTuple):
    """Where everything lies, a number a record: lengths of -1 are nulls."""

    data: Bytes
    offsets: Ints
    timestamps: Ints
    timestamp_types: "np.typing.NDArray[np.int32]"
    key_starts: Ints
    key_sizes: Ints
    value_starts: Ints
    value_sizes: Ints
    headers: Ints
    """Where the headers begin: at their count."""

    ends: Ints
    batch_offsets: Ints
    """The first offset of the batch that each record is in."""

    leader_epochs: Ints

    def __len__(self) -> int:
        return len(self.offsets)

    def only(self, chosen: "np.typing.NDArray[np.bool_]") -> "Fields":
        if chosen.all():
            return self
        columns: list[Any] = [column[chosen] for column in self[1:]]
        return Fields(self.data, *columns)


def plain_parts(buffer: Buffer, batches: Iterable[Stored]) -> Iterator[tuple[Buffer, list[Region]]]:
    """The records of `batches` decompressed, and where each batch's lie.

    Without compression that is `buffer` itself.  With it a few kilobytes can become any size, so what comes
    out is given in parts, each of which ends with the batch that makes it large enough.
    """
    wanted = list(batches)
    if not any(batch.header.codec for batch in wanted):
        yield buffer, [Region(batch, batch.start, batch.end) for batch in wanted]
        return
    view = memoryview(buffer)
    parts = bytearray()
    regions: list[Region] = []
    for batch in wanted:
        start = len(parts)
        content: Buffer = view[batch.start : batch.end]
        if batch.header.codec != NONE:
            content = decompress(batch.header.codec, content, LARGEST_BATCH_BYTES)
        parts += content
        regions.append(Region(batch, start, len(parts)))
        if len(parts) >= _PART_BYTES:
            yield parts, regions
            parts, regions = bytearray(), []
    yield parts, regions


def read_fields(buffer: Buffer, regions: list[Region]) -> Fields:
    """The fields of every record of `regions`."""
    counts = [region.batch.header.count for region in regions]
    data: Bytes = np.frombuffer(buffer, np.uint8)
    begins, ends = _records(buffer, data, regions)
    size, at = varints.read(data, begins)
    if (at + size != ends).any() or (size <= 0).any():
        raise Corrupt("a record is not as long as it says")
    stamp, at = varints.read(data, at + 1)
    delta, at = varints.read(data, at)
    key_sizes, key_starts = varints.read(data, at)
    at = _behind(key_starts, key_sizes, ends)
    value_sizes, value_starts = varints.read(data, at)
    headers = _behind(value_starts, value_sizes, ends)
    _check_deltas(delta, regions, counts)
    append = [region.batch.header.attributes & LOG_APPEND_TIME for region in regions]
    headers_of = [region.batch.header for region in regions]
    appended = np.repeat(np.array(append, np.int64) != 0, counts)
    base_time = np.repeat(np.array([one.base_timestamp for one in headers_of], np.int64), counts)
    append_time = np.repeat(np.array([one.max_timestamp for one in headers_of], np.int64), counts)
    base_offset = np.repeat(np.array([one.base_offset for one in headers_of], np.int64), counts)
    return Fields(
        data,
        base_offset + delta,
        np.where(appended, append_time, base_time + stamp),
        appended.astype(np.int32),
        key_starts,
        key_sizes,
        value_starts,
        value_sizes,
        headers,
        ends,
        base_offset,
        np.repeat(np.array([one.leader_epoch for one in headers_of], np.int64), counts),
    )


def _records(buffer: Buffer, data: Bytes, regions: list[Region]) -> tuple[Ints, Ints]:
    """Where each record begins and ends."""
    found = [_walk(buffer, data, region) for region in regions]
    ends = np.concatenate(found) if found else np.empty(0, np.int64)
    begins = np.empty(len(ends), np.int64)
    begins[1:] = ends[:-1]
    first = 0
    for one, region in zip(found, regions, strict=True):
        if len(one):
            begins[first] = region.start
        first += len(one)
    return begins, ends


def _walk(buffer: Buffer, data: Bytes, region: Region) -> Ints:
    """Where the records of a batch end.  Corrupt unless they fill it."""
    at, count, limit = region.start, region.batch.header.count, region.end
    if not 0 <= count <= limit - at:
        raise Corrupt(f"{limit - at} bytes cannot hold {count} records")
    ends = np.empty(count, np.int64)
    done = 0
    while count - done >= _LEAST_RUN and (run := _run(buffer, data, at, limit, count - done)) is not None:
        ends[done : done + len(run)] = run
        done += len(run)
        at = int(run[-1])
    if done < count:
        one_by_one = _step(buffer, at, count - done)
        ends[done:] = one_by_one
        at = one_by_one[-1]
    if at != limit:
        raise Corrupt(f"the batch at offset {region.batch.header.base_offset} does not end with its records")
    return ends


def _run(buffer: Buffer, data: Bytes, at: int, limit: int, most: int) -> Ints | None:
    """Where the records at `at` end that are as long as the first; None if it is not worth looking.

    A record is as long as the one before if its length is written in the same bytes, and then the next is as
    far away again: all places are known at once.  Records of a batch are often of one length, but for that of
    their number in it.
    """
    width = 1
    while width < _MOST_WIDTH and at + width < limit and buffer[at + width - 1] > 127:
        width += 1
    length = buffer[at : at + width]
    step = width + (sum((byte & 127) << (7 * place) for place, byte in enumerate(length)) >> 1)
    most = min(most, _MOST_RUN, (limit - at) // step)
    if most < _LEAST_RUN or buffer[at + step : at + step + width] != length:
        return None
    begins = np.arange(at, at + most * step, step)
    same = data[begins] == length[0]
    for place in range(1, width):
        same &= data[begins + place] == length[place]
    found = most if same.all() else int(same.argmin())
    return begins[:found] + step if found >= _LEAST_RUN else None


def _step(data: Buffer, at: int, count: int) -> list[int]:
    """Where `count` records at `at` end, looked at one after the other."""
    ends: list[int] = []
    add = ends.append
    try:
        for _ in range(count):
            size = data[at]
            at += 1
            if size > 127:
                more = data[at]
                at += 1
                size += (more << 7) - 128
                shift = 7
                while more > 127:
                    shift += 7
                    more = data[at]
                    at += 1
                    size += (more << shift) - (128 << (shift - 7))
                    if shift > 28:
                        raise Corrupt("a record's length is longer than five bytes")
            at += size >> 1
            add(at)
    except IndexError:
        raise Corrupt("a batch ends inside a record") from None
    return ends


def _behind(starts: Ints, sizes: Ints, ends: Ints) -> Ints:
    """Where pieces end that lie inside their records, before `ends`; a size of -1 is that of a null."""
    if (sizes < -1).any() or (sizes > ends - starts).any():
        raise Corrupt("a key, a value or a header is not inside its record")
    return starts + np.maximum(sizes, 0)


def _check_deltas(delta: Ints, regions: list[Region], counts: list[int]) -> None:
    """Offsets rise inside a batch, from its first to at most its last."""
    most = np.repeat(
        np.array([region.batch.header.last_offset_delta for region in regions], np.int64), counts
    )
    rises = np.empty(len(delta), np.bool_)
    rises[1:] = delta[1:] > delta[:-1]
    rises[np.cumsum([0, *counts[:-1]])[np.array(counts, np.int64) > 0]] = True
    if not rises.all() or (delta < 0).any() or (delta > most).any():
        raise Corrupt("the offsets of a batch do not rise from its first to its last")


def cut(data: Bytes, starts: Ints, sizes: Ints) -> pa.BinaryArray:
    """The pieces of `data` as an Arrow column; a size of -1 is a null.  Pieces are in order of place.

    Arrow is shown an array whose elements are, in turn, a piece and the gap after it, without copying; every
    second one is then taken, which copies the pieces together in one go.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + np.maximum(sizes, 0)
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    absent = sizes < 0
    index = np.arange(0, 2 * count, 2)
    return both.take(pa.array(index, mask=absent) if absent.any() else pa.array(index))


def headers_column(fields: Fields) -> pa.ListArray:
    """Each record's headers, null for a record that has none.

    The first headers of all records are read at once, then the second ones of those that have two, and so on.
    """
    counts, at = varints.read(fields.data, fields.headers)
    if (counts < 0).any() or (counts * _LEAST_HEADER_BYTES > fields.ends - at).any():
        raise Corrupt("a record claims more headers than it can hold")
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    total = int(first[-1])
    places = np.zeros((4, total), np.int64)  # key starts and sizes, value starts and sizes
    for rank in range(int(counts.max(initial=0))):
        here = np.flatnonzero(counts > rank)
        key_size, key_start = varints.read(fields.data, at[here])
        behind_key = _behind(key_start, key_size, fields.ends[here])
        value_size, value_start = varints.read(fields.data, behind_key)
        at[here] = _behind(value_start, value_size, fields.ends[here])
        if (key_size < 0).any():
            raise Corrupt("a header has no key")
        places[:, first[here] + rank] = key_start, key_size, value_start, value_size
    if (at != fields.ends).any():
        raise Corrupt("a record does not end with its headers")
    names = _text(cut(fields.data, places[0], places[1]))
    contents = cut(fields.data, places[2], places[3])
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADER_FIELDS))
    starts = pa.array(first.astype(np.int32), mask=np.append(counts == 0, False))
    return pa.ListArray.from_arrays(
        starts, pairs, type=pa.list_(pa.field("element", pairs.type, nullable=True))
    )


def _text(column: pa.BinaryArray) -> pa.StringArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: read as Java does, with a mark for what cannot be read
        return pa.array([name.decode(errors="replace") for name in column.to_pylist()], pa.string())
