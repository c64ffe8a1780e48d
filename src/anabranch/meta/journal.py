"""The journal: the file that makes changes of the metadata durable.

    "anabranch metadata 1\n"                                the first line
    marker  length  crc  payload                            a frame: what one sync made durable
       4       4     4      -                               (big-endian; the CRC-32C is of length and payload)

A payload is a list of changes (`meta/tree.py`) in MessagePack.  A frame is all or nothing: what many
callers asked for at one time shares a frame and a sync, and a crash in the middle of it leaves a
tail that is no frame, which `meta/recovery.py` cuts off.  The marker is not legal UTF-8, so that our
documents cannot contain one.

When the file is much larger than what it amounts to, it is replaced, whole, by a file whose frames
rebuild the tree.  The same is done after a failed sync: nobody knows what such a file holds.

Everything here blocks; it runs in the store's one thread, and the `Disk` given must be used by
nobody else, since that thread opens and closes files through it.
"""

import contextlib
import errno
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from crc32c import crc32c

from anabranch.base.disk import Disk, File
from anabranch.base.errors import DiskFull, Unavailable
from anabranch.meta.tree import Change

FIRST_LINE = b"anabranch metadata 1\n"
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
        self._untrusted = False
        self._rewrite_above_bytes = _MIN_REWRITE_BYTES

    @property
    def size_bytes(self) -> int:
        return self._file.size

    def wants_rewrite(self, durable_bytes: int) -> bool:
        """Whether the next commit should bring the whole tree, which takes about `durable_bytes`."""
        size = self._file.size
        return self._untrusted or (size > self._rewrite_above_bytes and size > _REWRITE_RATIO * durable_bytes)

    def append(self, frame: bytes) -> None:
        """Make `frame` durable.  DiskFull or Unavailable if that failed; the file is then as it was,
        or will be replaced."""
        assert not self._untrusted, "this journal must be rewritten first"
        before = self._file.size
        try:
            self._file.append(frame)
            self._file.sync()
        except OSError as error:
            self._untrusted = True
            with contextlib.suppress(OSError):
                self._file.truncate(before)
            raise self._failure(error) from error

    def rewrite(self, changes: Sequence[Change], frame: bytes) -> None:
        """Replace the file by one that amounts to `changes`.  They include those of `frame`, which is
        appended to the old file instead if there is no room for a new one beside it."""
        try:
            self._disk.write_whole(self._path, whole_journal(changes))
            self._file.close()
            self._file = self._disk.open(self._path)
        except DiskFull:
            with contextlib.suppress(OSError):
                self._disk.remove(beside(self._path))
            if self._untrusted:
                raise
            self._rewrite_above_bytes = 2 * self._file.size
            self.append(frame)
        except OSError as error:
            self._untrusted = True
            raise self._failure(error) from error
        else:
            self._untrusted = False
            self._rewrite_above_bytes = _MIN_REWRITE_BYTES

    def close(self) -> None:
        self._file.close()

    def _failure(self, error: OSError) -> Unavailable:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DiskFull(f"no room on the disk for {self._path}")
        return Unavailable(f"cannot write the metadata journal {self._path}: {error.strerror or error}")


def beside(path: Path) -> Path:
    """Where `Disk.write_whole` builds what replaces `path`."""
    return path.with_name(path.name + ".tmp")
