"""What Pulsar producers sent, appended to a log: many entries with one write.

The batches are made here with their offsets and leader epoch in place, since nothing comes between
making and writing them.  All of them go in or none, so together they must fit into one segment.

Those of a transaction carry its producer, and open it in the log as Kafka's do.
"""

from collections.abc import Sequence

from anabranch.base.errors import RecordListTooLarge
from anabranch.log.local_log import LocalLog
from anabranch.records.batch import read_header
from anabranch.records.entry_batches import LATEST_MS, NewEntry, Part, enclose_all


def append_entries(
    log: LocalLog,
    entries: Sequence[NewEntry],
    leader_epoch: int,
    now_ms: int,
    producer: tuple[int, int] | None = None,
) -> list[int]:
    """Write `entries`, of the transaction that `producer` has open if it is given, by id and epoch.

    The offset of each one's first message.
    """
    config = log.config
    append_time_ms = now_ms if config.message_timestamp_type == "LogAppendTime" else -1
    latest_ms = min(now_ms + config.message_timestamp_after_max_ms, LATEST_MS)
    batches, parts = enclose_all(entries, log.log_end, leader_epoch, append_time_ms, latest_ms, producer)
    limit = log.config.segment_bytes
    if len(batches) > limit:
        raise RecordListTooLarge(f"the message is {len(batches)} bytes, segment.bytes is {limit}")
    if not log.has_entries:
        log.mark_entries()
    base = log.log_end
    _write(log, batches, parts)
    log.log_end = parts[-1].last_offset + 1
    if producer is not None:
        _note_producer(log, batches)
    if leader_epoch > log.epochs.latest:
        log.epochs.assign(leader_epoch, base)
    return [base, *[part.last_offset + 1 for part in parts[:-1]]]


def _note_producer(log: LocalLog, batches: bytearray) -> None:
    at = 0
    while at < len(batches):
        header = read_header(batches, at)
        log.producers.update(header, header.base_offset)
        at += header.size_bytes


def _write(log: LocalLog, batches: bytearray, parts: Sequence[Part]) -> None:
    segment = log.segments[-1]
    last = parts[-1]
    if segment.size and (
        not segment.has_room(len(batches), last.last_offset, log.config)
        or log.is_old(segment, last.max_timestamp)
    ):
        segment = log.roll()
    end_offset, first_timestamp = segment.end_offset, segment.first_timestamp
    position = start = segment.file.append(batches)
    try:
        note = segment.note
        for size, last_offset, max_timestamp in parts:
            note(position, size, last_offset, max_timestamp)
            position += size
    except BaseException:  # or the next batch would lie behind some that nobody knows of
        segment.truncate(start, end_offset)
        segment.first_timestamp = first_timestamp
        raise
