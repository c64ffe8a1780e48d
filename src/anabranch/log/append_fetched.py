"""Fetched batches: appended to a follower's log as its leader has them, offsets, epochs and checksums.

    fetched   [batch 10..12][batch 15..15][batch 16..19][batch 20..   the rest did not fit into the answer
    appended  ^ at the log's end or beyond ------------^

A leader's log may have gaps where compaction was, and a follower's has the same.  All of it is checked
before anything is written: what was damaged on the way would be in this log for good.

An answer may hold batches of a later epoch than it was asked for in: its leader lost the partition and got
the new one's batches into its log while the answer was on its way.  These are left out (KAFKA-18723).
"""

from collections.abc import Iterator, Sequence

from anabranch.base.disk import Buffer, Disk
from anabranch.base.errors import Corrupt
from anabranch.log.local_log import LocalLog
from anabranch.log.truncation import truncate_fully_and_start_at
from anabranch.records.batch import (
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    PULSAR_ENTRY,
    BatchHeader,
    crc_of,
    part_of,
    read_header,
)

_LARGEST_RELATIVE_OFFSET = 0x7FFFFFFF


def append_fetched(disk: Disk, log: LocalLog, buffer: Buffer, leader_epoch: int) -> None:
    """Write the whole batches of `buffer`, up to the first of an epoch later than `leader_epoch`.

    Corrupt, and nothing written, if one is damaged or does not follow the one before it.  If the disk
    refuses, the log's end says how far it got.
    """
    view = memoryview(buffer)
    headers = _checked(log, view, leader_epoch)
    if not headers:
        return
    if headers[0].base_offset < log.log_end:
        _begin_before(disk, log, headers[0].base_offset)
    if _has_gaps(log.log_end, headers):
        log.mark_gaps()
    if any(header.attributes & PULSAR_ENTRY for header in headers):
        log.mark_entries()
    at = 0
    for run in _runs(headers, log.config.segment_bytes):
        size = sum(header.size_bytes for header in run)
        if not log.active.size and run[-1].last_offset - log.active.base_offset > _LARGEST_RELATIVE_OFFSET:
            log.roll(run[0].base_offset)
        log.write(view[at : at + size], [part_of(header) for header in run], run[0].leader_epoch)
        at += size


def _begin_before(disk: Disk, log: LocalLog, offset: int) -> None:
    """Have an empty log hold a batch that its start lies in."""
    start = log.log_start
    for segment in truncate_fully_and_start_at(disk, log, offset):
        segment.remove()
    log.advance_start(start)


def _checked(log: LocalLog, view: memoryview, leader_epoch: int) -> list[BatchHeader]:
    """The headers of the whole batches that may be appended."""
    headers: list[BatchHeader] = []
    at, expected, epoch = 0, log.log_end, log.epochs.latest
    while at + HEADER_SIZE <= len(view):
        header = read_header(view, at)
        end = at + header.size_bytes
        if header.length < HEADER_SIZE - OVERHEAD:
            raise Corrupt(f"{log.folder.name}: a batch of {header.length} bytes was fetched")
        if end > len(view):
            break
        if not headers and header.base_offset < expected <= header.last_offset and log.log_start == expected:
            expected = header.base_offset  # the leader was trimmed in the middle of a batch
        problem = _problem(header, view[at:end], expected, epoch)
        if problem:
            raise Corrupt(f"{log.folder.name}: fetched at offset {expected}: {problem}")
        if header.leader_epoch > leader_epoch:
            break
        headers.append(header)
        at, expected, epoch = end, header.last_offset + 1, header.leader_epoch
    return headers


def _problem(header: BatchHeader, batch: memoryview, expected: int, epoch: int) -> str:
    """Why a batch may not be appended, empty if it may."""
    if header.magic != MAGIC:
        return f"a batch of magic {header.magic}"
    if header.base_offset < expected or header.last_offset_delta < 0:
        return f"a batch from {header.base_offset} to {header.last_offset}"
    if header.leader_epoch < epoch:
        return f"a batch of leader epoch {header.leader_epoch} after one of {epoch}"
    if crc_of(batch) != header.crc:
        return f"the checksum of the batch from {header.base_offset} on does not match"
    return ""


def _has_gaps(expected: int, headers: Sequence[BatchHeader]) -> bool:
    for header in headers:
        if header.base_offset != expected:
            return True
        expected = header.last_offset + 1
    return False


def _runs(headers: Sequence[BatchHeader], segment_bytes: int) -> Iterator[list[BatchHeader]]:
    """Batches of one epoch that fit into one segment together, or a single one of any size."""
    run: list[BatchHeader] = []
    size = 0
    for header in headers:
        if run and (
            header.leader_epoch != run[0].leader_epoch
            or size + header.size_bytes > segment_bytes
            or header.last_offset - run[0].base_offset > _LARGEST_RELATIVE_OFFSET
        ):
            yield run
            run, size = [], 0
        run.append(header)
        size += header.size_bytes
    if run:
        yield run
