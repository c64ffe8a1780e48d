"""Reading a shard's log back: what was decided once is applied to the shard again, in order.

    offset = partition.log_start
    while offset < partition.log_end:
        offset = replay_from(partition, shard, offset)      # a part at a time: others want their turn

A record that cannot be read is passed over, for the sake of the others.  A batch that cannot be is an error:
nobody knows what was in it.
"""

import logging

from anabranch.base.errors import Corrupt
from anabranch.base.network import FileRange
from anabranch.base.seldom import Seldom
from anabranch.groups.effects import Shard
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import BatchHeader, split_batches
from anabranch.records.control import read_marker
from anabranch.records.record import Record, iter_records, payload_of

_unreadable = Seldom(logging.getLogger(__name__), 10.0)

_READ_BYTES = 128 << 10  # some 30 ms of replaying
_UNPACKED_BYTES = 64 << 20


def replay_from(partition: Partition, shard: Shard, offset: int) -> int:
    """Apply one read's worth of records; where to go on."""
    part = partition.read(offset, _READ_BYTES, Isolation.LOG_END, whole_first=True)
    if not isinstance(part, FileRange):
        return partition.log_end
    for header, batch in split_batches(part.file.pread(part.size, part.position)):
        offset = max(offset, header.last_offset + 1)
        _replay(partition, shard, header, batch)
    return offset


def _replay(partition: Partition, shard: Shard, header: BatchHeader, batch: memoryview) -> None:
    for record in iter_records(header, payload_of(header, batch, _UNPACKED_BYTES)):
        try:
            _replay_record(shard, header, record)
        except Corrupt as error:
            _unreadable.warning(
                "%s: the record at offset %d is passed over: %s", partition, record.offset, error
            )


def _replay_record(shard: Shard, header: BatchHeader, record: Record) -> None:
    if header.is_control:
        marker = read_marker(record)
        if marker is not None:
            shard.transaction_ended(header.producer_id, commit=marker.commit)
    elif record.key is None:
        raise Corrupt("it has no key")
    elif header.is_transactional:
        shard.replay_pending(header.producer_id, record.key, record.value)
    else:
        shard.replay(record.key, record.value)
