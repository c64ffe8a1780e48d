"""Offsets by time: the first record at or after a time, and the latest, found in a log by batch headers.

The records of a batch that is large or compressed are looked into by a thread.
"""

import asyncio
from concurrent.futures import Executor

from anabranch.base.errors import Corrupt
from anabranch.log import validation
from anabranch.log.local_log import LocalLog
from anabranch.log.segment import Place, Segment
from anabranch.partition.partition_log import TimestampAndOffset
from anabranch.records.batch import LOG_APPEND_TIME, PULSAR_ENTRY, BatchHeader
from anabranch.records.record import iter_records, payload_of


async def first_at(opened: LocalLog, timestamp_ms: int, threads: Executor) -> TimestampAndOffset | None:
    from_offset = 0
    while found := opened.batch_at_time(timestamp_ms, from_offset):
        record = await _record_in(opened, *found, timestamp_ms, threads)
        if record is not None:
            return record
        # Its header has the time and no record does: compaction emptied it, or the log begins behind it.
        from_offset = found[1].header.last_offset + 1
        await asyncio.sleep(0)  # headers may lie, all of them
    return None


async def latest(opened: LocalLog, threads: Executor) -> TimestampAndOffset | None:
    found = opened.batch_of_max_timestamp()
    if found is None:
        return None
    return await _record_in(opened, *found, found[1].header.max_timestamp, threads)


async def _record_in(
    opened: LocalLog, segment: Segment, place: Place, timestamp_ms: int, threads: Executor
) -> TimestampAndOffset | None:
    header = place.header
    batch = segment.file.pread(header.size_bytes, place.position)
    limit = validation.unpacked_limit(opened.config)
    arguments = (header, batch, timestamp_ms, opened.log_start, limit)
    if len(batch) <= validation.INLINE_BYTES and not header.codec:
        found = _first_record(*arguments)
    else:
        found = await asyncio.get_running_loop().run_in_executor(threads, _first_record, *arguments)
    return None if found is None else TimestampAndOffset(found[0], found[1], header.leader_epoch)


def _first_record(
    header: BatchHeader, batch: bytes, timestamp_ms: int, from_offset: int, limit_bytes: int
) -> tuple[int, int] | None:
    """The timestamp and offset of the first record at or after `timestamp_ms` and `from_offset`."""
    if header.attributes & (LOG_APPEND_TIME | PULSAR_ENTRY):  # all of its messages have one time
        return header.max_timestamp, max(header.base_offset, from_offset)
    try:
        for record in iter_records(header, payload_of(header, batch, limit_bytes)):
            if record.timestamp >= timestamp_ms and record.offset >= from_offset:
                return record.timestamp, record.offset
    except Corrupt:
        return header.max_timestamp, max(header.base_offset, from_offset)
    return None
