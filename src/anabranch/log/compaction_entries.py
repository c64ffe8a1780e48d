"""Pulsar entries in compaction: the keys they have, and what is left of them.

    single message       its key is in the entry's metadata; it stays or goes as a whole
    batch                a key for each.  Messages that go are marked as compacted out and empty, so that the
                         others keep their places; the metadata lists who is left, as Apache Pulsar's does
    a message in chunks  all of them stay as long as it is the last of its key.  It counts from its last chunk
                         on, and the offset that counts is its first chunk's
    encrypted batch      nobody can look into it: it stays, and supersedes nothing

A message without payload, null or empty, deletes its key.  Keys are bytes, as Kafka's: one that a Pulsar
client wrote as base64 is the key that it stands for, so that both protocols mean the same.
"""

import struct
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, UnsupportedForFormat
from anabranch.records.batch import (
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    OVERHEAD,
    PULSAR_ENTRY,
    BatchHeader,
    crc_of,
    read_header,
)
from anabranch.records.entries import read_metadata
from anabranch.records.entry_payloads import GONE, compressed, entry_of, payload_of, uncompressed
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata, SingleMessageMetadata
from anabranch.records.record import iter_spans
from anabranch.records.record import payload_of as payload_in
from anabranch.records.to_kafka import key_of

_SIZE = struct.Struct(">I")
_CRC = struct.Struct(">I")
_CRC_AT = CRC_START - _CRC.size
_MOST_UNFINISHED = 10_000  # messages in chunks whose last chunk has not come


class Member(NamedTuple):
    """One message of an entry."""

    offset: int
    key: bytes | None
    has_value: bool
    """False: it deletes its key."""
    start: int
    """Of its metadata in the payload, with the size of that before it; of a single message 0."""
    end: int


class OpenEntry:
    """An entry that was looked into."""

    __slots__ = ("_entry", "_header", "_metadata", "_plain", "members")

    def __init__(self, header: BatchHeader, batch: Buffer, limit_bytes: int) -> None:
        """Corrupt, TooLarge, UnsupportedForFormat if nobody can."""
        self._header = header
        self._entry = entry = memoryview(batch)[HEADER_SIZE:]
        self._metadata = metadata = read_metadata(entry)
        self._plain = b""
        payload = payload_of(entry)
        if not self._is_batch:
            size = metadata.uncompressed_size if metadata.compression else len(payload)
            has_value = size > 0 and not metadata.null_value
            self.members = [Member(header.base_offset, key_of(metadata), has_value, 0, len(payload))]
            return
        if metadata.encryption_keys:
            raise UnsupportedForFormat(f"the batch at offset {header.base_offset} is encrypted")
        self._plain = uncompressed(metadata, payload, limit_bytes)
        self.members = list(_members(header, memoryview(self._plain)))

    @property
    def _is_batch(self) -> bool:
        return self._metadata.HasField("num_messages_in_batch")

    @property
    def chunk(self) -> tuple[int, int, int] | None:
        """What message it is a chunk of, its number and how many there are; None if it is whole."""
        metadata = self._metadata
        if metadata.num_chunks_from_msg < 2 or self._is_batch:
            return None
        return hash((metadata.producer_name, metadata.uuid)), metadata.chunk_id, metadata.num_chunks_from_msg

    def retain(self, kept: Collection[Member], delete_horizon_ms: int | None = None) -> bytearray:
        """The stored batch with the messages of `kept` alone, of which there is one at least."""
        header = self._header
        if delete_horizon_ms is not None and header.delete_horizon_ms is None:
            header = header._replace(
                attributes=header.attributes | DELETE_HORIZON, base_timestamp=delete_horizon_ms
            )
        if len(kept) == len(self.members):
            return _seal(header, self._entry)
        metadata, plain = MessageMetadata(), memoryview(self._plain)
        metadata.CopyFrom(self._metadata)
        by_index = {member.offset - header.base_offset: member for member in kept}
        del metadata.compacted_batch_indexes[:]
        metadata.compacted_batch_indexes.extend(by_index)
        payload = b"".join(
            GONE if (member := by_index.get(index)) is None else plain[member.start : member.end]
            for index in range(header.last_offset_delta + 1)
        )
        metadata.uncompressed_size = len(payload)
        # Whoever reads it sees by the count that some are gone, without looking into it.
        entry = entry_of(metadata, compressed(metadata.compression, payload))
        return _seal(header._replace(count=len(kept)), entry)


def _members(header: BatchHeader, plain: memoryview) -> Iterator[Member]:
    """The messages of a batch that are not compacted out already."""
    at = 0
    single = SingleMessageMetadata()
    for offset in range(header.base_offset, header.last_offset + 1):
        start = at
        if at + _SIZE.size > len(plain):
            raise Corrupt(f"the batch at offset {header.base_offset} has fewer messages than it says")
        (size,) = _SIZE.unpack_from(plain, at)
        at += _SIZE.size + size
        try:
            single.ParseFromString(bytes(plain[start + _SIZE.size : at]))
        except DecodeError as error:
            raise Corrupt(f"message {offset} cannot be read: {error}") from error
        if single.payload_size < 0 or at + single.payload_size > len(plain):
            raise Corrupt(f"message {offset} claims {single.payload_size} bytes, {len(plain) - at} are left")
        at += single.payload_size
        if not single.compacted_out:
            has_value = single.payload_size > 0 and not single.null_value
            yield Member(offset, key_of(single), has_value, start, at)


def _seal(header: BatchHeader, entry: Buffer) -> bytearray:
    size = HEADER_SIZE + len(entry)
    batch = bytearray(HEADER.pack(*header._replace(length=size - OVERHEAD)))
    batch += entry
    _CRC.pack_into(batch, _CRC_AT, crc_of(batch))
    return batch


def last_offset_in(batch: Buffer, limit_bytes: int) -> int:
    """Of the last message of a stored batch, of which compaction may have taken some, but not all."""
    header = read_header(batch)
    if header.count > header.last_offset_delta:
        return header.last_offset
    if header.attributes & PULSAR_ENTRY:
        return OpenEntry(header, batch, limit_bytes).members[-1].offset
    return max(span.offset for span in iter_spans(header, payload_in(header, batch, limit_bytes)))


class Superseding:
    """Which keys an entry supersedes, and from which offset on they count; entries come in their order."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: OrderedDict[int, int] = OrderedDict()  # first chunks by their message

    def keys(self, entry: OpenEntry) -> Iterator[tuple[bytes, int]]:
        chunk = entry.chunk
        if chunk is None:
            yield from ((member.key, member.offset) for member in entry.members if member.key is not None)
            return
        message, number, count = chunk
        (member,) = entry.members
        if number == 0:
            self._begun[message] = member.offset
            if len(self._begun) > _MOST_UNFINISHED:
                self._begun.popitem(last=False)
        elif number == count - 1:
            first = self._begun.pop(message, None)
            # One whose first chunk was not met supersedes nothing: rather two of a key than none.
            if first is not None and member.key is not None:
                yield member.key, first
