"""Offsets of a partition as Pulsar's message ids: (ledger, entry), the entry's first offset."""

from anabranch.base.errors import Corrupt, TooLarge, UnsupportedForFormat
from anabranch.log.compacted import CompactedLog
from anabranch.log.compaction_entries import last_offset_in
from anabranch.partition.partition import Partition
from anabranch.partition.places import batch_at
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, BatchHeader
from anabranch.records.entries import read_metadata
from anabranch.records.entry_payloads import LIMIT_BYTES

_NONE = (-1, -1, -1)


class LastMessage:
    """The last message that readers see, remembered: behind it may lie any number of aborted ones and of
    markers, and clients ask for it again and again.  Compaction may have taken it since."""

    __slots__ = ("_departed", "_end", "_found", "_found_end", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._departed = 0
        self._end = 0  # everything below was looked at
        self._found: tuple[int, int, int] = _NONE
        self._found_end = 0

    def look(self) -> tuple[int, int, int]:
        """(ledger, entry id, batch index); all -1 if there is none."""
        partition = self._partition
        end, departed = partition.last_stable, partition.departed
        if departed != self._departed:
            self._departed, self._end, self._found = departed, 0, _NONE
        if end != self._end:
            header = _batch_before(partition, end, self._end if self._end < end else 0)
            if header is not None:
                self._found = _id_of(partition, header)
                self._found_end = header.last_offset + 1
            self._end = end
        return self._found if self._found_end > partition.log_start else _NONE


def _id_of(partition: Partition, header: BatchHeader) -> tuple[int, int, int]:
    index = header.last_offset_delta
    if header.count <= index:
        index = _last_left(partition, header) - header.base_offset
    elif not index and _is_single(partition, header.base_offset):
        index = -1
    return header.leader_epoch, header.base_offset, index


def _last_left(partition: Partition, header: BatchHeader) -> int:
    """The last message of a batch that compaction took some from."""
    found = batch_at(partition, header.base_offset)
    if found is None:
        return header.last_offset
    try:
        return last_offset_in(found.read(), LIMIT_BYTES)
    except (Corrupt, TooLarge, UnsupportedForFormat):
        return header.last_offset


def last_compacted(view: CompactedLog) -> tuple[int, int, int]:
    """The same, of the last message of a view."""
    found = view.last_batch()
    if found is None:
        return -1, -1, -1
    header, batch = found
    index = view.last_offset - header.base_offset
    if header.attributes & PULSAR_ENTRY and not header.last_offset_delta:
        metadata = read_metadata(memoryview(batch)[HEADER_SIZE:])
        index = 0 if metadata.HasField("num_messages_in_batch") else -1
    return header.leader_epoch, header.base_offset, index


def _is_single(partition: Partition, offset: int) -> bool:
    """Whether the entry at `offset`, of one message, is that message and not a batch of it."""
    found = batch_at(partition, offset)
    if found is None or not found.header.attributes & PULSAR_ENTRY:
        return False
    return not read_metadata(found.read(HEADER_SIZE)).HasField("num_messages_in_batch")


def entry_before(partition: Partition, offset: int) -> tuple[int, int]:
    """(ledger, entry id) of the last entry that lies before `offset` as a whole."""
    if partition.log_start <= offset < partition.log_end:
        found = batch_at(partition, offset)
        if found is not None:
            offset = min(offset, found.header.base_offset)
    header = _batch_before(partition, offset)
    if header is None:
        return partition.leader_epoch, offset - 1
    return header.leader_epoch, header.base_offset


def _batch_before(partition: Partition, offset: int, start: int = 0) -> BatchHeader | None:
    """The last batch of messages from `start` up to `offset`, which is a batch's first or the end of all."""
    start = max(start, partition.log_start)
    while offset > start:
        found = batch_at(partition, offset - 1)
        if found is None:
            return None
        header = found.header
        is_message = header.count > 0 and not header.is_control and not _is_aborted(partition, header)
        if is_message and header.base_offset < offset:
            return header
        offset = min(header.base_offset, offset - 1)
    return None


def _is_aborted(partition: Partition, header: BatchHeader) -> bool:
    """Whether a batch, of a transaction that has ended, is never seen."""
    return header.is_transactional and any(
        aborted.producer_id == header.producer_id and aborted.first_offset <= header.base_offset
        for aborted in partition.aborted_between(header.base_offset, header.base_offset + 1)
    )
