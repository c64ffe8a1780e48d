"""Simulated disk: files in memory, of which a power cut leaves what was synced and some of the rest.

    disk = MemoryDisk(loop, executors, random)
    disk.power_cut()       unsynced bytes and names are lost, from some point on that chance chooses
    disk.speed             seconds that a sync or a read takes are drawn from there
    disk.room_bytes        how much may still be appended
    disk.arm(3, die)       the process dies at the fourth change from now on, in the middle of what it does
    disk.sync_error        what a sync raises, if anything
    disk.hold()            as when the process is gone: whoever still writes is refused

A kill leaves everything, as the page cache does.  A file is durable up to its last sync, and after that each
byte more or less; a name is durable once its folder or a folder changed later was synced (journals keep the
order of names, so those that are lost are the last ones).
"""

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

from anabranch.base.disk import Buffer, File, Handles
from anabranch.base.errors import DiskFull, Exists
from anabranch.base.executors import Executors

_FOLDER = None
_READING_THREADS = 8


class Crash(BaseException):
    """Not an Exception: nobody handles the end of the process."""


class Content:
    """What a name stands for."""

    __slots__ = ("data", "durable", "lost", "modified_ms")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = 0  # bytes of `data` that a power cut leaves
        self.lost = b""  # what was behind them at the last sync, and was cut off or written over since
        self.modified_ms = 0

    def truncate(self, size: int) -> None:
        if size < self.durable:
            self.lost = bytes(self.data[size : self.durable]) + self.lost
            self.durable = size
        del self.data[size:]

    def sync(self, size: int) -> None:
        if size >= self.durable:
            self.durable, self.lost = min(size, len(self.data)), b""

    def power_cut(self, random: Random) -> None:
        if self.lost and random.random() < 0.5:  # that it was cut off was not durable yet
            self.data = self.data[: self.durable] + self.lost
        else:
            unsynced = len(self.data) - self.durable
            kept = self.durable + (random.randint(0, unsynced) if unsynced and random.random() < 0.7 else 0)
            del self.data[kept:]
            if unsynced and random.random() < 0.2:  # the size was written, the bytes were not
                self.data += bytes(min(unsynced, 100))
        self.durable, self.lost = len(self.data), b""


class _Mapped(bytes):
    """What an index looks into."""

    def close(self) -> None:
        """Nothing to unmap."""


class MemoryFile(File):
    __slots__ = ("_content", "_disk", "_is_closed")

    def __init__(self, disk: "MemoryDisk", path: Path) -> None:
        super().__init__(path, disk.size(path), disk.handles)
        self._disk = disk
        self._content: Content | None = disk.content(path)
        self._is_closed = False

    def _open(self) -> Content:
        if self._is_closed:
            raise OSError(errno.EBADF, "the file is closed", str(self.path))
        if self._content is None:
            if self.size:  # it had something in it, and is not made anew
                raise FileNotFoundError(errno.ENOENT, "it was taken away", str(self.path))
            self._content = self._disk.make(self.path)
        return self._content

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor", str(self.path))

    def create(self) -> None:
        self._open()

    def append(self, data: Buffer) -> int:
        content, at = self._open(), self.size
        self._disk.take_room(len(data), self.path)
        content.data += data
        content.modified_ms = self._disk.now_ms()
        self.size = at + len(data)
        return at

    def pread(self, size: int, at: int) -> bytes:
        return bytes(self._open().data[at : at + size])

    def map(self, size: int) -> Any:
        return _Mapped(self._open().data[:size])

    def is_cached(self, at: int, size: int) -> bool:
        self._open()
        return not self._disk.is_cold()

    def read_ahead(self, at: int, size: int) -> "asyncio.Future[None]":
        self._open()
        return asyncio.get_running_loop().run_in_executor(self._handles.reading, self._disk.check_lives)

    def truncate(self, size: int) -> None:
        content = self._open()
        self._disk.check_lives()
        content.truncate(size)
        self.size = size

    def reserve(self, size: int) -> None:
        self._open()

    def sync(self) -> None:
        self.syncer()()

    def syncer(self) -> Callable[[], None]:
        content = self._open()
        size, disk = len(content.data), self._disk

        def sync() -> None:
            disk.check_lives()
            disk.syncs += 1
            if disk.sync_error is not None:
                raise disk.sync_error
            content.sync(size)

        return sync

    def rename(self, path: Path) -> None:
        self._open()
        self._disk.rename(self.path, path)
        self.path = path

    def release(self) -> None:
        """There is no descriptor."""

    def close(self) -> None:
        self._handles.closed(self)
        self._is_closed = True


class MemoryDisk:
    """A `Disk`, which outlives the processes that use it."""

    def __init__(self, random: Random, now_ms: Callable[[], int]) -> None:
        self.random = random
        self.now_ms = now_ms
        self.room_bytes = 1 << 40
        self.sync_error: OSError | None = None
        self.syncs = 0
        self._left: int | None = None
        self._die: Callable[[], None] = lambda: None
        self.cold = 0.0
        """How often what is read is not in memory."""
        self._names: dict[str, Content | None] = {"/": _FOLDER}
        self._durable: dict[str, Content | None] = dict(self._names)
        self._changes: list[Callable[[dict[str, Content | None]], None]] = []  # of names, not durable yet
        self._unused = 0
        self._holder: object = None

    # --- for whoever simulates

    def attach(self, executors: Executors) -> "Attached":
        """The disk as a process has it that starts now; those before it have it no more."""
        self._holder = attached = Attached(self, executors)
        return attached

    def detach(self) -> None:
        """The process is gone."""
        self._holder = self._left = None

    def arm(self, steps: int, die: Callable[[], None]) -> None:
        self._left, self._die = steps, die

    def disarm(self) -> None:
        self._left = None

    def step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._die()
                raise Crash

    def is_held(self, holder: object) -> bool:
        return self._holder is holder

    def power_cut(self) -> None:
        self.detach()
        kept = self.random.randint(0, len(self._changes))
        for change in self._changes[:kept]:
            change(self._durable)
        self._changes.clear()
        self._names = dict(self._durable)
        for content in {id(each): each for each in self._names.values() if each is not None}.values():
            content.power_cut(self.random)

    # --- names

    def content(self, path: Path) -> Content | None:
        return self._names.get(str(path))

    def has(self, path: Path) -> bool:
        return str(path) in self._names

    def change(self, change: Callable[[dict[str, Content | None]], None]) -> None:
        change(self._names)
        self._changes.append(change)

    def sync_names(self) -> None:
        for change in self._changes:
            change(self._durable)
        self._changes.clear()

    def unused(self) -> str:
        self._unused += 1
        return f"unused-{self._unused}"

    def below(self, path: Path) -> list[str]:
        prefix = f"{path}/"
        return [name for name in self._names if name.startswith(prefix)]


class Attached:
    """A `Disk` as one process has it."""

    def __init__(self, disk: MemoryDisk, executors: Executors) -> None:
        self.disk = disk
        self.handles = Handles(1 << 30, executors("read", _READING_THREADS))

    # --- for files

    def check_lives(self) -> None:
        if not self.disk.is_held(self):
            raise OSError(errno.EIO, "the process is gone")
        self.disk.step()

    def take_room(self, size: int, path: Path) -> None:
        self.check_lives()
        if self.disk.room_bytes < size:
            raise DiskFull(f"no room on the disk for {size} bytes in {path}")
        self.disk.room_bytes -= size

    def is_cold(self) -> bool:
        return self.disk.cold > 0 and self.disk.random.random() < self.disk.cold

    def now_ms(self) -> int:
        return self.disk.now_ms()

    @property
    def sync_error(self) -> OSError | None:
        return self.disk.sync_error

    @property
    def syncs(self) -> int:
        return self.disk.syncs

    @syncs.setter
    def syncs(self, value: int) -> None:
        self.disk.syncs = value

    def content(self, path: Path) -> Content | None:
        return self.disk.content(path)

    def make(self, path: Path) -> Content:
        self.check_lives()
        known = self.disk.content(path)
        if known is not None:
            return known
        if not self.disk.has(path.parent):
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
        made = Content()
        made.modified_ms = self.now_ms()
        self.disk.change(lambda names: names.__setitem__(str(path), made))
        return made

    # --- as a disk

    def open(self, path: Path) -> File:
        return MemoryFile(cast(Any, self), path)

    def list(self, path: Path) -> Sequence[str]:
        if not self.disk.has(path):
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        start = len(str(path)) + 1
        return sorted({name[start:].split("/", 1)[0] for name in self.disk.below(path)})

    def exists(self, path: Path) -> bool:
        return self.disk.has(path)

    def size(self, path: Path) -> int:
        content = self.disk.content(path)
        return 0 if content is None else len(content.data)

    def modified_ms(self, path: Path) -> int:
        content = self.disk.content(path)
        return 0 if content is None else content.modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        content = self.disk.content(path)
        if content is not None:
            content.modified_ms = modified_ms

    def read_whole(self, path: Path) -> bytes:
        content = self.disk.content(path)
        return b"" if content is None else bytes(content.data)

    def read_tail(self, path: Path, size: int) -> bytes:
        return self.read_whole(path)[-size:]

    def make_dirs(self, path: Path) -> None:
        self.check_lives()
        missing = [each for each in (path, *path.parents) if not self.disk.has(each)]
        for each in reversed(missing):
            self.disk.change(lambda names, name=str(each): names.__setitem__(name, _FOLDER))  # type: ignore[misc]

    def rename(self, old: Path, new: Path) -> None:
        self.check_lives()
        if not self.disk.has(old):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(old))
        one, other = str(old), str(new)

        def move(names: dict[str, Content | None]) -> None:
            for name in [name for name in names if name == one or name.startswith(one + "/")]:
                names[other + name[len(one) :]] = names.pop(name)

        self.disk.change(move)

    def remove(self, path: Path) -> None:
        self.check_lives()
        if self.disk.has(path):
            self.disk.change(lambda names: names.pop(str(path), None) and None)

    def remove_tree(self, path: Path) -> None:
        self.check_lives()

        def take(names: dict[str, Content | None]) -> None:
            prefix = f"{path}/"
            for name in [name for name in names if name == str(path) or name.startswith(prefix)]:
                del names[name]

        if self.disk.has(path):
            self.disk.change(take)

    def write_whole(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        self.take_room(len(data), path)
        if sync and self.sync_error is not None:
            raise self.sync_error
        if not self.disk.has(path.parent):
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
        made = Content()
        made.data, made.modified_ms = bytearray(data), self.now_ms()
        made.durable = len(data) if sync else 0
        self.disk.change(lambda names: names.__setitem__(str(path), made))
        if sync:
            self.sync_dir(path.parent)

    def sync_dir(self, path: Path) -> None:
        self.check_lives()
        if not self.disk.has(path):
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        if self.sync_error is not None:
            raise self.sync_error
        self.disk.sync_names()

    def unused_name(self) -> str:
        return self.disk.unused()

    def lock(self, path: Path) -> Callable[[], None]:
        if not self.disk.is_held(self):
            raise Exists("another process")
        return self.disk.detach
