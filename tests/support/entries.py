"""Pulsar entries as clients send them."""

import struct
from typing import Any, NamedTuple

from crc32c import crc32c

from anabranch.base.disk import Buffer
from anabranch.records.batch import BatchHeader
from anabranch.records.entry_batches import enclose_all
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata, SingleMessageMetadata
from anabranch.records.record import payload_of
from anabranch.records.to_pulsar import entry_pieces, seal_entry

PUBLISHED_MS = 1_790_000_000_000


def entry_of(
    payload: bytes,
    *,
    count: int = 1,
    key: str | None = None,
    producer: str = "p",
    sequence: int = 0,
    publish_time: int = PUBLISHED_MS,
    **more: Any,
) -> bytes:
    """An entry with its checksum; `more` are fields of its metadata."""
    metadata = MessageMetadata(
        producer_name=producer, sequence_id=sequence, publish_time=publish_time, **more
    )
    if key is not None:
        metadata.partition_key = key
    if count != 1:
        metadata.num_messages_in_batch = count
    described = metadata.SerializeToString()
    body = struct.pack(">I", len(described)) + described + payload
    return struct.pack(">HI", 0x0E01, crc32c(body)) + body


def batch_of(*values: bytes, **more: Any) -> bytes:
    """A batch entry, a message a value."""
    messages = []
    for value in values:
        described = SingleMessageMetadata(payload_size=len(value)).SerializeToString()
        messages.append(struct.pack(">I", len(described)) + described + value)
    return entry_of(b"".join(messages), count=len(values), **more)


class _Sent(NamedTuple):
    messages: int
    publish_time_ms: int
    payload: memoryview


def enclosed(
    entry: bytes,
    count: int = 1,
    publish_time_ms: int = PUBLISHED_MS,
    *,
    offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    """The batch that is stored for an entry of `count` messages."""
    sent = _Sent(count, publish_time_ms, memoryview(entry))
    return memoryview(enclose_all([sent], offset, leader_epoch)[0])


def as_pulsar_entry(header: BatchHeader, batch: Buffer, limit_bytes: int = 1 << 26) -> bytes:
    """What a Pulsar consumer gets for a batch that a Kafka producer wrote."""
    return seal_entry(header, entry_pieces(header, payload_of(header, batch, limit_bytes)), 1 << 26)


def messages_of(entry: bytes | memoryview) -> list[tuple[SingleMessageMetadata, bytes]]:
    """The messages of a batch entry that is not compressed."""
    data = bytes(entry)
    at = 6 if data[:2] == b"\x0e\x01" else 0
    (size,) = struct.unpack_from(">I", data, at)
    at += 4 + size
    found = []
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        single = SingleMessageMetadata.FromString(data[at + 4 : at + 4 + size])
        at += 4 + size
        found.append((single, data[at : at + single.payload_size]))
        at += single.payload_size
    return found
