"""Backlog: what subscriptions have left to read, how much and how old, and whether that is too much.

A backlog begins at the subscription that is furthest behind.  Its size is that of the log from there on;
its age is that of the message there.
"""

from anabranch.meta.rules import Quota, Rules
from anabranch.partition.partition import Partition
from anabranch.partition.places import batch_at, offset_within, size_from

_EVICTED_DOWN_TO = 0.9  # of the quota, as Pulsar does it


def timestamp_at(partition: Partition, offset: int) -> int | None:
    """When the message at `offset`, or the first after it, was published; None if there is none yet."""
    if offset >= partition.last_stable:
        return None
    found = batch_at(partition, max(offset, partition.log_start))
    return None if found is None else found.header.max_timestamp


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
    return offset_within(partition, int(limit_bytes * _EVICTED_DOWN_TO))
