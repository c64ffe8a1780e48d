"""The records inside a batch, once they are decompressed: one after the other, no index, no padding.

    length         varint    of what follows
    attributes     1 byte    nothing is defined for it
    timestamp      varlong   delta to the batch's base timestamp
    offset         varint    delta to the batch's base offset
    key, value     varint length, -1 for null, then the bytes
    headers        varint count, then as many (key, value), the key never null

Numbers are zigzag: 0, -1, 1, -2 ... are 0, 1, 2, 3 ..., so an odd length is a negative one.  They may
be padded with zero bits, as Kafka lets them, up to the 5 bytes of an int32 or the 10 of an int64.

Three ways to walk, by what the caller needs:

    check_records  is this batch of a producer well formed?  Builds nothing; about 0.7 us per record
    iter_records   the records, for whoever reads them
    iter_spans     keys and where each record lies, for compaction, which copies those it keeps

The first speaks to a producer and raises InvalidRecord.  The others read what was stored, and what is
wrong there is Corrupt.  In stored batches compaction may have left gaps between the offsets.
"""

from collections.abc import Iterator
from typing import NamedTuple

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, InvalidRecord, UnsupportedForFormat
from anabranch.records.batch import HEADER_SIZE, LOG_APPEND_TIME, PULSAR_ENTRY, BatchHeader
from anabranch.records.compression import decompress

Header = tuple[bytes, bytes | None]

_INT64_END = 1 << 63
_LEAST_HEADER_BYTES = 2
_MOST_TIMESTAMP_BYTES = 10


class Record(NamedTuple):
    """One message.  `timestamp` is in milliseconds; header keys are UTF-8, left as they came."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Span(NamedTuple):
    """What decides whether a record stays, and where it lies in the payload."""

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool
    start: int
    end: int


class MissingKeys(InvalidRecord):
    """Records without a key where every record needs one; `indexes` counts from the batch's first."""

    def __init__(self, indexes: list[int]) -> None:
        super().__init__(f"{len(indexes)} records have no key, the first is record {indexes[0]}")
        self.indexes = indexes


class _Malformed(Exception):
    """A rule of the layout is broken.  Turned into the caller's error, with the record's number."""


def payload_of(header: BatchHeader, batch: Buffer, limit_bytes: int) -> Buffer:
    """The records of `batch`, decompressed to at most `limit_bytes`."""
    if header.attributes & PULSAR_ENTRY:
        raise UnsupportedForFormat("the batch holds a Pulsar entry, not Kafka records")
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit_bytes)


def check_records(header: BatchHeader, payload: Buffer, require_key: bool) -> None:
    """InvalidRecord unless `payload` is what a producer may send under `header`.

    That is: `count` records, at least one, with offset deltas 0, 1, 2 ... and not a byte more.
    """
    if header.count < 1 or header.last_offset_delta != header.count - 1:
        raise InvalidRecord(
            f"a batch of {header.count} records cannot have the last offset delta {header.last_offset_delta}"
        )
    keyless: list[int] = []
    end = _walk(payload, header.count, keyless)
    if end != len(payload):
        raise InvalidRecord(f"the {header.count} records take {end} bytes, the batch holds {len(payload)}")
    if keyless and require_key:
        raise MissingKeys(keyless)


def _walk(data: Buffer, count: int, keyless: list[int]) -> int:
    """Where the records end if their layout is sound; those without a key are added to `keyless`.

    Short numbers are read in place: calls would double the time.  Whatever the lengths claim, `at` only
    moves forward and must meet the end of its record, so one comparison a record checks them all.
    """
    at = twice = 0  # where we are; the number of the record, zigzag
    try:
        for twice in range(0, count * 2, 2):
            size = data[at]
            at += 1
            if size > 127:
                if (more := data[at]) < 128:
                    size += (more << 7) - 128
                    at += 1
                else:
                    size, at = _read_varint(data, at - 1)
            start = at
            at += 1
            while data[at] > 127:
                at += 1
            at += 1
            if at - start > _MOST_TIMESTAMP_BYTES:
                _read_varint(data, start + 1, bits=64)
            delta = data[at]
            at += 1
            if delta > 127:
                if (more := data[at]) < 128:
                    delta += (more << 7) - 128
                    at += 1
                else:
                    delta, at = _read_varint(data, at - 1)
            if delta != twice:
                raise _Malformed(f"its offset delta is {_signed(delta)}")
            length = data[at]
            length, at = (length, at + 1) if length < 128 else _read_varint(data, at)
            if not length & 1:
                at += length >> 1
            elif length == 1:
                keyless.append(twice >> 1)
            else:
                raise _Malformed(f"its key claims {_signed(length)} bytes")
            length = data[at]
            at += 1
            if length > 127:
                if (more := data[at]) < 128:
                    length += (more << 7) - 128
                    at += 1
                else:
                    length, at = _read_varint(data, at - 1)
            if not length & 1:
                at += length >> 1
            elif length != 1:
                raise _Malformed(f"its value claims {_signed(length)} bytes")
            at = _skip_headers(data, at) if data[at] else at + 1
            if (at - start) << 1 != size:
                raise _Malformed(f"it claims {_signed(size)} bytes, its fields take {at - start}")
    except (IndexError, _Malformed) as error:
        raise InvalidRecord(_blame(twice >> 1, count, error)) from None
    return at


def iter_records(header: BatchHeader, payload: Buffer) -> Iterator[Record]:
    """The records of a stored batch, from its decompressed `payload`."""
    data = payload if isinstance(payload, bytes) else bytes(payload)
    for _, _, offset, timestamp, key, key_end, value, headers in iter_fields(header, data):
        yield Record(
            offset,
            timestamp,
            None if key < 0 else data[key:key_end],
            None if value < 0 else data[value:headers],
            read_headers(data, headers) if data[headers] else (),
        )


def iter_spans(header: BatchHeader, payload: Buffer) -> Iterator[Span]:
    """The records of a stored batch by key and place, from its decompressed `payload`."""
    data = memoryview(payload)
    for start, end, offset, timestamp, key, key_end, value, _ in iter_fields(header, data):
        yield Span(offset, timestamp, None if key < 0 else bytes(data[key:key_end]), value >= 0, start, end)


_Fields = tuple[int, int, int, int, int, int, int, int]


def iter_fields(header: BatchHeader, data: Buffer) -> Iterator[_Fields]:
    """(start, end, offset, timestamp, key, key end, value, headers) of every record.

    All but offset and timestamp are places in `data`, -1 that of a null; a value ends where headers begin.
    """
    base = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    base_offset, last_delta, count = header.base_offset, header.last_offset_delta * 2, header.count
    at = number = 0
    previous = -1
    try:
        while number < count:
            start = at
            size = data[at]
            size, at = (size, at + 1) if size < 128 else _read_varint(data, at)
            end = at + (size >> 1)
            stamp = data[at + 1]
            stamp, at = (stamp, at + 2) if stamp < 128 else _read_varint(data, at + 1, bits=64)
            delta = data[at]
            delta, at = (delta, at + 1) if delta < 128 else _read_varint(data, at)
            if delta & 1 or not previous < delta <= last_delta:
                raise _Malformed(f"its offset delta is {_signed(delta)}")
            previous = delta
            length = data[at]
            length, at = (length, at + 1) if length < 128 else _read_varint(data, at)
            key = at
            if not length & 1:
                at += length >> 1
            elif length == 1:
                key = -1
            else:
                raise _Malformed(f"its key claims {_signed(length)} bytes")
            key_end = at
            length = data[at]
            length, at = (length, at + 1) if length < 128 else _read_varint(data, at)
            value = at
            if not length & 1:
                at += length >> 1
            elif length == 1:
                value = -1
            else:
                raise _Malformed(f"its value claims {_signed(length)} bytes")
            headers = at
            at = _skip_headers(data, at) if data[at] else at + 1
            if at != end or size & 1:
                raise _Malformed(f"it claims {_signed(size)} bytes, its fields end at {at}, not {end}")
            timestamp = base + _signed(stamp) if append_time is None else append_time
            if not -_INT64_END <= timestamp < _INT64_END:
                timestamp = int64(timestamp)
            yield start, end, base_offset + (delta >> 1), timestamp, key, key_end, value, headers
            number += 1
    except (IndexError, _Malformed) as error:
        raise Corrupt(_blame(number, count, error)) from None
    if at != len(data):
        raise Corrupt(f"the {count} records take {at} bytes, the batch holds {len(data)}")


def _skip_headers(data: Buffer, at: int) -> int:
    count, at = _read_varint(data, at)
    if count & 1 or (count >> 1) * _LEAST_HEADER_BYTES > len(data) - at:
        raise _Malformed(f"it claims {_signed(count)} headers")
    for _ in range(count >> 1):
        length, at = _read_varint(data, at)
        if length & 1:
            raise _Malformed(f"a header's key claims {_signed(length)} bytes")
        length, at = _read_length(data, at + (length >> 1))
        at += max(length, 0)
    return at


def read_headers(data: bytes, at: int) -> tuple[Header, ...]:
    """The headers that `_skip_headers` has found sound."""
    count, at = _read_varint(data, at)
    headers: list[Header] = []
    for _ in range(count >> 1):
        length, at = _read_varint(data, at)
        key = data[at : at + (length >> 1)]
        length, at = _read_length(data, at + (length >> 1))
        headers.append((key, data[at : at + length] if length >= 0 else None))
        at += max(length, 0)
    return tuple(headers)


def _read_length(data: Buffer, at: int) -> tuple[int, int]:
    """A length of -1 (null) or more, and where it ends."""
    length = data[at]
    if length < 128:
        at += 1
    else:
        length, at = _read_varint(data, at)
    if not length & 1:
        return length >> 1, at
    if length == 1:
        return -1, at
    raise _Malformed(f"a length is {_signed(length)}")


def _read_varint(data: Buffer, at: int, bits: int = 32) -> tuple[int, int]:
    """The number at `at`, still zigzag, and where it ends."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    shift = 7
    while (byte := data[at := at + 1]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        if shift >= bits:
            raise _Malformed("a number is too long")
    value |= byte << shift
    if value >> bits:
        raise _Malformed("a number is out of range")
    return value, at + 1


def int64(number: int) -> int:
    """`number` wrapped around as Java's long is, so that absurd timestamps survive as they do there."""
    return (number + _INT64_END) % (2 * _INT64_END) - _INT64_END


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


def _blame(number: int, count: int, error: Exception) -> str:
    what = "the batch ends inside it" if isinstance(error, IndexError) else str(error)
    return f"record {number} of {count}: {what}"
