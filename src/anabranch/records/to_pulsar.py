"""Kafka's batches as Pulsar's consumers get them: an entry with a message for every offset of the batch.

    record             message
    key                partition key; base64, and marked so, if it is not UTF-8
    value              payload; null is marked
    timestamp          event time; the batch's largest is the publish time
    headers            properties: of a repeated name the last, bytes that are not UTF-8 in base64
    header `pulsar.ordering-key`      ordering key
    one that compaction took          a message that is marked as compacted out

So entry id + batch index is the offset here as everywhere.  Where properties cannot say what the headers did
(a name twice, bytes, null) the property `kafka.headers` has all of them, in order, as `headers` writes them.

Consumers that share a subscription by keys get every message as an entry of its own, since a batch may have
messages of several keys.

An entry is not compressed unless it would be larger than clients take; then it is, and what is too large all
the same is TooLarge.  Every message is written by hand: a protobuf object each would take twice the time.
"""

from collections.abc import Iterable, Iterator

from anabranch.base.disk import Buffer
from anabranch.base.errors import TooLarge
from anabranch.records.batch import BatchHeader
from anabranch.records.compression import ZSTD, compress
from anabranch.records.entries import MAX_MESSAGES
from anabranch.records.entry_payloads import GONE, entry_of
from anabranch.records.headers import HEADERS, ORDERING_KEY, as_text, write_headers
from anabranch.records.pulsar_metadata_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata
from anabranch.records.record import Header, iter_fields, iter_records, read_headers

PRODUCER_NAME = "kafka"

_FEW = 32  # entries; some 100 us
_PIECE = 3 * 64  # parts of messages, three each; some 100 us
_FAST_LEVEL = 1
_SHORT = 512
_VARINTS = tuple(bytes((n,) if n < 128 else (n & 127 | 128, n >> 7)) for n in range(_SHORT))
_KEYS = tuple(b"\x12" + varint for varint in _VARINTS)  # partition_key
_PAYLOAD = b"\x18"  # payload_size
_PAYLOADS = tuple(_PAYLOAD + varint for varint in _VARINTS)
_SIZES = tuple(n.to_bytes(4, "big") for n in range(_SHORT))
_SHORT_PROPERTY = _SHORT - 8
_SPECIAL = frozenset((ORDERING_KEY, HEADERS.encode()))
_EVENT_TIME = b"\x28"


def entry_pieces(header: BatchHeader, payload: Buffer) -> Iterator[bytes]:
    """The messages of a batch, from its decompressed `payload`; a few at a time, others may have a turn."""
    if header.last_offset_delta >= MAX_MESSAGES:
        raise TooLarge(
            f"a batch of {header.last_offset_delta + 1} messages; an entry has {MAX_MESSAGES} at most"
        )
    data = payload if type(payload) is bytes else bytes(payload)
    out: list[bytes] = []
    expected = header.base_offset
    stamp, time = -1, b""
    for _, _, offset, timestamp, key, key_end, value, end in iter_fields(header, data):
        if offset != expected:
            out.append(GONE * (offset - expected))
        expected = offset + 1
        if timestamp != stamp:
            stamp, time = timestamp, _EVENT_TIME + _varint(timestamp) if timestamp > 0 else b""
        name = data[key:key_end] if key >= 0 else b""
        size = end - value
        headers = read_headers(data, end) if data[end] else ()
        properties = _properties(headers) if headers else b""
        if properties is None or value < 0 or len(name) >= _SHORT or not name.isascii():
            out.append(
                _message(
                    timestamp,
                    name if key >= 0 else None,
                    data[value:end] if value >= 0 else None,
                    headers,
                )
            )
        else:
            keyed = _KEYS[len(name)] + name if key >= 0 else b""
            described = (
                properties + keyed + (_PAYLOADS[size] if size < _SHORT else _PAYLOAD + _varint(size)) + time
            )
            length = len(described)
            out += (
                _SIZES[length] if length < _SHORT else length.to_bytes(4, "big"),
                described,
                data[value:end],
            )
        if len(out) > _PIECE:
            yield b"".join(out)
            out.clear()
    out.append(GONE * (header.last_offset + 1 - expected))
    yield b"".join(out)


def message_pieces(header: BatchHeader, payload: Buffer) -> Iterator[list[tuple[int, bytes]]]:
    """The records of a batch as entries of their own, each by its offset; a few at a time, too."""
    data = payload if type(payload) is bytes else bytes(payload)
    out: list[tuple[int, bytes]] = []
    sequence = max(header.base_sequence, 0)
    for record in iter_records(header, data):
        value = record.value or b""
        metadata = MessageMetadata(
            producer_name=PRODUCER_NAME,
            sequence_id=sequence + record.offset - header.base_offset,
            publish_time=max(header.max_timestamp, 0),
            uncompressed_size=len(value),
        )
        if record.value is None:
            metadata.null_value = True
        describe(metadata, record.timestamp, record.key, record.headers)
        out.append((record.offset, entry_of(metadata, value)))
        if len(out) > _FEW:
            yield out
            out = []
    yield out


def gaps_in(header: BatchHeader, payload: Buffer) -> tuple[tuple[int, int], ...]:
    """The offsets of a batch, from one up to another, that compaction has left no records at."""
    if header.count > header.last_offset_delta:
        return ()
    gaps: list[tuple[int, int]] = []
    expected = header.base_offset
    for _, _, offset, *_ in iter_fields(header, payload):
        if offset != expected:
            gaps.append((expected, offset))
        expected = offset + 1
    if expected <= header.last_offset:
        gaps.append((expected, header.last_offset + 1))
    return tuple(gaps)


def seal_entry(header: BatchHeader, pieces: Iterable[bytes], fits_bytes: int) -> bytes:
    """The entry of `pieces`, all that `entry_pieces` gave.  TooLarge if clients cannot take it."""
    payload: Buffer = b"".join(pieces)
    metadata = MessageMetadata(
        producer_name=PRODUCER_NAME,
        sequence_id=max(header.base_sequence, 0),
        publish_time=max(header.max_timestamp, 0),
        num_messages_in_batch=header.last_offset_delta + 1,
        uncompressed_size=len(payload),
    )
    if len(payload) > fits_bytes:
        metadata.compression = CompressionType.ZSTD
        payload = compress(ZSTD, payload, _FAST_LEVEL)
        if len(payload) > fits_bytes:
            raise TooLarge(f"a batch of {len(payload)} bytes, compressed; Pulsar's clients take {fits_bytes}")
    return entry_of(metadata, payload)


def _properties(headers: tuple[Header, ...]) -> bytes | None:
    """Headers as properties, None if they are not short and plain."""
    parts: list[bytes] = []
    names: set[bytes] = set()
    for name, value in headers:
        if (
            value is None
            or len(name) + len(value) > _SHORT_PROPERTY
            or not (name.isascii() and value.isascii())
        ):
            return None
        if name in _SPECIAL or name in names:
            return None
        names.add(name)
        inner = b"\x0a" + _VARINTS[len(name)] + name + b"\x12" + _VARINTS[len(value)] + value
        parts.append(b"\x0a" + _VARINTS[len(inner)] + inner)
    return b"".join(parts)


def _message(timestamp: int, key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> bytes:
    """A message of whatever kind."""
    single = SingleMessageMetadata(payload_size=0 if value is None else len(value))
    if value is None:
        single.null_value = True
    describe(single, timestamp, key, headers)
    described = single.SerializeToString()
    return b"".join((len(described).to_bytes(4, "big"), described, value or b""))


def describe(
    described: MessageMetadata | SingleMessageMetadata,
    timestamp: int,
    key: bytes | None,
    headers: tuple[Header, ...],
) -> None:
    """Put a record's key, time and headers where a message has them."""
    if timestamp > 0:
        described.event_time = timestamp
    if key is not None:
        described.partition_key, is_encoded = as_text(key)
        if is_encoded:
            described.partition_key_b64_encoded = True
    properties: dict[str, str] = {}
    is_exact = True
    for number, (name, content) in enumerate(headers, 1):
        if name == ORDERING_KEY and content is not None:
            described.ordering_key = content
            is_exact &= number == len(headers)
            continue
        text, is_encoded = as_text(name)
        is_exact &= not is_encoded and content is not None and text not in properties and text != HEADERS
        properties[text], is_encoded = as_text(content or b"")
        is_exact &= not is_encoded
    if not is_exact:
        properties[HEADERS] = write_headers(headers)
    for text, content_text in properties.items():
        described.properties.add(key=text, value=content_text)


def _varint(number: int) -> bytes:
    if number < _SHORT:
        return _VARINTS[number]
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
