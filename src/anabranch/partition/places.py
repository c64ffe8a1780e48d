"""Places: which batch holds an offset, where it lies, and how much of the log lies behind it."""

from typing import NamedTuple

from anabranch.base.network import FileRange
from anabranch.log.segment import Segment
from anabranch.partition.partition import Partition
from anabranch.records.batch import BatchHeader


class FoundBatch(NamedTuple):
    header: BatchHeader
    range: FileRange

    def read(self, skip: int = 0) -> bytes:
        """Its bytes, without the first `skip`."""
        file, position, size = self.range
        return file.pread(size - skip, position + skip)


def batch_at(partition: Partition, offset: int) -> FoundBatch | None:
    """The batch that holds `offset`, or the first after it."""
    found = _find(partition, offset)
    if found is None:
        return None
    _, segment, position, header = found
    return FoundBatch(header, FileRange(segment.file, position, header.size_bytes))


def size_from(partition: Partition, offset: int) -> int:
    """Bytes of the log from the batch that holds `offset` on."""
    if offset >= partition.log_end:
        return 0
    found = _find(partition, max(offset, partition.log_start))
    if found is None:
        return 0
    i, segment, position, _ = found
    return segment.size - position + sum(s.size for s in partition.log.segments[i + 1 :])


def offset_within(partition: Partition, size_bytes: int) -> int:
    """The first offset from which on the log has no more than `size_bytes`."""
    for segment in reversed(partition.log.segments):
        if segment.size > size_bytes:
            return _first_within(segment, size_bytes)
        size_bytes -= segment.size
    return partition.log_start


def _find(partition: Partition, offset: int) -> tuple[int, Segment, int, BatchHeader] | None:
    segments = partition.log.segments
    for i in range(len(segments)):
        if i + 1 < len(segments) and segments[i + 1].base_offset <= offset:
            continue
        found = segments[i].find(offset)
        if found is not None:
            return i, segments[i], found.position, found.header
    return None


def _first_within(segment: Segment, target: int) -> int:
    """The first offset from which on a segment has no more than `target` bytes, by its index."""
    low, high = segment.base_offset, segment.end_offset
    while low < high:
        middle = (low + high) // 2
        found = segment.find(middle)
        if found is None or segment.size - found.position <= target:
            high = middle
        else:
            low = max(middle, found.header.last_offset) + 1
    return low
