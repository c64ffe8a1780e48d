"""Pulsar columns: a message as Pulsar's clients see it, whoever wrote it.

    messageId      the bytes that MessageId.deserialize of Pulsar's clients takes
    publishTime    when it was sent; of a Kafka record, its timestamp
    eventTime      what the application says; null if it does not.  Of a Kafka record, its timestamp
    properties     a map of text; a Kafka record's headers as Pulsar's consumers get them
    producerName   null if a Kafka client wrote it

An id has, as protobuf writes numbers, 1: the leader's epoch, 2: the offset of the message's entry or batch,
3: the partition if the topic has several, 4: the place in the batch if there is one.  The broker tells the
rest in headers when it is asked to (`records/to_kafka.py`); they are no properties.
"""

import base64
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch.records.headers import BATCH_SIZE, ORDERING_KEY, PRODUCER_NAME, PUBLISH_TIME, SCHEMA_VERSION
from anabranch.spark.column_types import PULSARS, TIMESTAMP
from anabranch.spark.decode import Fields, headers_column
from anabranch.spark.header_values import header_values, headers_with_owners
from anabranch.spark.varints import Ints, plain_sizes, write_plain

_DESCRIPTION = (PRODUCER_NAME, PUBLISH_TIME, BATCH_SIZE)
_NO_PROPERTIES = (*_DESCRIPTION, SCHEMA_VERSION, ORDERING_KEY)
_LEDGER, _ENTRY, _PARTITION, _PLACE = 0x08, 0x10, 0x18, 0x20  # tags
_NONE = (1 << 64) - 1  # -1 as protobuf writes it
_MOST_MS = (1 << 63) // 1000 - 1


def make(name: str, fields: Fields, headers: pa.ListArray, partition: int) -> pa.Array:
    """One of the columns; `partition` is -1 if the topic has only one."""
    if name == "messageId":
        return _ids(fields, headers, partition)
    if name == "properties":
        return _properties(headers)
    if name == "producerName":
        return _texts(header_values(headers, PRODUCER_NAME.decode()))
    published, is_pulsars = _published_ms(fields, headers)
    if name == "publishTime":
        return _times(published, np.zeros(len(fields), np.bool_))
    unknown = is_pulsars & ((fields.timestamps == published) | (fields.timestamp_types == 1))
    return _times(fields.timestamps, unknown)


@cache
def _names(headers: tuple[bytes, ...]) -> pa.StringArray:
    # Not when the module is loaded: Arrow loads pandas for its first list, and most workers need neither.
    return pa.array([name.decode() for name in headers])


def without_description(headers: pa.ListArray) -> pa.ListArray:
    """The headers that the record has for everybody."""
    owners, pairs = headers_with_owners(headers)
    keep = np.asarray(pc.invert(pc.is_in(pairs.field("key"), _names(_DESCRIPTION))))
    if keep.all():
        return headers
    counts = np.bincount(owners[keep], minlength=len(headers))
    edges = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    starts = pa.array(edges, mask=np.append(counts == 0, False))
    return pa.ListArray.from_arrays(starts, pairs.filter(pa.array(keep)), type=headers.type)


def deletes(fields: Fields) -> pa.BooleanArray:
    """Whether each record deletes its key: it has no value, or is a message of Pulsar's without payload."""
    gone = fields.value_sizes < 0
    empty = fields.value_sizes == 0
    if empty.any():
        told = header_values(headers_column(fields), PUBLISH_TIME.decode())
        gone |= empty & np.asarray(told.is_valid())
    return pa.array(gone)


def _ids(fields: Fields, headers: pa.ListArray, partition: int) -> pa.BinaryArray:
    count = len(fields)
    told = header_values(headers, PUBLISH_TIME.decode())
    alone = np.asarray(told.is_valid()) & np.asarray(header_values(headers, BATCH_SIZE.decode()).is_null())
    places = (fields.offsets - fields.batch_offsets).astype(np.uint64)
    # A message for itself has the offset of its entry; the last chunk of several has that of its own.
    entries = np.where(alone, fields.offsets, fields.batch_offsets).astype(np.uint64)
    numbers: list[tuple[int, NDArray[np.uint64]]] = [
        (_LEDGER, np.maximum(fields.leader_epochs, 0).astype(np.uint64)),
        (_ENTRY, entries),
        (_PARTITION, np.full(count, partition & _NONE, np.uint64)),
        (_PLACE, np.where(alone, np.uint64(_NONE), places)),
    ]
    widths = [1 + plain_sizes(column) for _, column in numbers]
    edges = np.zeros(count + 1, np.int64)
    np.cumsum(sum(widths, np.int64(0)), out=edges[1:])
    out = np.zeros(int(edges[-1]), np.uint8)
    at = edges[:-1].copy()
    for tag, column in numbers:
        out[at] = tag
        at = write_plain(out, at + 1, column)
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _published_ms(fields: Fields, headers: pa.ListArray) -> tuple[Ints, NDArray[np.bool_]]:
    """When each message was published, and whether a Pulsar client did."""
    told = header_values(headers, PUBLISH_TIME.decode())
    lengths = np.asarray(pc.fill_null(pc.binary_length(told), 0))
    is_pulsars: NDArray[np.bool_] = lengths == 8
    published = fields.timestamps.copy()
    if is_pulsars.any():
        raw = told.filter(pa.array(is_pulsars)).cast(pa.binary(8))
        whole = np.frombuffer(raw.buffers()[1], ">i8")[raw.offset : raw.offset + len(raw)]
        published[is_pulsars] = whole
    return published, is_pulsars


def _times(times_ms: Ints, unknown: "NDArray[np.bool_]") -> pa.Array:
    micros = np.clip(times_ms, -_MOST_MS, _MOST_MS) * 1000
    return pa.array(micros, pa.int64(), mask=unknown).view(TIMESTAMP)


def _properties(headers: pa.ListArray) -> pa.MapArray:
    owners, pairs = headers_with_owners(headers)
    keep = np.asarray(pc.invert(pc.is_in(pairs.field("key"), _names(_NO_PROPERTIES))))
    owners, pairs = owners[keep], pairs.filter(pa.array(keep))
    names = pairs.field("key")
    # Of a repeated name the last counts: of the numbers that are the same from behind, the first.
    codes = np.asarray(names.dictionary_encode().indices).astype(np.int64)
    together = owners * (int(codes.max(initial=0)) + 1) + codes
    _, firsts = np.unique(together[::-1], return_index=True)
    last = np.sort(len(together) - 1 - firsts)
    edges = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(np.bincount(owners[last], minlength=len(headers)), out=edges[1:])
    chosen = pa.array(last)
    contents = _texts(pairs.field("value").take(chosen)).fill_null("")
    return pa.MapArray.from_arrays(pa.array(edges), names.take(chosen), contents, type=PULSARS["properties"])


def _texts(column: pa.BinaryArray) -> pa.StringArray:
    """As text; what is none in base 64, as Pulsar's consumers get it."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if one is None else _text(one) for one in column.to_pylist()], pa.string())


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
