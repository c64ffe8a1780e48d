"""Metadata journal: the file that makes changes of the metadata durable.

    "anabranch metadata 2\n"                                the first line
    marker  length  crc  payload                            a frame: what one sync made durable
       4       4     4      -                               (big-endian; the CRC-32C is of length and payload)

A payload is a list of changes (`meta/tree.py`) in MessagePack.  A frame is all or nothing: what many
callers asked for at one time shares a frame and a sync, and a crash in the middle of it leaves a
tail that is no frame, which `meta/recovery.py` cuts off.  The marker is not legal UTF-8, so that our
documents cannot contain one.

When the file is much larger than what it amounts to, it is replaced, whole, by a file whose frames
rebuild the tree.  The same must be done after a failed sync, before anything else is written:
nobody knows what such a file holds.

What blocks is handed out as a call for a thread; all else happens on the event loop.
"""

import contextlib
import errno
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from crc32c import crc32c

from anabranch.base.disk import Disk, File
from anabranch.base.errors import DiskFull, Unavailable
from anabranch.meta.tree import Change

FORMAT = 2
FIRST_LINE = b"anabranch metadata %d\n" % FORMAT
MARKER = b"\xffJ\xfe\n"
FRAME = struct.Struct(">4sII")  # marker, length of the payload, CRC
LENGTH = struct.Struct(">I")

_MIN_REWRITE_BYTES = 1 << 20
_REWRITE_RATIO = 4  # rewrite when the file is this many times what it amounts to
_CHANGES_PER_FRAME = 500  # in a rewritten file; small, so that encoding does not hold the GIL for long

_encode = msgspec.msgpack.Encoder().encode


def frame_of(changes: Sequence[Change]) -> bytes:
    payload = _encode(changes)
    length = LENGTH.pack(len(payload))
    return FRAME.pack(MARKER, len(payload), crc32c(payload, crc32c(length))) + payload


def whole_journal(changes: Sequence[Change]) -> bytes:
    """The content of a file that amounts to `changes`."""
    return FIRST_LINE + b"".join(_frames_of(changes))


def _frames_of(changes: Sequence[Change]) -> Iterable[bytes]:
    for start in range(0, len(changes), _CHANGES_PER_FRAME):
        yield frame_of(changes[start : start + _CHANGES_PER_FRAME])


class Journal:
    """The open journal at `path`, which is there and ends with a whole frame."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._file: File = disk.open(path)
        self._size_before = self._file.size  # of the append under way
        self._rewrite_above_bytes = _MIN_REWRITE_BYTES
        self.distrusted: Unavailable | None = None  # why the file must be rewritten before it is used

    def wants_rewrite(self, durable_bytes: int) -> bool:
        """Whether to rewrite the file before the next append.  The tree takes about `durable_bytes`."""
        size = self._file.size
        too_large = size > self._rewrite_above_bytes and size > _REWRITE_RATIO * durable_bytes
        return too_large or self.distrusted is not None

    def append(self, frame: bytes) -> Callable[[], None]:
        """Write `frame`; the call that makes it durable.  DiskFull or Unavailable if that cannot be."""
        assert self.distrusted is None, "this journal must be rewritten first"
        self._size_before = self._file.size
        try:
            self._file.append(frame)
            return self._file.syncer()
        except OSError as error:
            raise self.append_failed(error) from error

    def append_failed(self, error: BaseException) -> Unavailable:
        """The last append is not durable; what to tell those who asked for it."""
        self.distrusted = self._failure(error)
        with contextlib.suppress(OSError):
            self._file.truncate(self._size_before)
        return self.distrusted

    def rewrite(self, changes: Sequence[Change]) -> Callable[[], None]:
        """The call that replaces the file by one that amounts to `changes`."""
        return lambda: self._disk.write_whole(self._path, whole_journal(changes))

    def rewritten(self) -> None:
        """The call that `rewrite` gave has returned."""
        self._file.close()
        try:
            self._file = self._disk.open(self._path)
        except OSError as error:  # the old one is nothing to go on with
            self.rewrite_failed(error)
            return
        self._rewrite_above_bytes = _MIN_REWRITE_BYTES
        self.distrusted = None

    def rewrite_failed(self, error: BaseException) -> None:
        """The call that `rewrite` gave has failed.  For want of room, a sound file remains of use."""
        if isinstance(error, DiskFull):
            with contextlib.suppress(OSError):
                self._disk.remove(beside(self._path))
            self._rewrite_above_bytes = 2 * self._file.size
            if self.distrusted is None:
                return
        # Else the new file may be in place already, and it is not the one we have open.
        self.distrusted = self._failure(error)

    def close(self) -> None:
        self._file.close()

    def _failure(self, error: BaseException) -> Unavailable:
        if isinstance(error, DiskFull):
            return error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DiskFull(f"no room on the disk for {self._path}")
        return Unavailable(f"cannot write the metadata journal {self._path}: {error}")


def beside(path: Path) -> Path:
    """Where `Disk.write_whole` builds what replaces `path`."""
    return path.with_name(path.name + ".tmp")
