"""Batches made here, rather than by a producer.

    build_batch   from records: control batches, translation, tests
    build_keyed   from keys and values of one time: what coordinators write, often and many at once
    encode_alike  many of those that differ in a few numbers; `seal_keyed` makes a batch of them
    retain        a stored batch less the records that compaction drops
    empty_batch   what is left of a batch when it drops them all but its producer is still known
    recompress    the same records under another codec, when a topic's compression.type says so

A batch that compaction rewrites keeps its base offset, last offset delta, producer and sequence: they
say which offsets and which sequence numbers it stands for, whichever records are left.  So a record's
bytes, whose offset and timestamp are deltas, are copied as they are.  The exception is the first time
a delete horizon is set: it takes the place of the base timestamp, and every delta changes with it.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from anabranch.base.disk import Buffer
from anabranch.base.errors import TooLarge
from anabranch.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
    read_header,
)
from anabranch.records.compression import NONE, compress
from anabranch.records.record import Header, Record, Span, int64, payload_of

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_CRC = struct.Struct(">I")
_CRC_AT = 17
_MAX_LENGTH = 2**31 - 1
_ZIGZAGS = range(0, 1024, 2)
VARINTS = tuple(bytes((n,) if n < 128 else (n & 127 | 128, n >> 7)) for n in _ZIGZAGS)
"""`varint` of the numbers that most are."""
_SHORT = len(VARINTS)
_NULL = b"\x01"  # a length of -1
_TIMELESS = b"\0\0"  # no attributes, and the time of the batch
_NO_HEADERS = b"\0"


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    codec: int = NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One batch of `records`, which are in order of offset and at least one.

    `base_offset` and `last_offset` are those of the first and last record unless the batch stands
    for more.  With `append_time_ms` the timestamps are the broker's, LogAppendTime.
    """
    base = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    assert base <= records[0].offset, "a record lies before its batch"
    assert records[-1].offset <= last, "a record lies after its batch"
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp = append_time_ms
    if max_timestamp is None:
        max_timestamp = max([record.timestamp for record in records])
    plain = b"".join([encode_record(record, base, base_timestamp) for record in records])
    attributes = (
        codec
        | (0 if append_time_ms is None else LOG_APPEND_TIME)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (0 if delete_horizon_ms is None else DELETE_HORIZON)
    )
    header = BatchHeader(
        base_offset=base,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last - base,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    return seal(header, compress(codec, plain, level))


def build_keyed(
    records: Sequence[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytearray:
    """`build_batch` of records with a key and no headers, from offset 0; a producer's in its transaction."""
    parts: list[bytes] = []
    place_bytes = key_bytes = value_bytes = -2
    start = key_size = value_size = b""
    for delta, (key, value) in enumerate(records):
        place = VARINTS[delta] if delta < _SHORT else varint(delta)
        if (
            len(key) != key_bytes
            or (-1 if value is None else len(value)) != value_bytes
            or len(place) != place_bytes
        ):  # those of a decision are mostly alike
            place_bytes, key_bytes = len(place), len(key)
            value_bytes = -1 if value is None else len(value)
            start, key_size, value_size = _sizes(place_bytes, key_bytes, value_bytes)
        parts += (start, place, key_size, key, value_size, value or b"", _NO_HEADERS)
    return seal_keyed(parts, len(records), timestamp_ms, producer_id, producer_epoch)


def seal_keyed(
    parts: Iterable[bytes],
    count: int,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytearray:
    """The batch of `count` records that `parts` are, as `build_keyed` and `encode_alike` write them."""
    batch = bytearray(HEADER_SIZE)
    batch += b"".join(parts)
    length = len(batch) - OVERHEAD
    if length > _MAX_LENGTH:
        raise TooLarge(f"a batch of {length} bytes does not fit its length field")
    attributes = 0 if producer_id < 0 else TRANSACTIONAL
    fields = (attributes, count - 1, timestamp_ms, timestamp_ms, producer_id, producer_epoch, -1, count)
    HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, *fields)
    _CRC.pack_into(batch, _CRC_AT, crc_of(batch))
    return batch


class Alike(NamedTuple):
    """Keys, or values, that differ in some numbers alone, which stand side by side."""

    before: bytes
    codes: str
    """What `struct` calls the numbers."""
    columns: tuple[Sequence[int], ...]
    after: bytes = b""

    @property
    def size_bytes(self) -> int:
        return len(self.before) + struct.calcsize(">" + self.codes) + len(self.after)


def encode_alike(first: int, keys: Alike, values: Alike) -> list[bytes]:
    """Records of such keys and values, from offset `first` of a batch on."""
    records: list[bytes] = []
    total = first + len(keys.columns[0])
    end = first
    while end < total:
        start, end = end, min(total, _longer_from(end))
        places = VARINTS[start:end] if end <= _SHORT else list(map(varint, range(start, end)))
        head, key_size, value_size = _sizes(len(places[0]), keys.size_bytes, values.size_bytes)
        before = key_size + keys.before
        between = keys.after + value_size + values.before
        after = values.after + _NO_HEADERS
        sizes = (len(head), len(places[0]), len(before), len(between), len(after))
        pack = _layout(sizes, keys.codes, values.codes).pack
        run = slice(start - first, end - first)
        key_numbers = [column[run] for column in keys.columns]
        value_numbers = [column[run] for column in values.columns]
        records += map(
            pack,
            repeat(head),
            places,
            repeat(before),
            *key_numbers,
            repeat(between),
            *value_numbers,
            repeat(after),
        )
    return records


def _longer_from(delta: int) -> int:
    """The next offset delta after `delta` that takes a byte more than it."""
    longer = 64
    while longer <= delta:
        longer <<= 7
    return longer


@lru_cache(64)
def _layout(sizes: tuple[int, int, int, int, int], key_codes: str, value_codes: str) -> struct.Struct:
    head, place, before, between, after = sizes
    return struct.Struct(f">{head}s{place}s{before}s{key_codes}{between}s{value_codes}{after}s")


@lru_cache(256)
def _sizes(place_bytes: int, key_bytes: int, value_bytes: int) -> tuple[bytes, bytes, bytes]:
    """What stands before a record's offset delta, its key and its value; -1 is the size of no value."""
    key_size, value_size = varint(key_bytes), varint(value_bytes)
    before = len(_TIMELESS) + place_bytes + len(key_size) + len(value_size)
    total = before + key_bytes + max(0, value_bytes) + len(_NO_HEADERS)
    return varint(total) + _TIMELESS, key_size, value_size


def retain(
    header: BatchHeader, payload: Buffer, kept: Sequence[Span], delete_horizon_ms: int | None = None
) -> bytearray:
    """The batch of `header` and decompressed `payload` with the records of `kept` alone.

    A delete horizon that is already set stays, whatever `delete_horizon_ms` says.
    """
    if not kept:
        return empty_batch(header)
    view = memoryview(payload)
    if delete_horizon_ms is None or header.delete_horizon_ms is not None:
        plain = b"".join([view[span.start : span.end] for span in kept])
    else:
        plain = b"".join([_rebased(view, span, delete_horizon_ms) for span in kept])
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON, base_timestamp=delete_horizon_ms
        )
    if not header.attributes & LOG_APPEND_TIME:
        header = header._replace(max_timestamp=max(span.timestamp for span in kept))
    return seal(header._replace(count=len(kept)), compress(header.codec, plain))


def empty_batch(header: BatchHeader) -> bytearray:
    """No records, but the offsets, producer and sequence numbers that `header` stood for."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    time = header.max_timestamp
    return seal(header._replace(attributes=attributes, base_timestamp=time, max_timestamp=time, count=0), b"")


def recompress(batch: Buffer, codec: int, level: int | None, limit_bytes: int) -> bytearray:
    """`batch` with its records under `codec`.  TooLarge if they are more than `limit_bytes`."""
    header = read_header(batch)
    plain = payload_of(header, batch, limit_bytes)
    attributes = header.attributes & ~CODEC_MASK | codec
    return seal(header._replace(attributes=attributes), compress(codec, plain, level))


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """A record as it lies in a batch, uncompressed."""
    offset, timestamp, key, value, headers = record
    parts = [
        _TIMELESS if timestamp == base_timestamp else b"\x00" + varint(int64(timestamp - base_timestamp)),
        varint(offset - base_offset),
        _NULL if key is None else varint(len(key)) + key,
        _NULL if value is None else varint(len(value)) + value,
        encode_headers(headers) if headers else _NO_HEADERS,
    ]
    body = b"".join(parts)
    return varint(len(body)) + body


def encode_headers(headers: Sequence[Header]) -> bytes:
    """What a record ends with."""
    parts = [varint(len(headers))]
    for name, content in headers:
        parts.append(varint(len(name)) + name)
        parts.append(_NULL if content is None else varint(len(content)) + content)
    return b"".join(parts)


def _rebased(payload: memoryview, span: Span, base_timestamp: int) -> bytes:
    """The record at `span`, which is known to be sound, with its timestamp counted from another base."""
    at = span.start
    while payload[at] > 127:  # its length
        at += 1
    attributes = payload[at + 1 : at + 2]
    at += 2
    while payload[at] > 127:  # its timestamp delta
        at += 1
    delta = int64(span.timestamp - base_timestamp)
    body = b"".join((attributes, varint(delta), payload[at + 1 : span.end]))
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """A number as records have it: zigzag, seven bits a byte."""
    if 0 <= number < _SHORT:
        return VARINTS[number]
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    encoded = bytearray()
    while zigzag > 127:
        encoded.append(zigzag & 127 | 128)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def seal(header: BatchHeader, payload: Buffer) -> bytearray:
    """The batch of `header` and compressed `payload`, with the length and CRC that belong to it."""
    length = HEADER_SIZE - OVERHEAD + len(payload)
    if length > _MAX_LENGTH:
        raise TooLarge(f"a batch of {length} bytes does not fit its length field")
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    _LENGTH.pack_into(batch, _LENGTH_AT, length)
    _CRC.pack_into(batch, _CRC_AT, crc_of(batch))
    return batch
