"""File removal: files that are out of the log but may still be read, deleted after a delay.

A segment that was dropped or replaced lies beside the log under names that end in `.deleted`, the
folder of a deleted partition in `DATA/deleted`.  Readers that were sent there finish; after
`file.delete.delay.ms` the files go, in a thread, since unlinking a large file takes a while.  What cannot
be removed is tried again later.  What a stop leaves behind goes when the log is opened again or glanced at,
or at the next start.
"""

import asyncio
import logging
from concurrent.futures import Executor
from pathlib import Path

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.log.paths import partition_name
from anabranch.log.segment import Segment
from anabranch.partition.due import DueTimes

log = logging.getLogger(__name__)

_AGAIN_MS = 300_000


class Removal:
    def __init__(self, disk: Disk, clock: Clock, threads: Executor) -> None:
        self._disk = disk
        self._clock = clock
        self._threads = threads
        self._segments: DueTimes[Segment] = DueTimes()
        self._folders: DueTimes[Path] = DueTimes()
        self._files: DueTimes[Path] = DueTimes()

    def segment(self, segment: Segment, delay_ms: int) -> None:
        """Remove the `.deleted` files of a segment that is in no log any more."""
        self._segments.at(segment, self._now_ms() + delay_ms)

    def folder(self, folder: Path, delay_ms: int) -> None:
        self._folders.at(folder, self._now_ms() + delay_ms)

    def leftovers(self, files: list[Path]) -> None:
        """Remove files that an earlier run had no time for; no reader is in them."""
        for path in files:
            self._files.at(path, self._now_ms())

    async def round(self) -> None:
        """Remove what is due."""
        now_ms = self._now_ms()
        loop = asyncio.get_running_loop()
        for segment in self._segments.pop(now_ms):
            segment.close()
            for path in segment.files():
                self._files.at(path, now_ms)
        files = self._files.pop(now_ms)
        if files:
            for path in await loop.run_in_executor(self._threads, _remove, self._disk, files):
                self._files.at(path, now_ms + _AGAIN_MS)
        for folder in self._folders.pop(now_ms):
            if not await loop.run_in_executor(self._threads, _remove_tree, self._disk, folder):
                self._folders.at(folder, now_ms + _AGAIN_MS)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _remove(disk: Disk, paths: list[Path]) -> list[Path]:
    """Those that could not be removed."""
    left = []
    for path in paths:
        try:
            disk.remove(path)
        except OSError as error:
            log.warning(
                "%s: %s could not be removed, tried again later: %s", partition_name(path), path.name, error
            )
            left.append(path)
    return left


def _remove_tree(disk: Disk, folder: Path) -> bool:
    try:
        disk.remove_tree(folder)
    except OSError as error:
        log.warning("deleted folder %s: could not be removed, tried again later: %s", folder, error)
        return False
    return True
