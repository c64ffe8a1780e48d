"""A Pulsar entry taken apart and put together: its payload, compressed as its producer said.

    0x0e01 │ crc32c │ u32 size │ MessageMetadata │ payload
    └─ may be missing ┘                          └ one message, or the messages of a batch

Pulsar's codecs are not Kafka's: LZ4 is the raw block and ZLIB has its own header, and the size that comes out
stands in the metadata, where a producer may have written anything; nothing larger than it is made.

Libraries are imported on first use: most brokers never look into a payload.
"""

import struct
import zlib

from crc32c import crc32c

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, TooLarge
from anabranch.records.pulsar_metadata_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

LIMIT_BYTES = 64 << 20

_SIZE = struct.Struct(">I")
_CHECKED = struct.Struct(">HI")
_MAGIC = 0x0E01


def _gone() -> bytes:
    described = SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
    return _SIZE.pack(len(described)) + described


GONE = _gone()
"""What stands in a batch for a message that compaction took."""


def payload_of(entry: memoryview) -> memoryview:
    """What follows the metadata of an entry, which is known to have one."""
    at = _CHECKED.size if len(entry) > _CHECKED.size and entry[0] == 0x0E and entry[1] == 0x01 else 0
    (size,) = _SIZE.unpack_from(entry, at)
    return entry[at + _SIZE.size + size :]


def entry_of(metadata: MessageMetadata, payload: Buffer) -> bytes:
    """An entry, with its checksum."""
    described = metadata.SerializeToString()
    body = b"".join((_SIZE.pack(len(described)), described, payload))
    return _CHECKED.pack(_MAGIC, crc32c(body)) + body


def uncompressed(metadata: MessageMetadata, payload: memoryview, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Corrupt if it is not what its metadata says; TooLarge if it would be beyond `limit_bytes`."""
    codec, size = metadata.compression, metadata.uncompressed_size
    if codec == CompressionType.NONE:
        return bytes(payload)
    if size > limit_bytes:
        raise TooLarge(f"the message is {size} bytes uncompressed, the limit is {limit_bytes}")
    data = bytes(payload)
    if codec == CompressionType.ZLIB:
        try:
            return zlib.decompressobj().decompress(data, size or 1)
        except zlib.error as error:
            raise Corrupt(f"the message cannot be decompressed: {error}") from error
    import cramjam
    import lz4.block

    try:
        if codec == CompressionType.LZ4:
            return bytes(lz4.block.decompress(data, uncompressed_size=size))
        room = bytearray(size)
        if codec == CompressionType.ZSTD:
            return bytes(memoryview(room)[: cramjam.zstd.decompress_into(data, room)])
        if codec == CompressionType.SNAPPY:
            return bytes(memoryview(room)[: cramjam.snappy.decompress_raw_into(data, room)])
    except (cramjam.DecompressionError, lz4.block.LZ4BlockError, ValueError) as error:
        raise Corrupt(f"the message cannot be decompressed: {error}") from error
    raise Corrupt(f"there is no codec {codec}")


def compressed(codec: int, plain: bytes) -> bytes:
    """`plain` in the form of one of Pulsar's codecs."""
    if codec == CompressionType.NONE:
        return plain
    if codec == CompressionType.ZLIB:
        return zlib.compress(plain)
    if codec == CompressionType.LZ4:
        import lz4.block

        return bytes(lz4.block.compress(plain, store_size=False))
    import cramjam

    if codec == CompressionType.ZSTD:
        return bytes(cramjam.zstd.compress(plain))
    if codec == CompressionType.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(plain))
    raise Corrupt(f"there is no codec {codec}")
