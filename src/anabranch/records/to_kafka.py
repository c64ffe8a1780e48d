"""Pulsar's entries as Kafka's consumers get them: a batch of records for the messages of an entry.

    message                     record
    partition key               key; decoded if it is marked as base64
    payload                     value; null if it is marked so
    event time, else publish    timestamp; the broker's where the topic keeps LogAppendTime
    properties                  headers, in their order; `kafka.headers` gives the headers it lists
    ordering key                header `pulsar.ordering-key`
    schema version              header `pulsar.schema-version`
    in a transaction            in a transaction, of the same producer id
    one that compaction took    nothing: its offset is a gap
    encrypted                   one record for the whole entry: only its consumer could tell messages apart.
                                Header `pulsar.encrypted` has the algorithm and `pulsar.metadata` the
                                MessageMetadata, with which Pulsar's libraries can decrypt it

A reader that wants messages `described` gets three more headers: `pulsar.producer-name`,
`pulsar.publish-time` (8 bytes, in ms, the highest first) and, of a message in a batch, `pulsar.batch-size`.

A large message that was sent in chunks is one record, at the offset of its last chunk; the others are gaps
(`partition/chunked.py` brings them together).  Chunks that are encrypted each for itself stay records of
their own, with the headers `pulsar.chunk` ("2/5") and `pulsar.chunk-of`.

Offsets are those of the messages, so both protocols name the same ones.  The metadata of a message in a
batch is read by hand where it is as clients usually write it, and by the protobuf library else.
"""

import base64
import binascii
import struct
from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt
from anabranch.records.batch import HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader
from anabranch.records.builder import VARINTS, empty_batch, encode_headers, encode_record, seal, varint
from anabranch.records.entries import read_metadata
from anabranch.records.entry_payloads import LIMIT_BYTES, payload_of, uncompressed
from anabranch.records.headers import (
    BATCH_SIZE,
    CHUNK,
    CHUNK_OF,
    ENCRYPTED,
    HEADERS,
    METADATA,
    ORDERING_KEY,
    PRODUCER_NAME,
    PUBLISH_TIME,
    SCHEMA_VERSION,
    as_bytes,
    read_headers_text,
)
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata, SingleMessageMetadata
from anabranch.records.record import Header, Record

_Described = MessageMetadata | SingleMessageMetadata

_SIZE = struct.Struct(">I")
_PIECE = 2 * 64  # parts of messages, two each; some 100 us
_LATEST_MS = (1 << 63) - 1
_SHORT = len(VARINTS)
_LISTED = HEADERS.encode()
_PROPERTY, _KEY, _PAYLOAD, _EVENT_TIME, _SEQUENCE = 0x0A, 0x12, 0x18, 0x28, 0x40  # tags of metadata
_MOST_SHORT = 100  # properties
_Usual = tuple[bytes, int, bytes, Sequence[bytes]]
"""Key as a record has it, size of the payload, event time as it is written, headers as a record has them."""
_TIME_BYTES = 6  # of this century's, in milliseconds
_NULL = b"\x01"
_UNCHANGED = b"\0\0"  # no attributes, the time of the batch


def as_kafka_batch(
    header: BatchHeader, batch: memoryview, limit_bytes: int = LIMIT_BYTES, *, described: bool = False
) -> bytes:
    """What a Kafka consumer gets for an entry.  TooLarge if its payload is, unpacked."""
    entry = batch[HEADER_SIZE:]
    metadata = read_metadata(entry)
    if is_chunk(metadata):
        return as_gap(header)
    payload: Buffer = payload_of(entry)
    if not metadata.encryption_keys:
        payload = uncompressed(metadata, payload_of(entry), limit_bytes)
    made = KafkaBatch(header, metadata, described=described)
    return made.sealed(list(made.pieces(payload)))


def is_chunk(metadata: MessageMetadata) -> bool:
    """Whether an entry is a part of a message, which others have to be put to."""
    return metadata.num_chunks_from_msg > 1 and not metadata.encryption_keys


def as_gap(header: BatchHeader) -> bytes:
    """A batch without records for an entry that has none for Kafka: its readers go on behind it."""
    return bytes(
        empty_batch(header._replace(attributes=header.attributes & (TRANSACTIONAL | LOG_APPEND_TIME)))
    )


class KafkaBatch:
    """One entry on its way to a batch."""

    def __init__(self, header: BatchHeader, metadata: MessageMetadata, *, described: bool = False) -> None:
        self._header = header
        self._metadata = metadata
        self._base_ms = header.max_timestamp
        self._newest_ms = -1 << 63
        self._is_stamped = bool(header.attributes & LOG_APPEND_TIME)
        self._common = _common_headers(metadata)
        if described:
            self._common += _description(metadata)
        self._count = 0

    def pieces(self, payload: Buffer) -> Iterator[bytes]:
        """The records of a payload that is not compressed; so many at a time that others may have a turn."""
        metadata = self._metadata
        if metadata.encryption_keys:
            algorithm = (ENCRYPTED, as_bytes(metadata.encryption_algo))
            self._common += (algorithm, (METADATA, metadata.SerializeToString()))
            if metadata.num_chunks_from_msg > 1:
                part = f"{metadata.chunk_id + 1}/{metadata.num_chunks_from_msg}"
                self._common += ((CHUNK, part.encode()), (CHUNK_OF, as_bytes(metadata.uuid)))
            yield self._record(self._header.base_offset, metadata, bytes(payload))
        elif metadata.HasField("num_messages_in_batch"):
            yield from self._batched(bytes(payload))
        else:
            yield self._record(self._header.last_offset, metadata, bytes(payload))

    def sealed(self, pieces: list[bytes]) -> bytes:
        """The batch of all that `pieces` gave, which are used up."""
        header = self._header
        if not self._count:
            return as_gap(header)
        header = header._replace(
            attributes=header.attributes & (TRANSACTIONAL | LOG_APPEND_TIME),
            base_timestamp=self._base_ms,
            max_timestamp=self._newest_ms,
            count=self._count,
        )
        payload = b"".join(pieces)
        pieces.clear()
        batch = seal(header, payload)
        del payload  # large ones would be there several times over
        return bytes(batch)

    # --- a batch

    def _batched(self, data: bytes) -> Iterator[bytes]:
        """Messages one after the other: u32 size, SingleMessageMetadata, payload."""
        out: list[bytes] = []
        at, end = 0, len(data)
        base = self._header.base_offset
        common, more = len(self._common), encode_headers(self._common)[1:]
        last: bytes | None = None
        stamp = _UNCHANGED
        for offset in range(base, self._header.last_offset + 1):
            if len(out) > _PIECE:
                yield b"".join(out)
                out.clear()
            start = at + 4
            if start > end:
                raise Corrupt("a batch has fewer messages than it says")
            at = start + _SIZE.unpack_from(data, at)[0]
            if at > end:
                raise Corrupt(f"a message's metadata claims {at - start} bytes, {end - start} are left")
            found = _usual(data, start, at)
            if found is None:
                record, at = self._unusual(offset, data, start, at)
                out += (record, b"")
                continue
            key, size, time, headers = found
            value = data[at : at + size]
            if len(value) != size:
                raise Corrupt(f"a message claims {size} bytes, {len(value)} are left")
            at += size
            if time != last:
                last, stamp = time, self._stamp(time)
            delta = offset - base
            body = b"".join(
                (
                    stamp,
                    VARINTS[delta] if delta < _SHORT else varint(delta),
                    key,
                    VARINTS[size] if size < _SHORT else varint(size),
                    value,
                    VARINTS[len(headers) + common],
                    *headers,
                    more,
                )
            )
            length = len(body)
            out += (VARINTS[length] if length < _SHORT else varint(length), body)
            self._count += 1
        yield b"".join(out)

    def _stamp(self, time: bytes) -> bytes:
        """Attributes and timestamp of a record whose event time is written as `time`."""
        event_ms = sum((byte & 127) << 7 * i for i, byte in enumerate(time))
        if not event_ms or self._is_stamped:
            self._newest_ms = max(self._newest_ms, self._base_ms)
            return _UNCHANGED
        self._newest_ms = max(self._newest_ms, event_ms)
        return b"\0" + varint(event_ms - self._base_ms)

    # --- a message of whatever kind

    def _unusual(self, offset: int, data: bytes, start: int, at: int) -> tuple[bytes, int]:
        """The record of a message whose metadata ends at `at`, or nothing; and where its payload ends."""
        single = _single(data[start:at])
        size = single.payload_size
        if size < 0 or at + size > len(data):
            raise Corrupt(f"a message claims {size} bytes, {len(data) - at} are left")
        if single.compacted_out:
            return b"", at + size
        return self._record(offset, single, data[at : at + size]), at + size

    def _record(self, offset: int, described: _Described, value: bytes) -> bytes:
        timestamp = self._base_ms
        if 0 < described.event_time <= _LATEST_MS and not self._is_stamped:
            timestamp = described.event_time
        self._newest_ms = max(self._newest_ms, timestamp)
        self._count += 1
        record = Record(
            offset,
            timestamp,
            key_of(described),
            None if described.null_value else value,
            self._headers(described),
        )
        return encode_record(record, self._header.base_offset, self._base_ms)

    def _headers(self, described: _Described) -> tuple[Header, ...]:
        headers: list[Header] = [(as_bytes(each.key), as_bytes(each.value)) for each in described.properties]
        for name, value in headers:
            if name == _LISTED and (listed := read_headers_text(value or b"")) is not None:
                headers = list(listed)
                break
        if described.HasField("ordering_key"):
            ordering = (ORDERING_KEY, described.ordering_key)
            if ordering not in headers:
                headers.append(ordering)
        return (*headers, *self._common)


def _usual(data: bytes, at: int, end: int) -> _Usual | None:
    """A message's metadata.

    None unless it has nothing but short properties, a short key, its size, a time, a number, in that order.
    """
    headers: Sequence[bytes] = ()
    try:
        if at < end and data[at] == _PROPERTY:
            headers, at = _short_properties(data, at, end)
        key = _NULL
        if at < end and data[at] == _KEY:
            size = data[at + 1]
            if size > 127:
                return None
            key = VARINTS[size] + data[at + 2 : at + 2 + size]
            at += 2 + size
        if at + 1 >= end or data[at] != _PAYLOAD:
            return None
        size = data[at + 1]
        at += 2
        if size > 127:
            more = data[at]
            if more > 127:
                return None
            size += (more << 7) - 128
            at += 1
        time = b""
        if at < end and data[at] == _EVENT_TIME:
            time = data[at + 1 : at + 1 + _TIME_BYTES]
            if len(time) < _TIME_BYTES or time[-1] > 127 or min(time[:-1]) < 128:
                return None
            at += 1 + _TIME_BYTES
        if at < end and data[at] == _SEQUENCE:
            at += 1
            while at < end and data[at] > 127:
                at += 1
            at += 1
        return (key, size, time, headers) if at == end else None
    except IndexError:
        return None


def _short_properties(data: bytes, at: int, end: int) -> tuple[list[bytes], int]:
    """The properties at `at` as headers, and where they end; IndexError if they are not short and plain."""
    headers: list[bytes] = []
    while at < end and data[at] == _PROPERTY:
        size, name, middle = data[at + 1], data[at + 3], at + 4 + data[at + 3]
        value = data[middle + 1]
        if (
            size > 127
            or data[at + 2] != _PROPERTY  # the tag of a key, too
            or data[middle] != _KEY  # that of a value
            or middle + 2 + value != at + 2 + size
            or len(headers) >= _MOST_SHORT
        ):
            raise IndexError
        text = data[at + 4 : middle]
        if text == _LISTED:
            raise IndexError
        at = middle + 2 + value
        headers.append(VARINTS[name] + text + VARINTS[value] + data[middle + 2 : at])
    return headers, at


def _single(data: bytes) -> SingleMessageMetadata:
    single = SingleMessageMetadata()
    try:
        single.ParseFromString(data)
    except DecodeError as error:
        raise Corrupt(f"a message of a batch cannot be read: {error}") from error
    if not single.IsInitialized():
        raise Corrupt("a message of a batch does not say how large it is")
    return single


def key_of(described: _Described) -> bytes | None:
    """The key of a message as Kafka has it."""
    if not described.HasField("partition_key") or described.null_partition_key:
        return None
    key = as_bytes(described.partition_key)
    if described.partition_key_b64_encoded:
        try:
            return base64.b64decode(key, validate=True)
        except binascii.Error:
            return key
    return key


def _description(metadata: MessageMetadata) -> tuple[Header, ...]:
    """What Pulsar's clients are told of a message beside what is a record's anyway."""
    told = (
        (PRODUCER_NAME, as_bytes(metadata.producer_name)),
        (PUBLISH_TIME, (metadata.publish_time & _LATEST_MS).to_bytes(8, "big")),
    )
    if not metadata.HasField("num_messages_in_batch") or metadata.encryption_keys:
        return told
    return (*told, (BATCH_SIZE, b"%d" % metadata.num_messages_in_batch))


def _common_headers(metadata: MessageMetadata) -> tuple[Header, ...]:
    if metadata.HasField("schema_version"):
        return ((SCHEMA_VERSION, metadata.schema_version),)
    return ()
