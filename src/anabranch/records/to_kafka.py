"""Pulsar's entries as Kafka's consumers get them: a batch of records for the messages of an entry.

    message                     record
    partition key               key; decoded if it is marked as base64
    payload                     value; null if it is marked so
    event time, else publish    timestamp
    properties                  headers, in their order
    ordering key                header `pulsar.ordering-key`
    schema version              header `pulsar.schema-version`
    a part of a large one       headers `pulsar.chunk` ("2/5") and `pulsar.chunk-of`: parts stay parts
    one that compaction took    nothing: its offset is a gap

Offsets are those of the messages, so both protocols name the same ones.  An encrypted payload is passed on as
it is, with the header `pulsar.encrypted`, and as one record: only its consumer could tell messages apart.
"""

import base64
import binascii
import struct
import zlib
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, TooLarge
from anabranch.records.batch import HEADER_SIZE, BatchHeader
from anabranch.records.builder import build_batch, empty_batch
from anabranch.records.compression import SNAPPY, ZSTD, decompress
from anabranch.records.entries import read_metadata
from anabranch.records.pulsar_metadata_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata
from anabranch.records.record import Header, Record

_SIZE = struct.Struct(">I")
_SUM_BYTES = 6
_Described = MessageMetadata | SingleMessageMetadata


def as_kafka_batch(header: BatchHeader, batch: memoryview, limit_bytes: int) -> bytes:
    """What a Kafka consumer gets for an entry.  TooLarge if its payload is, unpacked."""
    entry = batch[HEADER_SIZE:]
    metadata = read_metadata(entry)
    records = list(_records(header, metadata, _payload_of(entry), limit_bytes))
    if not records:
        return bytes(empty_batch(header._replace(attributes=0)))
    return bytes(
        build_batch(
            records,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.leader_epoch,
        )
    )


def _payload_of(entry: memoryview) -> memoryview:
    """What follows the metadata."""
    at = _SUM_BYTES if entry[0] == 0x0E and entry[1] == 0x01 else 0
    return entry[at + _SIZE.size + _SIZE.unpack_from(entry, at)[0] :]


def _records(
    header: BatchHeader, metadata: MessageMetadata, payload: memoryview, limit_bytes: int
) -> Iterator[Record]:
    common = _common_headers(metadata)
    offset, published = header.base_offset, header.max_timestamp
    if metadata.encryption_keys:
        headers = (*common, (b"pulsar.encrypted", metadata.encryption_algo.encode()))
        yield _record(offset, published, metadata, bytes(payload), headers)
        return
    plain = memoryview(_unpacked(metadata, payload, limit_bytes))
    if not metadata.HasField("num_messages_in_batch"):
        yield _record(offset, published, metadata, bytes(plain), common)
        return
    at = 0
    for offset in range(header.base_offset, header.last_offset + 1):
        single, at = _single(plain, at)
        value = bytes(plain[at : at + single.payload_size])
        if len(value) != single.payload_size:
            raise Corrupt(f"a message claims {single.payload_size} bytes, {len(value)} are left")
        at += single.payload_size
        if not single.compacted_out:
            yield _record(offset, published, single, value, common)


def _single(plain: memoryview, at: int) -> tuple[SingleMessageMetadata, int]:
    """The metadata of the message at `at`, and where its payload begins."""
    if at + _SIZE.size > len(plain):
        raise Corrupt("a batch has fewer messages than it says")
    (size,) = _SIZE.unpack_from(plain, at)
    at += _SIZE.size
    if at + size > len(plain):
        raise Corrupt(f"a message's metadata claims {size} bytes, {len(plain) - at} are left")
    single = SingleMessageMetadata()
    try:
        single.ParseFromString(plain[at : at + size])  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise Corrupt(f"a message of a batch cannot be read: {error}") from error
    if single.payload_size < 0:
        raise Corrupt(f"a message claims {single.payload_size} bytes")
    return single, at + size


def _record(
    offset: int, published: int, described: _Described, value: bytes, common: tuple[Header, ...]
) -> Record:
    headers = common
    if described.properties:
        headers = (*((_bytes(p.key), _bytes(p.value)) for p in described.properties), *headers)
    if described.HasField("ordering_key"):
        headers = (*headers, (b"pulsar.ordering-key", described.ordering_key))
    return Record(
        offset,
        described.event_time or published,
        _key_of(described),
        None if described.null_value else value,
        headers,
    )


def _key_of(described: _Described) -> bytes | None:
    if not described.HasField("partition_key") or described.null_partition_key:
        return None
    key = _bytes(described.partition_key)
    if described.partition_key_b64_encoded:
        try:
            return base64.b64decode(key, validate=True)
        except binascii.Error:
            return key
    return key


def _bytes(text: str | bytes) -> bytes:
    """The library gives bytes for strings that are not UTF-8."""
    return text if isinstance(text, bytes) else text.encode()


def _common_headers(metadata: MessageMetadata) -> tuple[Header, ...]:
    headers: list[Header] = []
    if metadata.HasField("schema_version"):
        headers.append((b"pulsar.schema-version", metadata.schema_version))
    if metadata.num_chunks_from_msg > 1:
        part = f"{metadata.chunk_id + 1}/{metadata.num_chunks_from_msg}"
        headers += [(b"pulsar.chunk", part.encode()), (b"pulsar.chunk-of", _bytes(metadata.uuid))]
    return tuple(headers)


def _unpacked(metadata: MessageMetadata, payload: memoryview, limit_bytes: int) -> Buffer:
    codec = metadata.compression
    if codec == CompressionType.NONE or metadata.num_chunks_from_msg > 1:  # parts are cut after compression
        return payload
    size = metadata.uncompressed_size
    if size > limit_bytes:
        raise TooLarge(f"a payload grows to {size} bytes, the limit is {limit_bytes}")
    if codec == CompressionType.ZSTD:
        return decompress(ZSTD, payload, size)
    if codec == CompressionType.SNAPPY:
        return decompress(SNAPPY, payload, size)
    if codec == CompressionType.ZLIB:
        return _inflated(payload, size)
    return _unblocked(payload, size)


def _inflated(payload: memoryview, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(payload, size or 1)
    except zlib.error as error:
        raise Corrupt(f"a zlib payload cannot be unpacked: {error}") from error


def _unblocked(payload: memoryview, size: int) -> bytes:
    """Pulsar's lz4 is one bare block."""
    from lz4 import block

    try:
        plain: bytes = block.decompress(payload, uncompressed_size=size)
    except (block.LZ4BlockError, ValueError) as error:
        raise Corrupt(f"an lz4 payload cannot be unpacked: {error}") from error
    return plain
