"""Payloads as their producers had them, and payloads that lie about it."""

import struct
import zlib

import cramjam
import lz4.block
import pytest

from anabranch.base.errors import Corrupt, TooLarge
from anabranch.records.entry_payloads import LIMIT_BYTES, payload_of, uncompressed
from anabranch.records.pulsar_metadata_pb2 import CompressionType, MessageMetadata

PLAIN = b"some text, some text, some text" * 20
CODECS = {
    CompressionType.NONE: PLAIN,
    CompressionType.LZ4: lz4.block.compress(PLAIN, store_size=False),
    CompressionType.ZLIB: zlib.compress(PLAIN),
    CompressionType.ZSTD: bytes(cramjam.zstd.compress(PLAIN)),
    CompressionType.SNAPPY: bytes(cramjam.snappy.compress_raw(PLAIN)),
}


def told(codec: CompressionType, size: int) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=0, compression=codec, uncompressed_size=size
    )


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(codec: CompressionType) -> None:
    assert uncompressed(told(codec, len(PLAIN)), memoryview(CODECS[codec])) == PLAIN


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != CompressionType.NONE])
def test_what_is_not_what_it_says(codec: CompressionType) -> None:
    with pytest.raises(Corrupt):
        uncompressed(told(codec, len(PLAIN)), memoryview(b"\xff\xfe nothing of the kind"))
    with pytest.raises(TooLarge):
        uncompressed(told(codec, LIMIT_BYTES + 1), memoryview(CODECS[codec]))
    try:
        few = uncompressed(told(codec, 10), memoryview(CODECS[codec]))
    except Corrupt:
        return
    assert len(few) <= 10  # no more than was said is ever made


@pytest.mark.parametrize("checked", [True, False])
def test_where_the_payload_begins(checked: bool) -> None:
    metadata = told(CompressionType.NONE, 0).SerializeToString()
    entry = struct.pack(">I", len(metadata)) + metadata + b"payload"
    entry = b"\x0e\x01\0\0\0\0" + entry if checked else entry
    assert bytes(payload_of(memoryview(entry))) == b"payload"
