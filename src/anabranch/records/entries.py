"""Pulsar entries in the log: what a Pulsar producer sent, inside the envelope that everything has.

    61-byte batch header, PULSAR_ENTRY set │ 0x0e01 │ crc32c │ u32 size │ MessageMetadata │ payload
    count = the entry's messages           └──────── as the client sent it, byte for byte ────────┘

The entry's own checksum covers everything after itself and may be missing (with 0x0e01); the header's covers
all of it.  What consumers get is the stored bytes after the header, so nothing is decoded, decompressed or
summed up again on the way out.

A batch that a Kafka producer wrote becomes an entry when it is read (records/to_pulsar.py).  Control
batches are none.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, Invalid
from anabranch.records.batch import BatchHeader
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata

MAX_MESSAGES = 1 << 20  # of a batch; clients stop at 1,000 unless told otherwise

_CHECKED = struct.Struct(">HII")
_SUM_END = 6
_SIZE = struct.Struct(">I")
_CRC = struct.Struct(">I")


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
    gaps: tuple[tuple[int, int], ...] = ()
    """Offsets of it, from one up to another, that nobody gets or acknowledges: compaction took them."""

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


def as_entry(header: BatchHeader, payload: memoryview, gaps: tuple[tuple[int, int], ...] = ()) -> Entry:
    """A stored batch, which is no control batch, with what consumers get of it."""
    return Entry(
        header.base_offset,
        header.last_offset_delta + 1,
        header.leader_epoch,
        header.max_timestamp,
        payload,
        gaps,
    )
