"""A disk that stops at its n-th step, as if the process had been killed there.

    disk = CrashingDisk()
    disk.arm(3)        # three changes of files or names go through, the fourth raises Crash
    disk.steps         # how many there were since

What goes on afterwards raises Crash too: a dead process does nothing more.  `RefusingDisk` refuses one step.
`FailingDisk` is one that fails to sync, or is full, while everything else works.
"""

from collections.abc import Callable
from pathlib import Path

from anabranch.base.disk import Buffer, DirectDisk, File, Handles
from anabranch.base.errors import DiskFull


class Crash(BaseException):
    """Not an Exception: nobody handles the end of the process."""


class _CrashingFile(File):
    __slots__ = ("_step",)

    def __init__(self, path: Path, size: int, handles: Handles, step: Callable[[], None]) -> None:
        super().__init__(path, size, handles)
        self._step = step

    def append(self, data: Buffer) -> int:
        self._step()
        return super().append(data)

    def truncate(self, size: int) -> None:
        self._step()
        super().truncate(size)

    def rename(self, path: Path) -> None:
        self._step()
        super().rename(path)


class CrashingDisk(DirectDisk):
    def __init__(self) -> None:
        super().__init__()
        self._left = 1 << 60
        self.steps = 0

    def arm(self, steps: int) -> None:
        self._left = steps
        self.steps = 0

    def _step(self) -> None:
        if self._left <= 0:
            raise Crash
        self._left -= 1
        self.steps += 1

    def open(self, path: Path) -> File:
        return _CrashingFile(path, self.size(path), self.handles, self._step)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        if self.exists(path):
            self._step()
        super().remove(path)

    def write_whole(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        self._step()
        super().write_whole(path, data, sync=sync)


class RefusingDisk(CrashingDisk):
    """One that refuses one step alone."""

    has_refused = False

    def _step(self) -> None:
        self._left -= 1
        if self._left == -1:
            self.has_refused = True
            raise DiskFull("no room on the disk, this once")
        self.steps += 1


class _LimitedFile(File):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, size: int, disk: "FailingDisk") -> None:
        super().__init__(path, size, disk.handles)
        self._disk = disk

    def append(self, data: Buffer) -> int:
        if self._disk.room_bytes < len(data):
            raise DiskFull(f"no room on the disk for {len(data)} bytes in {self.path}")
        self._disk.room_bytes -= len(data)
        return super().append(data)

    def syncer(self) -> Callable[[], None]:
        sync = super().syncer()

        def fail_or_sync() -> None:
            sync()
            self._disk.syncs += 1
            if self._disk.sync_error is not None:
                raise self._disk.sync_error

        return fail_or_sync


class FailingDisk(DirectDisk):
    """`room_bytes` are left for appends and small files; `sync_error` is what a sync raises, if anything."""

    def __init__(self, room_bytes: int = 1 << 40) -> None:
        super().__init__()
        self.room_bytes = room_bytes
        self.sync_error: OSError | None = None
        self.syncs = 0

    def open(self, path: Path) -> File:
        return _LimitedFile(path, self.size(path), self)

    def write_whole(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        if self.room_bytes < len(data):
            raise DiskFull(f"no room on the disk for {path}")
        self.room_bytes -= len(data)
        super().write_whole(path, data, sync=sync)
