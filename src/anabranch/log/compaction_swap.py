"""Segment swap: compacted segments take the place of those they were made from, and a crash loses nothing.

    old    00.log        10.log          20.log (not part of it)
    new    00.log.cleaned                 written by the worker, synced

    1. .cleaned -> .swap     the indexes first, the .log last, then the folder is synced.  From the
                             moment that a .log.swap is there, the replacement counts.
    2. old -> .deleted       all of them
    3. .swap -> final        the indexes first, the .log last
    4. .deleted are removed  after file.delete.delay.ms, when no reader is in them any more

`finish` runs when a log is opened.  A crash in 1 leaves .cleaned and perhaps .swap files without a
.log.swap: leftovers.  A crash in 2 or 3 leaves a .log.swap: the segments from its base up to its last
offset are removed and it takes its place.  An old segment beyond that offset, all of whose records
were dropped, may survive; it holds nothing that is not superseded, and goes next time.
"""

import logging
from pathlib import Path

from anabranch.base.disk import Disk
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import (
    CLEANED,
    GAPS,
    LOG,
    SEGMENT_FILES,
    SWAP,
    base_offset_of,
    partition_name,
    segment_file,
)
from anabranch.log.segment import Segment
from anabranch.records.batch import HEADER_SIZE, OVERHEAD, read_header

log = logging.getLogger(__name__)

_LOG_LAST = tuple(reversed(SEGMENT_FILES))
assert _LOG_LAST[-1] == LOG, "a .log is renamed last, it is what counts"


def promote(disk: Disk, folder: Path, base_offset: int) -> None:
    """Step 1.  Blocks on the disk, and touches nothing but paths: made for a thread."""
    if not disk.exists(folder / GAPS):  # should the log be cut, what was compacted may be its last segment
        disk.write_whole(folder / GAPS, b"")
    for kind in _LOG_LAST:
        disk.rename(
            segment_file(folder, base_offset, kind + CLEANED), segment_file(folder, base_offset, kind + SWAP)
        )
    disk.sync_dir(folder)


def discard(disk: Disk, folder: Path, base_offset: int) -> None:
    """Remove a replacement that will not be used; the .log.swap first, or it would count after a crash."""
    for suffix in (SWAP, CLEANED):
        for kind in SEGMENT_FILES:
            disk.remove(segment_file(folder, base_offset, kind + suffix))


def revoke(disk: Disk, opened: LocalLog) -> None:
    """No replacement counts, whatever becomes of it, since the log is about to be cut.

    The .log.cleaned first: a thread may be at step 1, and one that is gone cannot be promoted.  One that the
    disk refused in step 2 counts all the same, there is nothing else left.
    """
    for segment in opened.segments:
        if segment.file.path.name.endswith(LOG):
            for suffix in (CLEANED, SWAP):
                disk.remove(segment_file(opened.folder, segment.base_offset, LOG + suffix))


def swap_in(disk: Disk, opened: LocalLog, old: list[Segment]) -> Segment:
    """Steps 2 and 3, once `old` are known to be in the log still.  The new segment."""
    base_offset = old[0].base_offset
    for segment in old:
        opened.mark_deleted(segment)
    _settle(disk, opened.folder, base_offset)
    new = Segment(disk, opened.folder, base_offset, opened.config)
    new.end_offset = old[-1].end_offset
    opened.replace(old, [new])
    return new


def finish(disk: Disk, folder: Path) -> None:
    """Complete the replacements that were under way."""
    names = disk.list(folder)
    for name in names:
        base = base_offset_of(name)
        if base is None or not name.endswith(LOG + SWAP):
            continue
        end = _end_of(disk, folder / name, base)
        for other in names:
            replaced = base_offset_of(other)
            if other.endswith(LOG) and replaced is not None and base < replaced < end:
                for kind in SEGMENT_FILES:
                    disk.remove(segment_file(folder, replaced, kind))
        _settle(disk, folder, base)
        log.info(
            "%s: compaction that was cut off is completed from offset %d on", partition_name(folder), base
        )


def _settle(disk: Disk, folder: Path, base_offset: int) -> None:
    """Give a .swap its final name, over whatever is there.

    A power cut before the folder was synced may have kept the .log's new name and not an index's.
    """
    for kind in _LOG_LAST:
        for suffix in (SWAP, CLEANED):
            ready = segment_file(folder, base_offset, kind + suffix)
            if disk.exists(ready):
                disk.rename(ready, segment_file(folder, base_offset, kind))
                break


def _end_of(disk: Disk, path: Path, base: int) -> int:
    """The offset after the last record of a log file."""
    file = disk.open(path)
    position, end = 0, base
    while position + HEADER_SIZE <= file.size:
        header = read_header(file.pread(HEADER_SIZE, position))
        if header.length < HEADER_SIZE - OVERHEAD:
            break
        end = header.last_offset + 1
        position += header.size_bytes
    file.close()
    return end
