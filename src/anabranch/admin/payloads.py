"""A Pulsar entry's payload, as its producer had it before it was compressed.

Pulsar's codecs are not Kafka's: LZ4 is the raw block and ZLIB has its own header, and the size that comes out
stands in the metadata, where a producer may have written anything; nothing larger than it is made.
"""

import struct
import zlib

import cramjam
import lz4.block

from anabranch.base.errors import Corrupt, TooLarge
from anabranch.records.pulsar_metadata_pb2 import CompressionType, MessageMetadata

LIMIT_BYTES = 64 << 20

_SIZE = struct.Struct(">I")
_CHECKED_BYTES = 6  # magic and checksum


def payload_of(entry: memoryview) -> memoryview:
    """What follows the metadata of an entry."""
    at = _CHECKED_BYTES if len(entry) > _CHECKED_BYTES and entry[0] == 0x0E and entry[1] == 0x01 else 0
    (size,) = _SIZE.unpack_from(entry, at)
    return entry[at + _SIZE.size + size :]


def uncompressed(metadata: MessageMetadata, payload: memoryview) -> bytes:
    """Corrupt if it is not what its metadata says; TooLarge if it would be beyond all bounds."""
    codec, size = metadata.compression, metadata.uncompressed_size
    if codec == CompressionType.NONE:
        return bytes(payload)
    if size > LIMIT_BYTES:
        raise TooLarge(f"the message is {size} bytes uncompressed, it is not looked at here")
    data = bytes(payload)
    try:
        return _decoded(codec, data, size)
    except (zlib.error, cramjam.DecompressionError, lz4.block.LZ4BlockError, ValueError) as error:
        raise Corrupt(f"the message cannot be decompressed: {error}") from error


def _decoded(codec: int, data: bytes, size: int) -> bytes:
    if codec == CompressionType.LZ4:
        return bytes(lz4.block.decompress(data, uncompressed_size=size))
    if codec == CompressionType.ZLIB:
        return zlib.decompressobj().decompress(data, size)
    room = bytearray(size)
    if codec == CompressionType.ZSTD:
        return bytes(room[: cramjam.zstd.decompress_into(data, room)])
    if codec == CompressionType.SNAPPY:
        return bytes(room[: cramjam.snappy.decompress_raw_into(data, room)])
    raise Corrupt(f"there is no codec {codec}")
