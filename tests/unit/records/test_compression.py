"""Every codec gives back what it was given, stops at the limit, and calls garbage by its name."""

import random
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame

from anabranch.base.errors import AnabranchError, Corrupt, InvalidConfig, TooLarge, UnsupportedForFormat
from anabranch.records.compression import (
    GZIP,
    LEVELS,
    LZ4,
    NAMES,
    NONE,
    SNAPPY,
    ZSTD,
    check_level,
    compress,
    decompress,
)
from tests.unit.records.strategies import CODECS, LIMIT_BYTES, seeded

REAL_CODECS = CODECS[1:]
SAMPLES = (b"", b"a", b"abc" * 50_000, random.Random(3).randbytes(100_000))


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_any_buffer_round_trips(codec: int, form: type) -> None:
    for sample in SAMPLES:
        packed = bytes(compress(codec, form(sample)))
        assert decompress(codec, form(packed), len(sample)) == sample


@seeded()
@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(1, 400))
def test_random_bytes_round_trip(codec: int, seed: bytes, times: int) -> None:
    data = seed * times
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, packed, len(data) + 1000) == data


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_one_byte_over_the_limit_is_too_large(codec: int) -> None:
    for sample in SAMPLES[1:]:
        with pytest.raises(TooLarge, match=str(len(sample) - 1)):
            decompress(codec, compress(codec, sample), len(sample) - 1)


@pytest.mark.parametrize("codec", REAL_CODECS, ids=NAMES[1:])
def test_every_truncation_is_corrupt(codec: int) -> None:
    packed = bytes(compress(codec, b"hello hello hello " * 20))
    whole_blocks = {16} if codec == SNAPPY else set()  # xerial has no end mark
    for end in range(len(packed)):
        if end not in whole_blocks:
            with pytest.raises(Corrupt):
                decompress(codec, packed[:end], LIMIT_BYTES)


@pytest.mark.parametrize("codec", REAL_CODECS, ids=NAMES[1:])
def test_bytes_after_the_end_are_corrupt(codec: int) -> None:
    with pytest.raises(Corrupt):
        decompress(codec, bytes(compress(codec, b"hello" * 20)) + b"xyz", LIMIT_BYTES)


@seeded(300)
@given(st.sampled_from(REAL_CODECS), st.binary(max_size=200))
def test_garbage_gives_our_errors_only(codec: int, data: bytes) -> None:
    try:
        plain = decompress(codec, data, 10_000)
    except AnabranchError:
        return
    assert len(plain) <= 10_000


@seeded(300)
@given(st.sampled_from(REAL_CODECS), st.integers(0, 10_000), st.integers(0, 7), st.binary(max_size=40))
def test_a_flipped_bit_gives_our_errors_only(codec: int, place: int, bit: int, seed: bytes) -> None:
    packed = bytearray(compress(codec, b"some text " + seed * 30))
    packed[place % len(packed)] ^= 1 << bit
    try:
        plain = decompress(codec, packed, 10_000)
    except AnabranchError:
        return
    assert len(plain) <= 10_000


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 100])
def test_an_unknown_codec(codec: int) -> None:
    with pytest.raises(UnsupportedForFormat, match=str(codec)):
        compress(codec, b"")
    with pytest.raises(UnsupportedForFormat, match=str(codec)):
        decompress(codec, b"", 10)


def test_snappy_reads_what_others_write() -> None:
    data = b"some text" * 10_000
    bare = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(SNAPPY, bare, len(data)) == data
    xerial = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(bare)) + bare
    assert decompress(SNAPPY, xerial, len(data)) == data
    with pytest.raises(TooLarge):
        decompress(SNAPPY, bare, len(data) - 1)


def test_snappy_writes_blocks_of_32_kib() -> None:
    framed = bytes(compress(SNAPPY, bytes(70_000)))
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    at, sizes = 16, []
    while at < len(framed):
        size = struct.unpack_from(">i", framed, at)[0]
        sizes.append(cramjam.snappy.decompress_raw_len(framed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32_768, 32_768, 4_464]


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100])
def test_a_snappy_block_that_lies_about_its_size(size: int) -> None:
    with pytest.raises(Corrupt, match="claims"):
        decompress(SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, size) + b"abc", LIMIT_BYTES)


def test_a_snappy_block_that_promises_a_gigabyte_is_not_believed() -> None:
    promise = b"\x80\x80\x80\x80\x04"  # a varint of 2^30
    with pytest.raises(Corrupt, match="cannot hold"):
        decompress(SNAPPY, promise + b"\x00a", 2**31)


def test_lz4_frames_are_those_that_java_reads() -> None:
    framed = bytes(compress(LZ4, bytes(200_000)))
    info = frame.get_frame_info(framed)
    assert info["block_linked"] is False
    assert info["block_size_id"] == frame.BLOCKSIZE_MAX64KB
    assert info["content_checksum"] is False
    assert info["content_size"] == 0


def test_frames_that_declare_a_size_are_held_to_the_limit_all_the_same() -> None:
    data = bytes(100_000)
    assert decompress(LZ4, frame.compress(data, store_size=True), len(data)) == data
    with pytest.raises(TooLarge):
        decompress(LZ4, frame.compress(data, store_size=True), len(data) - 1)
    honest = bytearray(frame.compress(b"abc", store_size=True))
    honest[6:14] = struct.pack("<Q", 2**40)
    with pytest.raises(Corrupt):
        decompress(LZ4, honest, LIMIT_BYTES)
    # A zstd frame in one segment, content size 2^40, then an empty last block.
    with pytest.raises(Corrupt):
        decompress(ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**40) + b"\x01\x00\x00", LIMIT_BYTES)


def test_levels_change_the_size_and_nothing_else() -> None:
    words = b" ".join(f"{n * 7919 % 1000} bottles of {n * 31 % 57}".encode() for n in range(5_000))
    sizes: dict[int, list[int]] = {}
    for codec, levels in LEVELS.items():
        for level in (levels.least, levels.most):
            packed = compress(codec, words, level)
            sizes.setdefault(codec, []).append(len(packed))
            assert decompress(codec, packed, len(words)) == words
        assert compress(codec, words) == compress(codec, words, levels.default)
    assert all(most < least for least, most in sizes.values())


def test_the_default_levels() -> None:
    data = b"some text" * 1000
    assert compress(GZIP, data) == zlib.compress(data, -1, 31)
    assert compress(ZSTD, data) == bytes(cramjam.zstd.compress(data, 3))
    fast = frame.compress(data, compression_level=0, block_linked=False, store_size=False)
    assert compress(LZ4, data) == fast
    assert [check_level(codec, None) for codec in CODECS] == [0, -1, 0, 9, 3]


@pytest.mark.parametrize(
    ("codec", "level"),
    [(GZIP, 0), (GZIP, 10), (GZIP, -2), (LZ4, 0), (LZ4, 18), (ZSTD, 23), (ZSTD, -131073)],
)
def test_levels_out_of_range(codec: int, level: int) -> None:
    with pytest.raises(InvalidConfig, match=f"{NAMES[codec]} takes levels"):
        compress(codec, b"data", level)


def test_none_is_the_data_itself() -> None:
    data = memoryview(b"data")
    assert compress(NONE, data) is data
    assert decompress(NONE, data, 4) is data


def test_importing_does_not_load_the_libraries() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import anabranch.records.compression\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert not loaded & {'lz4', 'cramjam', 'zlib', 'gzip'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
