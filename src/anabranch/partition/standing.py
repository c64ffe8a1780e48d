"""The standing of a partition: what statistics say of its log and its transactions."""

from typing import NamedTuple

from anabranch.log.producers import Producer
from anabranch.partition.partition import Partition
from anabranch.partition.replica import Replica


class Standing(NamedTuple):
    newest_ms: int
    """The latest timestamp in the segment that is being written, -1 if it has none."""
    active_entries: int
    active_bytes: int
    open_transactions: int
    committed_transactions: int
    aborted_transactions: int


def standing_of(partition: Partition) -> Standing:
    active, producers = partition.log.active, partition.log.producers
    return Standing(
        active.max_timestamp,
        active.end_offset - active.base_offset,
        active.size,
        producers.open_transactions,
        producers.committed,
        producers.aborted,
    )


def producers_of(replica: Replica) -> list[Producer]:
    """Those that number what they write, or write in transactions."""
    return list(replica.log.producers)


def producer_of(partition: Partition, producer_id: int) -> Producer | None:
    return partition.log.producers.get(producer_id)


def epochs_of(partition: Partition) -> list[int]:
    """The leader epochs that its segments begin with, and the one it is led in."""
    begun = {partition.epoch_of(segment.base_offset) for segment in partition.log.segments}
    return sorted(begun | {partition.leader_epoch})
