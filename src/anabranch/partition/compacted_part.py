"""The compacted view of a partition, where there is one, as readers in Kafka's form get it.

Readers have to ask for it (`wire/kafka/fetch.py`); other consumers see the log.  Parts are given as bytes,
not as ranges of files: a view goes when there is a newer one and nobody reads it any more.
"""

from anabranch.base.network import FileRange
from anabranch.log.compacted import CompactedLog
from anabranch.partition.kafka_part import Pending, kafka_part
from anabranch.partition.partition import Partition
from anabranch.records.batch import MAGIC, BatchHeader
from anabranch.records.builder import empty_batch

_MOST_BYTES = 1 << 20


def compacted_part(
    partition: Partition, view: CompactedLog, offset: int, max_bytes: int, *, described: bool
) -> bytes | Pending:
    """What the view has from `offset` on, which is below its horizon; or when to ask again.

    Behind the last message a batch without records leads to the horizon, where the log goes on.
    """
    records = view.read(offset, min(max_bytes, _MOST_BYTES), whole_first=True)
    if records is None:
        length = view.horizon - offset
        nothing = BatchHeader(
            offset, 0, partition.leader_epoch, MAGIC, 0, 0, length - 1, -1, -1, -1, -1, -1, 0
        )
        return bytes(empty_batch(nothing))
    part = kafka_part(partition, records, described=described)
    if not isinstance(part, FileRange):
        return part
    if part.is_cached():
        return part.file.pread(part.size, part.position)
    view.hold()
    pending: Pending = part.read_ahead()
    pending.add_done_callback(lambda _: view.release())
    return pending
