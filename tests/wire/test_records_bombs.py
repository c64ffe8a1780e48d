"""Decompression bombs, a gigabyte of zeros in every codec, against a process that may not grow.

The bombs are made here, a piece at a time; a child whose address space is capped opens them.
"""

import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest
from lz4.frame import LZ4FrameCompressor

from anabranch.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD

PIECE = bytes(1 << 20)
PIECES = 1 << 10
LIMIT_BYTES = 1 << 20
ROOM_BYTES = 64 << 20  # what the child may map beyond what it has mapped when it starts

CHILD = """
import resource, sys
from pathlib import Path
import cramjam, lz4.frame, zlib
from anabranch.base.errors import TooLarge
from anabranch.records.compression import decompress

codec, limit, room = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
bomb = Path(sys.argv[4]).read_bytes()
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + room, mapped + room))
before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, limit)
except TooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib)
"""


def gzip_bomb() -> Iterator[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    for _ in range(PIECES):
        yield packer.compress(PIECE)
    yield packer.flush()


def snappy_bomb() -> Iterator[bytes]:
    yield b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    block = bytes(cramjam.snappy.compress_raw(PIECE))
    for _ in range(PIECES):
        yield struct.pack(">i", len(block)) + block


def lz4_bomb() -> Iterator[bytes]:
    packer = LZ4FrameCompressor(block_linked=False)
    yield packer.begin()
    for _ in range(PIECES):
        yield packer.compress(PIECE)
    yield packer.flush()


def zstd_bomb() -> Iterator[bytes]:
    packer = cramjam.zstd.Compressor(1)
    for _ in range(PIECES):
        packer.compress(PIECE)
        yield bytes(packer.flush())
    yield bytes(packer.finish())


BOMBS = {GZIP: gzip_bomb, SNAPPY: snappy_bomb, LZ4: lz4_bomb, ZSTD: zstd_bomb}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("codec", BOMBS, ids=NAMES[1:])
def test_a_bomb_is_refused_in_little_memory(codec: int, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    with bomb.open("wb") as file:
        for piece in BOMBS[codec]():
            file.write(piece)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(codec), str(LIMIT_BYTES), str(ROOM_BYTES), str(bomb)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    grown_bytes = int(child.stdout) * 1024
    # Input that was not used may be copied once (zlib keeps it), output twice.
    assert grown_bytes < 8 * LIMIT_BYTES + bomb.stat().st_size
