"""Compaction of one log, over its files: the last record of every key stays, at the offset it has.

    1. read what is dirty, and note the last offset of every key         (compaction_walk, compaction_keys)
    2. copy every segment below the end, without what is superseded      (compaction_filter)
       into files that end in `.cleaned`, several small ones into one    (compaction_plan)

`compact` knows no log, no loop and no broker: it is given a job and reports each replacement as soon as
it is durable, so that the caller can put it in place (compaction_swap) while the next one is written.
That way a log needs little more disk than its largest segment.  It runs in a process of its own, see
`compaction_worker`.

When the table of keys is full, the log is cleaned up to there and the rest is left for another time.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from anabranch.base.disk import Buffer, Disk
from anabranch.base.errors import NotFound, TooLarge
from anabranch.log import compaction_swap, transactions
from anabranch.log.compaction_fates import Fates
from anabranch.log.compaction_filter import BatchFilter, LastWrite, Rules
from anabranch.log.compaction_keys import LastOffsets
from anabranch.log.compaction_plan import Sizes, group
from anabranch.log.compaction_walk import KeyWalk, Tally, batches, note_keys
from anabranch.log.config import LogConfig
from anabranch.log.paths import CLEANED, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_file
from anabranch.log.segment import Segment
from anabranch.log.transactions import AbortedTransaction
from anabranch.records.batch import read_header

log = logging.getLogger(__name__)

_LARGEST_FILE = 0x7FFFFFFF  # positions in an index are 32 bits


class Job(NamedTuple):
    """What is to be compacted, and by which rules.  It travels as JSON."""

    folder: str
    bases: list[int]
    """All segments below `end`, in order."""
    later_bases: list[int]
    """The rest of the log, where markers of transactions may be."""
    first_dirty: int
    end: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    unpacked_limit_bytes: int
    dedupe_bytes: int
    io_bytes_per_second: float
    producers: list[tuple[int, int, int]]
    """Producer id, where its last batch ends (-1: none), epoch."""


class Summary(NamedTuple):
    """What came of a job."""

    cleaned_to: int
    keys: int
    read_bytes: int
    written_bytes: int
    keyless: int
    unreadable: int


def compact(
    disk: Disk, job: Job, spend: Callable[[int], None], finished: Callable[[list[int]], None]
) -> Summary:
    """Do a job.  `spend(n)` before n more bytes; `finished(bases)` when a replacement of these is there."""
    folder = Path(job.folder)
    config = LogConfig(
        segment_index_bytes=job.segment_index_bytes, index_interval_bytes=job.index_interval_bytes
    )
    tally = Tally(spend)
    for base in job.bases:
        if not disk.exists(segment_file(folder, base, LOG)):
            raise NotFound(f"the segment {base} of {folder} is gone")
    segments = [Segment(disk, folder, base, config) for base in job.bases]
    for segment, end in zip(segments, [*job.bases[1:], job.end], strict=True):
        segment.end_offset = end
    aborted = [
        entry for base in (*job.bases, *job.later_bases) for entry in transactions.read(disk, folder, base)
    ]
    keys, known_to = _read_keys(segments, aborted, job, tally)
    rules = Rules(
        now_ms=job.now_ms,
        delete_retention_ms=job.delete_retention_ms,
        end=known_to,
        round_end=job.end,
        producers={producer: LastWrite(offset, epoch) for producer, offset, epoch in job.producers},
        unpacked_limit_bytes=job.unpacked_limit_bytes,
    )
    fates = Fates(aborted, job.bases[0])
    batch_filter = BatchFilter(keys, fates, rules)
    by_base = {segment.base_offset: segment for segment in segments if segment.base_offset < known_to}
    sizes = [_sizes(disk, segment) for segment in by_base.values()]
    for together in group(sizes, job.segment_bytes, job.segment_index_bytes):
        old = [by_base[each.base_offset] for each in together]
        if _rewrite(disk, old, config, batch_filter, fates, tally):
            finished([segment.base_offset for segment in old])
    for segment in segments:
        segment.close()
    return Summary(
        known_to,
        keys.count,
        tally.read_bytes,
        tally.written_bytes,
        batch_filter.keyless,
        batch_filter.unreadable,
    )


def _read_keys(
    segments: list[Segment], aborted: Iterable[AbortedTransaction], job: Job, tally: Tally
) -> tuple[LastOffsets, int]:
    """The last offset of every key from the first dirty record on, and the offset up to which it holds."""
    keys = LastOffsets(job.dedupe_bytes, job.end - job.first_dirty)
    walk = KeyWalk(job.first_dirty, Fates(aborted, job.first_dirty), job.unpacked_limit_bytes)
    for segment in segments:
        if segment.end_offset <= job.first_dirty:
            continue
        first = segment.find(job.first_dirty)
        for header, batch in batches(segment, first.position if first else segment.size, tally):
            full_at = note_keys(keys, header, batch, walk)
            if full_at is not None:
                return keys, full_at
    return keys, job.end


def _rewrite(
    disk: Disk, old: list[Segment], config: LogConfig, batch_filter: BatchFilter, fates: Fates, tally: Tally
) -> bool:
    """Write what is left of `old` as one `.cleaned` segment.  False if there is nothing to gain by it."""
    folder, base = old[0].folder, old[0].base_offset
    compaction_swap.discard(disk, folder, base)  # what an earlier attempt left
    fates.still_aborted.clear()
    new = Segment(disk, folder, base, config, CLEANED)
    new.file.create()  # it is there even if nothing is left
    unchanged = len(old) == 1
    for segment in old:
        for header, batch in batches(segment, 0, tally):
            rest = batch_filter.rest_of(header, batch)
            unchanged = unchanged and rest is batch
            if rest is not None:
                _append(new, rest, tally)
    if unchanged:
        new.close()
        compaction_swap.discard(disk, folder, base)
        return False
    new.seal()
    for sync in new.syncers(indexes=True):
        sync()
    new.close()
    listed = transactions.encode(fates.still_aborted)
    disk.write_whole(segment_file(folder, base, TXN_INDEX + CLEANED), listed)
    disk.set_modified_ms(new.file.path, disk.modified_ms(old[-1].file.path))
    return True


def _append(new: Segment, batch: Buffer, tally: Tally) -> None:
    header = read_header(batch)
    if new.size + len(batch) > _LARGEST_FILE:
        raise TooLarge(f"{new.file.path} would grow beyond {_LARGEST_FILE} bytes")
    new.append(batch, header.last_offset, header.max_timestamp)
    tally.wrote(len(batch))


def _sizes(disk: Disk, segment: Segment) -> Sizes:
    folder, base = segment.folder, segment.base_offset
    return Sizes(
        base,
        segment.end_offset,
        *(disk.size(segment_file(folder, base, kind)) for kind in (LOG, OFFSET_INDEX, TIME_INDEX)),
    )
