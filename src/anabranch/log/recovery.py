"""Opening a log: what was left by a clean stop is trusted, everything else is read again.

    clean stop      the indexes are whole and a snapshot of the producers stands at the log's end;
                    only the batches after the last index entry are looked at
    unclean stop    every segment that reaches beyond the recovery point is read whole: each batch
                    must be complete, in order and match its CRC.  At the first that does not, the
                    log is cut, and what follows is removed.  Indexes are rewritten.  Without the
                    leader epochs, which a power cut may take, that is all segments

Both end with the producers: a snapshot, and the batches after it.  It is the newest one that can be
read, but not one behind the first segment that was read again: the replay also lists the aborted
transactions of those segments again.

The CRC covers neither a batch's offset nor its leader epoch.  A flipped offset is found out by being
out of order, or by leaving a gap in the last segment of a log that is not marked as having gaps: compaction
never touches that one.  A flipped epoch is not found out, as in Kafka.

What compaction was doing when it was cut off is completed or undone first (`compaction_swap`).  What a
truncation was doing is completed here: a segment that goes beyond where an empty last one begins ends there.
"""

import logging
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import Corrupt
from anabranch.log import compaction_swap
from anabranch.log.compacted import open_view
from anabranch.log.config import LogConfig
from anabranch.log.epochs import LeaderEpochs
from anabranch.log.local_log import LocalLog, LogState
from anabranch.log.paths import (
    CLEANED,
    DELETED,
    GAPS,
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    SWAP,
    TIME_INDEX,
    base_offset_of,
    partition_name,
    segment_file,
)
from anabranch.log.producer_replay import restore_producers
from anabranch.log.producers import Producers
from anabranch.log.segment import Segment
from anabranch.records.batch import MAGIC, BatchHeader, crc_of, part_of

log = logging.getLogger(__name__)

_LEFTOVERS = (CLEANED, SWAP, DELETED, ".tmp")
_LARGEST_RELATIVE_OFFSET = 0x7FFFFFFF


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
    """The log in `folder`, made if there is none.  If it raises, nothing of it is left open."""
    disk.make_dirs(folder)
    compaction_swap.finish(disk, folder)
    names = _remove_leftovers(disk, folder)
    bases = [base for name in names if name.endswith(LOG) and (base := base_offset_of(name)) is not None]
    segments = [Segment(disk, folder, base, config) for base in bases] or [
        Segment.create(disk, folder, log_start, config)
    ]
    for segment, following in pairwise(segments):
        segment.end_offset = following.base_offset
    with ExitStack() as undo:
        for segment in segments:
            undo.callback(segment.close)
        epochs = LeaderEpochs(disk, folder)
        if not bases:  # all that there was had been taken away
            epochs.clear()
        trusted_end = recovery_point
        first_doubtful = _first_doubtful(disk, segments, clean, recovery_point)
        are_lost = epochs.is_empty and any(segment.size for segment in segments)
        if are_lost:  # only the batches tell them
            first_doubtful = 0
        if first_doubtful < len(segments):
            recovery_point = min(
                recovery_point, segments[first_doubtful].base_offset
            )  # of what is written again
            recovered = _recover(segments, first_doubtful, epochs, gaps=disk.exists(folder / GAPS))
            if len(recovered) < len(segments) and recovered[-1].size:
                # Compaction may have been in the last one, so nothing is added to it.
                recovered.append(Segment.create(disk, folder, recovered[-1].end_offset, config))
                undo.callback(recovered[-1].close)
            segments = recovered
        start = max(log_start, segments[0].base_offset)
        if start > segments[-1].end_offset:  # the tail was lost, the promise to start there was not
            segments.append(Segment.create(disk, folder, start, config))
            undo.callback(segments[-1].close)
        end = segments[-1].end_offset
        if are_lost:
            epochs.truncate_start(start) if start < end else epochs.clear()
        state = LogState(segments, start, end, min(recovery_point, end), epochs, Producers())
        opened = LocalLog(disk, clock, folder, config, state)
        restore_producers(disk, opened, names, first_doubtful)
        _sync_rebuilt(disk, folder, opened.segments[first_doubtful:-1], trusted_end)
        opened.view = open_view(disk, clock, folder, config, end)
        undo.pop_all()
    return opened


def _sync_rebuilt(disk: Disk, folder: Path, sealed: list[Segment], trusted_end: int) -> None:
    """Make durable again what was written again below the checkpoint's recovery point.

    The next start believes that checkpoint, if there is no other by then.
    """
    trusted = [segment for segment in sealed if segment.end_offset <= trusted_end]
    for segment in trusted:
        for sync in segment.syncers(indexes=True):
            sync()
    if trusted:
        disk.sync_dir(folder)


def _remove_leftovers(disk: Disk, folder: Path) -> list[str]:
    """Remove what is part of no segment.  The names that are left, in order."""
    names = disk.list(folder)
    logs = {base_offset_of(name) for name in names if name.endswith(LOG)}
    kept = []
    for name in names:
        orphaned = name.endswith(SEGMENT_FILES) and base_offset_of(name) not in logs
        if orphaned or name.endswith(_LEFTOVERS):
            disk.remove(folder / name)
        else:
            kept.append(name)
    return kept


def _first_doubtful(disk: Disk, segments: list[Segment], clean: bool, recovery_point: int) -> int:
    """The first segment that must be read whole; past the last one if none must."""
    for i, segment in enumerate(segments):
        last = i == len(segments) - 1
        unsynced = not clean and (last or segment.end_offset > recovery_point or _is_last(segments, i))
        if unsynced or (segment.size and _lacks_index(disk, segment)):
            return i
        if last and not _find_end(segment):
            return i
    return len(segments)


def _is_last(segments: list[Segment], i: int) -> bool:
    """Whether nothing is behind the i-th segment, which has too much if the log was being cut there."""
    return not any(segment.size for segment in segments[i + 1 :])


def _lacks_index(disk: Disk, segment: Segment) -> bool:
    return not all(
        disk.exists(segment_file(segment.folder, segment.base_offset, kind))
        for kind in (OFFSET_INDEX, TIME_INDEX)
    )


def _find_end(segment: Segment) -> bool:
    """Set the end of a segment whose indexes are trusted.  False if they, or it, should not be."""
    if not segment.size:
        return True
    index = segment.offset_index
    if not index.is_whole or not segment.time_index.is_whole:
        return False
    try:
        last = segment.base_offset + (index.entry(index.entries - 1)[0] if index.entries else 0)
        found = segment.find(last)
        if found is None:
            return False
        for place in segment.batches(found.position):
            segment.end_offset = place.header.last_offset + 1
        segment.first_timestamp = next(segment.batches()).header.max_timestamp
    except Corrupt as error:
        log.warning("%s: %s is read whole, its end is not what the indexes say: %s", *_place(segment), error)
        return False
    return True


def _place(segment: Segment) -> tuple[str, str]:
    """The partition and the file, for a line of the log."""
    path = segment.file.path
    return partition_name(path), path.name


# --- after an unclean stop


def _recover(segments: list[Segment], first: int, epochs: LeaderEpochs, *, gaps: bool) -> list[Segment]:
    """Read segments from `first` on and cut the log at the first damage."""
    kept = segments[:first]
    for i in range(first, len(segments)):
        segment = segments[i]
        following = segments[i + 1].base_offset if i + 1 < len(segments) else None
        whole = _rebuild(segment, epochs, following, gaps=gaps or following is not None)
        kept.append(segment)
        if not whole:
            for later in segments[i + 1 :]:
                log.warning("%s: %s removed, it follows damage", *_place(later))
                later.remove()
            break
        if following is not None:
            segment.seal()
            segment.end_offset = following
    if any(segment.size for segment in kept):
        epochs.truncate_end(kept[-1].end_offset)
    else:
        epochs.clear()
    return kept


def _rebuild(segment: Segment, epochs: LeaderEpochs, following: int | None, *, gaps: bool) -> bool:
    """Check every batch and write the indexes again.  False if there was damage, and the segment was cut.

    What the `following` segment holds is no damage: the log was being cut where that one begins.
    """
    segment.forget()
    segment.aborted.clear()
    end, expected = 0, segment.base_offset
    keep: tuple[int, int] | None = None
    problem = ""
    for (position, header), batch in segment.whole_batches():
        problem = _damage(header, batch, segment.base_offset, expected, gaps)
        if problem:
            break
        if keep is None and following is not None and header.last_offset >= following:
            keep = end, expected
        if keep is None:
            segment.note(position, (part_of(header),))
            epochs.assign(header.leader_epoch, header.base_offset)
        end, expected = position + len(batch), header.last_offset + 1
    whole = end == segment.size
    if whole and keep is None:
        return True
    if whole:
        problem = "the log was being cut there"
    end, expected = keep or (end, expected)
    log.warning(
        "%s: %s cut from %d to %d bytes, it ends at offset %d now: %s",
        *_place(segment),
        segment.size,
        end,
        expected,
        problem or "the last batch is incomplete",
    )
    segment.truncate(end, expected)
    return whole


def _damage(header: BatchHeader, batch: memoryview, base: int, expected: int, gaps: bool) -> str:
    """What is wrong with a batch, empty if nothing is."""
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if header.base_offset < expected or header.last_offset_delta < 0:
        return f"offset {header.base_offset} where {expected} or more was due"
    if header.base_offset > expected and not gaps:
        return f"offset {header.base_offset} where {expected} was due"
    if header.last_offset - base > _LARGEST_RELATIVE_OFFSET:
        return f"offset {header.last_offset} in a segment that begins at {base}"
    if crc_of(batch) != header.crc:
        return "the checksum does not match"
    return ""
