"""What subscriptions have left to read: how much, how old, and whether that is too much.

A backlog begins at the subscription that is furthest behind.  Its size is that of the log from there on;
its age is that of the message there.
"""

from anabranch.log.segment import Segment
from anabranch.meta.rules import Quota, Rules
from anabranch.partition.partition import Partition
from anabranch.records.batch import BatchHeader

_EVICTED_DOWN_TO = 0.9  # of the quota, as Pulsar does it


def place_of(partition: Partition, offset: int) -> tuple[int, Segment, int, BatchHeader] | None:
    """The batch that holds `offset`, or the first after it: segment's index, segment, position, header."""
    segments = partition.log.segments
    for i in range(len(segments)):
        if i + 1 < len(segments) and segments[i + 1].base_offset <= offset:
            continue
        found = segments[i].find(offset)
        if found is not None:
            return i, segments[i], found.position, found.header
    return None


def size_from(partition: Partition, offset: int) -> int:
    """Bytes of the log from the batch that holds `offset` on."""
    if offset >= partition.log_end:
        return 0
    found = place_of(partition, max(offset, partition.log_start))
    if found is None:
        return 0
    i, segment, position, _ = found
    return segment.size - position + sum(s.size for s in partition.log.segments[i + 1 :])


def timestamp_at(partition: Partition, offset: int) -> int | None:
    """When the message at `offset`, or the first after it, was published; None if there is none yet."""
    if offset >= partition.last_stable:
        return None
    found = place_of(partition, max(offset, partition.log_start))
    return None if found is None else found[3].max_timestamp


def exceeded(partition: Partition, slowest: int | None, rules: Rules, now_ms: int) -> Quota | None:
    """The quota that a backlog which begins at `slowest` is beyond; None if there is no such."""
    if slowest is None:
        return None
    size, age = rules.backlog_size, rules.backlog_age
    if size.limit is not None and size_from(partition, slowest) > size.limit:
        return size
    if age.limit is not None:
        oldest_ms = timestamp_at(partition, slowest)
        if oldest_ms is not None and now_ms - oldest_ms > age.limit * 1000:
            return age
    return None


def evict_to(partition: Partition, limit_bytes: int) -> int:
    """Where subscriptions are to go on so that what is left is well below `limit_bytes`."""
    target = int(limit_bytes * _EVICTED_DOWN_TO)
    for segment in reversed(partition.log.segments):
        if segment.size > target:
            return _first_within(segment, target)
        target -= segment.size
    return partition.log_start


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
