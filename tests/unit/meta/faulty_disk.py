"""A disk that can be full, can fail to sync, and remembers what was durable when."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from anabranch.base.disk import Buffer, DirectDisk, File
from anabranch.base.errors import DiskFull


class FaultyDisk(DirectDisk):
    """`room_bytes` is what may still be written; `failing_syncs` how many of the next syncs fail."""

    def __init__(self) -> None:
        super().__init__(max_open=4)
        self.room_bytes: int | None = None
        self.failing_syncs = 0
        self.syncs = 0
        self.durable_bytes: dict[Path, int] = {}

    def open(self, path: Path) -> File:
        return _FaultyFile(path, self)

    def write_whole(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        if self.room_bytes is not None and len(data) > self.room_bytes:
            path.with_name(path.name + ".tmp").write_bytes(data[: self.room_bytes])
            raise DiskFull(f"no room on the disk for {path}")
        super().write_whole(path, data, sync=sync)
        self.durable_bytes[path] = len(data)

    def take(self, size: int) -> bool:
        if self.room_bytes is None:
            return True
        if size > self.room_bytes:
            return False
        self.room_bytes -= size
        return True


class _FaultyFile(File):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: FaultyDisk) -> None:
        super().__init__(path, disk.size(path), disk.handles)
        self._disk = disk

    def append(self, data: Buffer) -> int:
        if not self._disk.take(len(data)):
            raise DiskFull(f"no room on the disk for {len(data)} bytes in {self.path}")
        return super().append(data)

    def syncer(self) -> Callable[[], None]:
        disk, path, size, really = self._disk, self.path, self.size, super().syncer()

        def sync() -> None:
            really()
            disk.syncs += 1
            if disk.failing_syncs:
                disk.failing_syncs -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            disk.durable_bytes[path] = size

        return sync
