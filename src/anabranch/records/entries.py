"""Pulsar entries in the log: what a Pulsar producer sent, inside the envelope that everything has.

    61-byte batch header, PULSAR_ENTRY set │ 0x0e01 │ crc32c │ u32 size │ MessageMetadata │ payload
    count = the entry's messages           └──────── as the client sent it, byte for byte ────────┘

The entry's own checksum covers everything after itself and may be missing (with 0x0e01); the header's covers
all of it.  What consumers get is the stored bytes after the header, so nothing is decoded, decompressed or
summed up again on the way out.

A batch that a Kafka producer wrote becomes an entry when it is read (records/translate.py).  Control
batches are none.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, Invalid
from anabranch.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    PULSAR_ENTRY,
    BatchHeader,
)
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from anabranch.records.translate import as_pulsar_entry

CHECKSUM_MAGIC = 0x0E01
BROKER_METADATA_MAGIC = 0x0E02
MAX_MESSAGES = 1 << 20  # of a batch; clients stop at 1,000 unless told otherwise

_CHECKED = struct.Struct(">HII")
_SUM_END = 6
_SIZE = struct.Struct(">I")
_CRC = struct.Struct(">I")
_NO_PRODUCER = (-1, -1, -1)


class Entry(NamedTuple):
    """A stored batch as Pulsar consumers get it."""

    offset: int
    """Of its first message."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    """How many messages, and so offsets, it has."""
    ledger: int
    timestamp_ms: int
    payload: memoryview
    """What follows the command in a MESSAGE frame."""

    @property
    def end(self) -> int:
        return self.offset + self.count


class ChecksumMismatch(Corrupt):
    """An entry is not what its producer sent."""


def read_metadata(entry: Buffer) -> MessageMetadata:
    """The metadata of an entry.  Corrupt if there is none."""
    view = memoryview(entry)
    at = _SUM_END if len(view) > _SUM_END and view[0] == 0x0E and view[1] == 0x01 else 0
    if len(view) < at + _SIZE.size:
        raise Corrupt(f"an entry of {len(view)} bytes has no metadata")
    (size,) = _SIZE.unpack_from(view, at)
    at += _SIZE.size
    if at + size > len(view):
        raise Corrupt(f"the metadata of an entry claims {size} bytes, {len(view) - at} are there")
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(view[at : at + size])  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise Corrupt(f"the metadata of an entry cannot be read: {error}") from error
    if not metadata.IsInitialized():
        raise Corrupt("the metadata of an entry lacks a producer, a sequence or a time")
    return metadata


def verify(entry: memoryview) -> None:
    """ChecksumMismatch if the entry has a checksum and it is wrong."""
    if len(entry) < _CHECKED.size or entry[0] != 0x0E or entry[1] != 0x01:
        return
    if crc32c(entry[_SUM_END:]) != _CRC.unpack_from(entry, 2)[0]:
        raise ChecksumMismatch("the checksum of the message does not match; it was damaged on the way")


def count_of(metadata: MessageMetadata) -> int:
    """How many messages an entry with this metadata has.  Invalid if no entry can."""
    count: int = metadata.num_messages_in_batch
    if not 0 < count <= MAX_MESSAGES:
        raise Invalid(f"a batch of {count} messages: the number must be in 1..{MAX_MESSAGES}")
    return count


def enclose(entry: memoryview, count: int, publish_time_ms: int) -> bytearray:
    """The batch to store for an entry of `count` messages.  The log gives it its place."""
    size = HEADER_SIZE + len(entry)
    batch = bytearray(size)
    HEADER.pack_into(
        batch, 0, 0, size - OVERHEAD, -1, MAGIC, 0, PULSAR_ENTRY,
        count - 1, publish_time_ms, publish_time_ms, *_NO_PRODUCER, count,
    )  # fmt: skip
    batch[HEADER_SIZE:] = entry
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def as_entry(header: BatchHeader, batch: memoryview) -> Entry:
    """A stored batch, which is no control batch, as consumers get it."""
    if header.attributes & PULSAR_ENTRY:
        payload = batch[HEADER_SIZE:]
    else:
        payload = memoryview(as_pulsar_entry(header, batch))
    return Entry(
        header.base_offset, header.last_offset_delta + 1, header.leader_epoch, header.max_timestamp, payload
    )
