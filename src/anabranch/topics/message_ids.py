"""Offsets of a partition as Pulsar's message ids: (ledger, entry), the entry's first offset."""

from anabranch.partition.partition import Partition
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, BatchHeader
from anabranch.records.entries import read_metadata
from anabranch.records.entry_payloads import LIMIT_BYTES
from anabranch.records.record import iter_spans, payload_of
from anabranch.topics.backlog import place_of


def last_message(partition: Partition) -> tuple[int, int, int]:
    """(ledger, entry id, batch index) of the last message that readers see; all -1 if there is none."""
    header = _batch_before(partition, partition.last_stable)
    if header is None:
        return -1, -1, -1
    index = header.last_offset_delta
    if not index and _is_single(partition, header.base_offset):
        index = -1
    return header.leader_epoch, header.base_offset, index


def _is_single(partition: Partition, offset: int) -> bool:
    """Whether the entry at `offset`, of one message, is that message and not a batch of it."""
    found = place_of(partition, offset)
    if found is None or not found[3].attributes & PULSAR_ENTRY:
        return False
    _, segment, position, header = found
    entry = segment.file.pread(header.size_bytes - HEADER_SIZE, position + HEADER_SIZE)
    return not read_metadata(entry).HasField("num_messages_in_batch")


def entry_before(partition: Partition, offset: int) -> tuple[int, int]:
    """(ledger, entry id) of the last entry that lies before `offset` as a whole."""
    if partition.log_start <= offset < partition.log_end:
        found = place_of(partition, offset)
        if found is not None:
            offset = min(offset, found[3].base_offset)
    header = _batch_before(partition, offset)
    if header is None:
        return partition.leader_epoch, offset - 1
    return header.leader_epoch, header.base_offset


def _batch_before(partition: Partition, offset: int) -> BatchHeader | None:
    """The last batch of messages before `offset`, which is a batch's first or the end of all."""
    while offset > partition.log_start:
        found = place_of(partition, offset - 1)
        if found is None:
            return None
        header = found[3]
        if not header.is_control and header.base_offset < offset:
            return header
        offset = min(header.base_offset, offset - 1)
    return None
