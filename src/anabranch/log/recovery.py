"""Opening a log: what was left by a clean stop is trusted, everything else is read again.

    clean stop      the indexes are whole and a snapshot of the producers stands at the log's end;
                    only the batches after the last index entry are looked at
    unclean stop    every segment that reaches beyond the recovery point is read whole: each batch
                    must be complete, in order and match its CRC.  At the first that does not, the
                    log is cut, and what follows is removed.  Indexes are written anew.

Both end with the producers: the newest usable snapshot, and the batches after it.

Compaction leaves `.swap` files when it was cut off while putting its result in place: they are
complete, so the replacement is carried through.  `.cleaned` and `.deleted` files are leftovers.
"""

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from crc32c import crc32c

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import Corrupt
from anabranch.log import producer_snapshot
from anabranch.log.config import LogConfig
from anabranch.log.epochs import LeaderEpochs
from anabranch.log.local_log import LocalLog, LogState
from anabranch.log.paths import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    base_offset_of,
    segment_file,
)
from anabranch.log.producers import Producers
from anabranch.log.segment import Segment
from anabranch.records.batch import CRC_START, HEADER_SIZE, MAGIC, OVERHEAD, BatchHeader, read_header

log = logging.getLogger(__name__)

_CHUNK_BYTES = 4 << 20


def open_log(
    disk: Disk,
    clock: Clock,
    folder: Path,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start: int = 0,
) -> LocalLog:
    """The log in `folder`, made if there is none."""
    disk.make_dirs(folder)
    _finish_swaps(disk, folder, config)
    names = _remove_leftovers(disk, folder)
    bases = sorted(
        base for name in names if name.endswith(LOG) and (base := base_offset_of(name)) is not None
    )
    segments = [Segment(disk, folder, base, config) for base in bases] or [
        Segment(disk, folder, log_start, config)
    ]
    for segment, following in pairwise(segments):
        segment.end_offset = following.base_offset
    epochs = LeaderEpochs(disk, folder)
    first_doubtful = _first_doubtful(disk, segments, clean, recovery_point)
    if first_doubtful < len(segments):
        segments = _recover(disk, segments, first_doubtful, epochs)
    else:
        _find_end(segments[-1])
    start = max(log_start, segments[0].base_offset)
    end = max(segments[-1].end_offset, start)
    state = LogState(segments, start, end, end if clean else min(recovery_point, end), epochs, Producers())
    opened = LocalLog(disk, clock, folder, config, state)
    _restore_producers(disk, opened, names)
    return opened


def _remove_leftovers(disk: Disk, folder: Path) -> list[str]:
    kept = []
    for name in disk.list(folder):
        if name.endswith((CLEANED, DELETED, ".tmp")):
            disk.remove(folder / name)
        else:
            kept.append(name)
    return kept


def _finish_swaps(disk: Disk, folder: Path, config: LogConfig) -> None:
    """Complete a replacement of segments that was under way."""
    names = set(disk.list(folder))
    for name in sorted(names):
        base = base_offset_of(name)
        if base is None or not name.endswith(LOG + SWAP):
            continue
        end = _swap_end(disk, folder / name, base)
        for other in names:
            replaced = base_offset_of(other)
            if other.endswith(LOG) and replaced is not None and base <= replaced < max(end, base + 1):
                for kind in SEGMENT_FILES:
                    disk.remove(segment_file(folder, replaced, kind))
        for kind in SEGMENT_FILES:
            swap = segment_file(folder, base, kind + SWAP)
            if disk.exists(swap):
                disk.rename(swap, segment_file(folder, base, kind))
        log.info("%s: finished replacing segments from offset %d", folder, base)


def _swap_end(disk: Disk, path: Path, base: int) -> int:
    """The offset after the last record of a `.swap` log file."""
    file = disk.open(path)
    position, end = 0, base
    while position + HEADER_SIZE <= file.size:
        header = read_header(file.pread(HEADER_SIZE, position))
        end = header.last_offset + 1
        position += header.size_bytes
    file.close()
    return end


def _first_doubtful(disk: Disk, segments: list[Segment], clean: bool, recovery_point: int) -> int:
    """The first segment that must be read whole; past the last one if none must."""
    for i, segment in enumerate(segments):
        last = i == len(segments) - 1
        unsynced = not clean and (last or segment.end_offset > recovery_point)
        if unsynced or (segment.size and _lacks_index(disk, segment)):
            return i
    return len(segments)


def _lacks_index(disk: Disk, segment: Segment) -> bool:
    return not all(
        disk.exists(segment_file(segment.folder, segment.base_offset, kind))
        for kind in (OFFSET_INDEX, TIME_INDEX)
    )


def _find_end(segment: Segment) -> None:
    """Set the end of a segment whose indexes are trusted."""
    if not segment.size:
        return
    index = segment.offset_index
    start = index.entry(index.entries - 1)[1] if index.entries else 0
    for found in segment.batches(start):
        segment.end_offset = found.header.last_offset + 1
        if segment.first_timestamp is None and found.position == 0:
            segment.first_timestamp = found.header.max_timestamp
    if segment.first_timestamp is None:
        segment.first_timestamp = next(segment.batches(0)).header.max_timestamp


# --- after an unclean stop


def _recover(disk: Disk, segments: list[Segment], first: int, epochs: LeaderEpochs) -> list[Segment]:
    """Read segments from `first` on and cut the log at the first damage."""
    kept = segments[:first]
    for i in range(first, len(segments)):
        segment = segments[i]
        whole = _rebuild(disk, segment, epochs)
        kept.append(segment)
        if not whole:
            for later in segments[i + 1 :]:
                log.warning("%s: removed, it follows damage", later.file.path)
                later.remove()
            break
        if i + 1 < len(segments):
            segment.seal()
            segment.end_offset = segments[i + 1].base_offset
    epochs.truncate_end(kept[-1].end_offset)
    return kept


def _rebuild(disk: Disk, segment: Segment, epochs: LeaderEpochs) -> bool:
    """Check every batch and write the indexes anew.  False if the segment had to be cut."""
    segment.offset_index.truncate(0)
    segment.time_index.truncate_to(-1)
    disk.remove(segment_file(segment.folder, segment.base_offset, TXN_INDEX))
    end, expected = 0, segment.base_offset
    problem = ""
    for position, header, batch in _whole_batches(segment):
        problem = _damage(header, batch, expected)
        if problem:
            break
        segment.note(position, len(batch), header.last_offset, header.max_timestamp)
        epochs.assign(header.leader_epoch, header.base_offset)
        end, expected = position + len(batch), header.last_offset + 1
    if end == segment.size:
        return True
    log.warning(
        "%s: cut from %d to %d bytes at offset %d: %s",
        segment.file.path,
        segment.size,
        end,
        expected,
        problem or "the last batch is incomplete",
    )
    segment.truncate(end, expected)
    return False


def _whole_batches(segment: Segment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every complete batch of a segment with its position, read in large pieces."""
    position, size = 0, segment.size
    while position + HEADER_SIZE <= size:
        chunk = memoryview(segment.file.pread(_CHUNK_BYTES, position))
        at = 0
        while at + HEADER_SIZE <= len(chunk):
            header = read_header(chunk, at)
            end = at + header.size_bytes
            if header.length < HEADER_SIZE - OVERHEAD or position + end > size:
                return
            if end > len(chunk):
                break
            yield position + at, header, chunk[at:end]
            at = end
        if at == 0:  # a batch larger than a piece
            header = read_header(chunk)
            chunk = memoryview(segment.file.pread(header.size_bytes, position))
            yield position, header, chunk
            at = len(chunk)
        position += at


def _damage(header: BatchHeader, batch: memoryview, expected: int) -> str:
    """What is wrong with a batch, empty if nothing is."""
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if header.base_offset < expected or header.last_offset_delta < 0:
        return f"offset {header.base_offset} where {expected} or more was due"
    if crc32c(batch[CRC_START:]) != header.crc:
        return "the checksum does not match"
    return ""


# --- producers


def _restore_producers(disk: Disk, opened: LocalLog, names: list[str]) -> None:
    """Fill in the producers from the newest usable snapshot and the batches after it."""
    start = opened.log_start
    for offset in producer_snapshot.offsets(names):
        path = segment_file(opened.folder, offset, SNAPSHOT)
        if offset > opened.log_end:
            disk.remove(path)
            continue
        try:
            opened.producers = producer_snapshot.decode(disk.read_whole(path))
        except Corrupt as error:
            log.warning("%s is ignored: %s", path, error)
            disk.remove(path)
            continue
        start = offset
        break
    if start >= opened.log_end:
        return
    for segment in opened.segments:
        if segment.end_offset > start and segment.size:
            position = segment.offset_index.position_before(start - segment.base_offset)
            for found in segment.batches(position):
                header = found.header
                if header.base_offset >= start and header.producer_id >= 0:
                    batch = (
                        segment.file.pread(header.size_bytes, found.position) if header.is_control else b""
                    )
                    opened.note_producer(segment, batch, header, header.base_offset)
