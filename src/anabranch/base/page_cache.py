"""Page cache: whether a part of a file is in memory, and how to bring it there.

A read that has to wait for the disk would hold up the whole loop.  The kernel can be asked first (RWF_NOWAIT,
1 µs); what it would have to wait for is read once by a thread and is in the cache after that.  Some file
systems say that they would wait for what was read just now, too; these are not asked any more.
"""

import os
from pathlib import Path

_PIECE_BYTES = 1 << 18
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_doubted: set[int] = set()  # devices whose answer means nothing


def is_cached(fd: int, position: int) -> bool:
    """Whether the byte at `position` can be read without waiting for the disk."""
    return _is_there(fd, position) or (bool(_doubted) and os.fstat(fd).st_dev in _doubted)


def _is_there(fd: int, position: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], position, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system does not know RWF_NOWAIT
    return True


def read_through(path: Path, position: int, size: int) -> None:
    """Bring a part of a file into the page cache.  Runs in a thread, on a descriptor of its own."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        scratch = bytearray(_PIECE_BYTES)
        at, end = position, position + size
        while at < end:
            got = os.preadv(fd, [memoryview(scratch)[: end - at]], at)
            if not got:
                return
            at += got
        if size and not _is_there(fd, end - 1):
            _doubted.add(os.fstat(fd).st_dev)
    finally:
        os.close(fd)
