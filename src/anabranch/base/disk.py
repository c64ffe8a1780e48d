"""The disk, passed in: everything that touches a file goes through here.

`Disk` opens and arranges files by path; `File` is one open file.  A simulation brings its own
pair, which forgets what was not synced.

A read that has to wait for the disk would hold up the whole loop.  So whoever reads asks first (`is_cached`),
and has what is not in memory read ahead by one of the disk's few threads (`read_ahead`).

Descriptors are bounded.  A broker may hold ten thousand partitions, so a `File` keeps its
descriptor only while it is among the `max_open` most recently used; an evicted one is opened
again by its path when next touched.  Nobody outside this module sees that happen.

    Handles  least recently used order of whatever holds a descriptor (files, mapped indexes)
    File     append / pread / map / truncate / sync / rename / close
    syncer   a call that makes a file durable from a thread, which never sees the File itself

An append is all or nothing: on a short write (a full disk) the file is cut back to where it was
and DiskFull is raised, so the caller's idea of the size stays true.
"""

import asyncio
import errno
import fcntl
import mmap
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from anabranch.base import page_cache
from anabranch.base.errors import DiskFull, Exists
from anabranch.base.executors import Executors, thread_pool

Buffer = bytes | bytearray | memoryview

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of Linux
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READING_THREADS = 8
_RELEASED = -1  # opened again on the next use
_CLOSED = -2


class Releasable(Protocol):
    def release(self) -> None:
        """Give the descriptor up; it is taken again on the next use."""


class Handles:
    """What the files of a disk share: descriptors in order of use, at most `max_open`; threads."""

    __slots__ = ("_lru", "max_open", "newest", "on_refusal", "reading")

    def __init__(self, max_open: int, reading: Executor) -> None:
        self.max_open = max_open
        self.reading = reading
        self.newest: Releasable | None = None  # the one used last, which need not be moved
        self.on_refusal: Callable[[Exception], None] = lambda error: None
        """Told when a log could not be opened or written."""
        self._lru: OrderedDict[int, Releasable] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lru)

    def used(self, holder: Releasable) -> None:
        self._lru.move_to_end(id(holder))
        self.newest = holder

    def opened(self, holder: Releasable) -> None:
        self._lru[id(holder)] = holder
        self.newest = holder
        while len(self._lru) > self.max_open:
            _, oldest = self._lru.popitem(last=False)
            oldest.release()

    def closed(self, holder: Releasable) -> None:
        self._lru.pop(id(holder), None)
        if self.newest is holder:
            self.newest = None


class File:
    """One file on a real disk.  One that was not there is created when first written or read."""

    __slots__ = ("_fd", "_handles", "path", "size")

    def __init__(self, path: Path, size: int, handles: Handles) -> None:
        self.path = path
        self.size = size
        self._handles = handles
        self._fd = _RELEASED

    def fileno(self) -> int:
        """A descriptor, valid until another file is used."""
        if self._fd < 0:
            if self._fd == _CLOSED:  # the path may be another's by now
                raise OSError(errno.EBADF, "the file is closed", str(self.path))
            # One that had something in it and is gone now was taken away, and is not made again.
            create = 0 if self.size else os.O_CREAT
            try:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | create, 0o644)
            except OSError as error:
                _refuse_if_full(error, f"no room on the disk for {self.path}")
                raise
            self._handles.opened(self)
        elif self._handles.newest is not self:
            self._handles.used(self)
        return self._fd

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end; its position.  DiskFull, and nothing written, if it won't fit."""
        at = self.size
        fd = self._fd
        if fd < 0 or self._handles.newest is not self:
            fd = self.fileno()
        try:
            written = os.pwrite(fd, data, at)
            if written != len(data):
                view = memoryview(data)
                while written < len(view):
                    written += os.pwrite(fd, view[written:], at + written)
        except OSError as error:
            os.ftruncate(fd, at)
            _refuse_if_full(error, f"no room on the disk for {len(data)} bytes in {self.path}")
            raise
        self.size = at + len(data)
        return at

    def create(self) -> None:
        """Make it if it is not there."""
        self.fileno()

    def pread(self, size: int, at: int) -> bytes:
        return os.pread(self.fileno(), size, at)

    def map(self, size: int) -> mmap.mmap:
        """The first `size` bytes, to be read from memory until it is closed."""
        return mmap.mmap(self.fileno(), size, prot=mmap.PROT_READ)

    def is_cached(self, at: int, size: int) -> bool:
        """Whether `size` bytes from `at` on can be read without waiting for the disk."""
        return page_cache.is_cached(self.fileno(), at + size - 1)

    def read_ahead(self, at: int, size: int) -> "asyncio.Future[None]":
        """Bring `size` bytes from `at` on into memory; done when they are there."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._handles.reading, page_cache.read_through, self.path, at, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)
        self.size = size

    def reserve(self, size: int) -> None:
        """Take room for `size` bytes in all; the file's own size stays, `truncate` gives back what is unused.

        DiskFull if there is no such room.  Where the file system cannot do it, nothing happens.
        """
        import ctypes  # few ever ask for it

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "fallocate"):
            return
        offset = ctypes.c_int64
        libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, offset, offset)
        if libc.fallocate(self.fileno(), _KEEP_SIZE, 0, size) and ctypes.get_errno() in _FULL:
            raise DiskFull(f"no room on the disk to reserve {size} bytes for {self.path}")

    def sync(self) -> None:
        """Make what was written durable.  Blocks: for the way down; the loop uses `syncer`."""
        os.fdatasync(self.fileno())

    def syncer(self) -> Callable[[], None]:
        """A call that makes durable what is written now.  It may run in any thread, once.

        It holds a duplicate of the descriptor: the kernel reports a failed write-back to whoever had
        the file open then, and one that is opened afterwards may be told that all is well.
        """
        fd = os.dup(self.fileno())

        def sync() -> None:
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

        return sync

    def rename(self, path: Path) -> None:
        self.fileno()
        os.rename(self.path, path)
        self.path = path

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = _RELEASED

    def close(self) -> None:
        """For good: whoever still holds a place in the file gets an OSError."""
        self._handles.closed(self)
        self.release()
        self._fd = _CLOSED


class Disk(Protocol):
    """Where files live.  `DirectDisk` is the real one."""

    handles: Handles

    def open(self, path: Path) -> File: ...

    def list(self, path: Path) -> Sequence[str]: ...

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int: ...

    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...

    def read_whole(self, path: Path) -> bytes: ...

    def read_tail(self, path: Path, size: int) -> bytes: ...

    def make_dirs(self, path: Path) -> None: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def write_whole(self, path: Path, data: bytes, *, sync: bool = True) -> None: ...

    def sync_dir(self, path: Path) -> None: ...

    def unused_name(self) -> str:
        """A name that nothing on the disk has or ever had."""

    def lock(self, path: Path) -> Callable[[], None]:
        """Hold the file `path`, which ends with the process; what comes back lets go of it.

        Exists, with the process's id, if another one holds it.
        """


class DirectDisk:
    """The operating system's file system."""

    def __init__(self, max_open: int = 4096, executors: Executors = thread_pool) -> None:
        self.handles = Handles(max_open, executors("read", _READING_THREADS))

    def open(self, path: Path) -> File:
        return File(path, self.size(path), self.handles)

    def list(self, path: Path) -> Sequence[str]:
        """The names in a folder, in order."""
        return sorted(os.listdir(path))

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def size(self, path: Path) -> int:
        """The size of a file in bytes, 0 if it is not there."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0

    def modified_ms(self, path: Path) -> int:
        """When a file was last written, by the wall clock; 0 if it is not there."""
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def read_whole(self, path: Path) -> bytes:
        """The content of a file, empty if it is not there."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def read_tail(self, path: Path, size: int) -> bytes:
        """The last `size` bytes of a file, fewer if it has fewer, none if it is not there."""
        try:
            with open(path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - size))
                return file.read(size)
        except FileNotFoundError:
            return b""

    def make_dirs(self, path: Path) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file; not being there is fine."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and all in it; not being there is fine."""
        import shutil  # it brings half the standard library's codecs along

        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def write_whole(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Replace `path` by `data`, whole or not at all.

        With `sync` it is durable on return; without, a crash of the machine may undo it.
        """
        beside = path.with_name(path.name + ".tmp")
        try:
            _write_new(beside, data, sync=sync)
            os.rename(beside, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(beside)  # it takes room that others need
            _refuse_if_full(error, f"no room on the disk for {path}")
            raise
        if sync:
            self.sync_dir(path.parent)

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def unused_name(self) -> str:
        return uuid.uuid4().hex

    def lock(self, path: Path) -> Callable[[], None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise Exists(holder) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return lambda: os.close(fd)


def _write_new(path: Path, data: bytes, *, sync: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _refuse_if_full(error: OSError, message: str) -> None:
    if error.errno in _FULL:
        raise DiskFull(message) from error
