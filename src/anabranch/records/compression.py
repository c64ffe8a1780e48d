"""Compression of a batch's records, as a whole, in the forms that Kafka's clients write and read.

    codec     bytes on the wire                                         library
    0 none    the records
    1 gzip    one gzip member                                           zlib
    2 snappy  xerial: magic, two versions, then (int32 size, block)...  cramjam
              or one bare snappy block, which librdkafka writes; read, never written
    3 lz4     one LZ4 frame of independent 64 KiB blocks                lz4
    4 zstd    zstd frames                                               cramjam

What arrives may be a bomb: a few kilobytes that grow to gigabytes, or a block that merely says it
will.  `decompress` stops at `limit_bytes`, whatever the bytes declare; until then its memory is in
proportion to what really came out (or, for the formats whose ratio is bounded, to what came in).
TooLarge says that the limit was reached, Corrupt that the bytes are not what the codec says.
Bytes after the end of a gzip member or an LZ4 frame are Corrupt: readers disagree on them.

The libraries are imported on first use, since most brokers never decompress anything.  All of them
let go of the GIL while they work, so large payloads can be given to a thread.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, InvalidConfig, TooLarge, UnsupportedForFormat

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


class Levels(NamedTuple):
    """The levels a codec takes: `least` to `most`, or `default`."""

    least: int
    most: int
    default: int


# As compression.{gzip,lz4,zstd}.level of Kafka (KIP-390) has them.
LEVELS = {GZIP: Levels(1, 9, -1), LZ4: Levels(1, 17, 9), ZSTD: Levels(-131072, 22, 3)}

_GZIP_WINDOW = 15 + 16  # the largest window, a gzip header
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")
# No input grows by more than this: a snappy copy is 3 bytes for 64, an lz4 match a byte for 255.
_SNAPPY_MOST_GROWTH = 22
_LZ4_MOST_GROWTH = 256
# zstd has no such bound.  Records seldom shrink to less than an eighth; when they do, try again.
_ZSTD_FIRST_BYTES = 4096
_ZSTD_GROWTH = 8


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the form of `codec`; `level` None is the codec's default."""
    if codec == NONE:
        return data
    if not 0 < codec < len(_COMPRESS):
        raise _unknown(codec)
    return _COMPRESS[codec](data, check_level(codec, level))


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """What `compress` was given.  TooLarge if that is more than `limit_bytes`."""
    if codec == NONE:
        if len(data) > limit_bytes:
            raise _too_large("uncompressed records", limit_bytes)
        return data
    if not 0 < codec < len(_DECOMPRESS):
        raise _unknown(codec)
    return _DECOMPRESS[codec](data, limit_bytes)


def check_level(codec: int, level: int | None) -> int:
    """The level to use: `level` if `codec` takes it, its default for None.  Else InvalidConfig."""
    levels = LEVELS.get(codec)
    if levels is None or level is None:
        return levels.default if levels is not None else 0
    if level == levels.default or levels.least <= level <= levels.most:
        return level
    raise InvalidConfig(f"{NAMES[codec]} takes levels {levels.least} to {levels.most}, not {level}")


def _unknown(codec: int) -> UnsupportedForFormat:
    return UnsupportedForFormat(f"there is no compression codec {codec}")


def _too_large(what: str, limit_bytes: int) -> TooLarge:
    return TooLarge(f"{what} grow beyond the limit of {limit_bytes} bytes")


def _compress_gzip(data: Buffer, level: int) -> Buffer:
    import zlib

    return zlib.compress(data, level, _GZIP_WINDOW)


def _decompress_gzip(data: Buffer, limit_bytes: int) -> Buffer:
    import zlib

    member = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = member.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise Corrupt(f"gzip: {error}") from None
    if len(plain) > limit_bytes:
        raise _too_large("gzip records", limit_bytes)
    if not member.eof:
        raise Corrupt("gzip: the member is cut short")
    if member.unused_data:
        raise Corrupt(f"gzip: {len(member.unused_data)} bytes follow the member")
    return plain


def _compress_snappy(data: Buffer, level: int) -> Buffer:
    from cramjam import snappy

    view = memoryview(data)
    framed = bytearray(_XERIAL_HEADER)
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES])
        framed += _INT32.pack(len(block))
        framed += memoryview(block)
    return framed


def _decompress_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnap(view, 0, limit_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise Corrupt("snappy: the header is cut short")
    plain = bytearray()
    at = len(_XERIAL_HEADER)
    while at < len(view):
        if len(view) - at < 4:
            raise Corrupt("snappy: the size of a block is cut short")
        size = _INT32.unpack_from(view, at)[0]
        at += 4
        if not 0 <= size <= len(view) - at:
            raise Corrupt(f"snappy: a block claims {size} bytes, {len(view) - at} are left")
        plain += _unsnap(view[at : at + size], len(plain), limit_bytes)
        at += size
    return plain


def _unsnap(block: memoryview, before_bytes: int, limit_bytes: int) -> bytearray:
    """One bare snappy block, which begins with its uncompressed size; `before_bytes` came before it."""
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(block)
        if size > _SNAPPY_MOST_GROWTH * len(block):
            raise Corrupt(f"snappy: {len(block)} bytes cannot hold the {size} they claim")
        if before_bytes + size > limit_bytes:
            raise _too_large("snappy records", limit_bytes)
        plain = bytearray(size)
        written = snappy.decompress_raw_into(block, plain)
    except DecompressionError as error:
        raise Corrupt(str(error)) from None
    if written != size:
        raise Corrupt(f"snappy: a block claims {size} bytes and holds {written}")
    return plain


def _compress_lz4(data: Buffer, level: int) -> Buffer:
    from lz4 import frame

    # Kafka's default "level" is no level but the fast mode; the library's high compression starts at 3.
    # Java's reader refuses blocks that depend on each other.
    framed: bytes = frame.compress(
        data,
        compression_level=0 if level == LEVELS[LZ4].default else max(3, level),
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return framed


def _decompress_lz4(data: Buffer, limit_bytes: int) -> Buffer:
    from lz4 import frame

    room = min(limit_bytes + 1, _LZ4_MOST_GROWTH * (len(data) + 1))
    try:
        context = frame.create_decompression_context()
        plain: bytes
        plain, consumed, ended = frame.decompress_chunk(context, data, max_length=room)
    except RuntimeError as error:
        raise Corrupt(f"lz4: {error}") from None
    if len(plain) > limit_bytes:
        raise _too_large("lz4 records", limit_bytes)
    if not ended:
        raise Corrupt("lz4: the frame is cut short")
    if consumed != len(data):
        raise Corrupt(f"lz4: {len(data) - consumed} bytes follow the frame")
    return plain


def _compress_zstd(data: Buffer, level: int) -> Buffer:
    from cramjam import zstd

    return bytes(zstd.compress(data, level))


def _decompress_zstd(data: Buffer, limit_bytes: int) -> Buffer:
    from cramjam import DecompressionError, zstd

    room = min(limit_bytes, max(_ZSTD_FIRST_BYTES, _ZSTD_GROWTH * len(data)))
    while True:
        plain = bytearray(room)
        try:
            size = zstd.decompress_into(data, plain)
        except DecompressionError as error:
            if "whole buffer" not in str(error):  # how cramjam says that `plain` is full
                raise Corrupt(f"zstd: {error}") from None
            if room >= limit_bytes:
                raise _too_large("zstd records", limit_bytes) from None
            room = min(limit_bytes, room * _ZSTD_GROWTH)
        else:
            del plain[size:]
            return plain


def _no_codec(data: Buffer, _: int) -> Buffer:
    return data


_COMPRESS: tuple[Callable[[Buffer, int], Buffer], ...] = (
    _no_codec,
    _compress_gzip,
    _compress_snappy,
    _compress_lz4,
    _compress_zstd,
)
_DECOMPRESS: tuple[Callable[[Buffer, int], Buffer], ...] = (
    _no_codec,
    _decompress_gzip,
    _decompress_snappy,
    _decompress_lz4,
    _decompress_zstd,
)
