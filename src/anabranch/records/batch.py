"""The batch envelope: the 61-byte header that stands before everything we store.

    offset  size  field
         0     8  base offset                 patched by the log, outside the CRC
         8     4  length of what follows      from `leader epoch` to the end
        12     4  leader epoch                patched by the log, outside the CRC
        16     1  magic                       always 2
        17     4  CRC-32C                     of everything from `attributes` to the end
        21     2  attributes                  0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                              6 delete horizon, 14 the payload is a Pulsar entry
        23     4  last offset delta
        27     8  base timestamp
        35     8  max timestamp
        43     8  producer id
        51     2  producer epoch
        53     4  base sequence
        57     4  record count
        61     -  records, compressed as a whole when a codec is set

One `unpack_from` reads it all; nothing on the produce or fetch path looks past it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
OVERHEAD = 12  # base offset and length, which `length` does not count
MAGIC = 2
CRC_START = 21  # the first byte that the CRC covers

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
PULSAR_ENTRY = 0x4000

_PLACE = struct.Struct(">qii")
_new = tuple.__new__
_CRC = struct.Struct(">I")


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs

    @property
    def size_bytes(self) -> int:
        return self.length + OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones; it stands where the base timestamp would."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


Part = tuple[int, int, int, BatchHeader | None]
"""A batch of a buffer: its size, last offset and latest timestamp, and its header if it is of a producer."""


def part_of(header: BatchHeader) -> Part:
    """The part that a batch is whose header has its offsets already."""
    named = header if header.producer_id >= 0 else None
    return header.size_bytes, header.last_offset, header.max_timestamp, named


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`.  The caller knows that 61 bytes are there."""
    return _new(BatchHeader, HEADER.unpack_from(buffer, at))  # `_make` without its frame


def crc_of(batch: Buffer) -> int:
    """The CRC that `batch`, exactly one batch, should carry."""
    return crc32c(memoryview(batch)[CRC_START:])


def place(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Give `batch`, exactly one batch, its place in a log.  The CRC does not cover what changes."""
    _PLACE.pack_into(batch, 0, base_offset, len(batch) - OVERHEAD, leader_epoch)


def stamp(batch: bytearray | memoryview, append_time_ms: int) -> None:
    """Turn a batch's timestamps into the broker's: LogAppendTime at `append_time_ms`."""
    attributes = struct.unpack_from(">h", batch, CRC_START)[0] | LOG_APPEND_TIME
    struct.pack_into(">h", batch, CRC_START, attributes)
    struct.pack_into(">q", batch, 35, append_time_ms)
    _CRC.pack_into(batch, 17, crc_of(batch))


def split_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of `buffer`, header and whole bytes.  Corrupt if the last one is cut short."""
    view = memoryview(buffer)
    at = 0
    while at < len(view):
        if len(view) - at < HEADER_SIZE:
            raise Corrupt(f"{len(view) - at} bytes are left, a batch header needs {HEADER_SIZE}")
        header = read_header(view, at)
        end = at + header.size_bytes
        if header.length < HEADER_SIZE - OVERHEAD or end > len(view):
            raise Corrupt(f"a batch claims {header.length} bytes, {len(view) - at - OVERHEAD} are there")
        yield header, view[at:end]
        at = end
