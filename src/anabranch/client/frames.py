"""Frames of answers out of a stream of bytes: a length of four bytes, then that many bytes.

    buffer() ──> the next bytes go there ──> received(n) ──> next_frame() until there is none

Bytes are received where they will be used.  Small frames come by a scratch buffer, several in one read, and
are copied out of it.  A large one gets memory of its own as soon as its length is known, into which the rest
is received; or, with `reuses_memory`, the memory of the large one before it, since new memory costs as much
as the copying: then a frame is gone once the next is asked for.

A length is not believed: it is bounded by what the request at the head of the queue may be answered with, and
memory that nothing has come into costs nothing (it is the kernel's until it is touched).
"""

import mmap
import struct

from anabranch.base.errors import Corrupt

_SCRATCH_BYTES = 1 << 16
_MAPPED_BYTES = 1 << 20
_LENGTH = struct.Struct(">i")
_LEAST_BYTES = 4  # the correlation id


class Frames:
    __slots__ = ("_end", "_filled", "_frame", "_kept", "_scratch", "_start", "largest_bytes", "reuses_memory")

    def __init__(self) -> None:
        self.largest_bytes = 0
        self.reuses_memory = False
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._start = self._end = 0  # what is in the scratch buffer
        self._frame: memoryview | None = None  # a large one that is not whole yet
        self._filled = 0
        self._kept = memoryview(b"")

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty, if all whole frames were taken."""
        if self._frame is not None:
            return self._frame[self._filled :]
        if self._start:
            rest = bytes(self._scratch[self._start : self._end])
            self._scratch[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self._scratch[self._end :]

    def received(self, size: int) -> None:
        if self._frame is None:
            self._end += size
        else:
            self._filled += size

    def next_frame(self) -> memoryview | None:
        """The next whole frame.  Corrupt if it claims what cannot be."""
        if self._frame is not None:
            if self._filled < len(self._frame):
                return None
            frame, self._frame = self._frame, None
            return frame
        there = self._end - self._start
        if there < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._scratch, self._start)
        if not _LEAST_BYTES <= size <= self.largest_bytes:
            raise Corrupt(f"an answer of {size} bytes")
        start, there = self._start + _LENGTH.size, there - _LENGTH.size
        if there >= size:
            self._start = start + size
            return memoryview(bytes(self._scratch[start : start + size]))
        if size + _LENGTH.size <= _SCRATCH_BYTES:
            return None  # the scratch buffer has room for the rest
        self._frame = self._room(size)
        self._frame[:there] = self._scratch[start : self._end]
        self._filled = there
        self._start = self._end = 0
        return None

    def _room(self, size: int) -> memoryview:
        if not self.reuses_memory:
            return _memory(size)
        if len(self._kept) < size:
            self._kept = _memory(size)
        return self._kept[:size]


def _memory(size: int) -> memoryview:
    return memoryview(bytearray(size)) if size < _MAPPED_BYTES else memoryview(mmap.mmap(-1, size))
