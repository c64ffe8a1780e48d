"""Entry append: what Pulsar producers sent, many entries with one write.

The batches are made here with their offsets and leader epoch in place, since nothing comes between
making and writing them.  All of them go in or none, so together they must fit into one segment.

Those of a transaction carry its producer, and open it in the log as Kafka's do.
"""

from collections.abc import Sequence

from anabranch.base.errors import RecordListTooLarge
from anabranch.log.local_log import LocalLog
from anabranch.records.entry_batches import LATEST_MS, NewEntry, enclose_all


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
    log.mark_entries()
    base = log.log_end
    log.write(batches, parts, leader_epoch)
    return [base, *[last_offset + 1 for _, last_offset, _, _ in parts[:-1]]]
