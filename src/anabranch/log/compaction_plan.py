"""Compaction plan: what part of a log to compact, whether it is worth it yet, which segments to merge.

    ┌───────────────┬──────────────────────────┬───────────────┬─────────┐
    │ clean         │ dirty, cleanable         │ too young     │ active  │
    └───────────────┴──────────────────────────┴───────────────┴─────────┘
    log start       first_dirty                end

`end` is where a segment begins: the active one, the one that holds the last stable offset, or the first
that has a record younger than `min.compaction.lag.ms`.  A log is compacted when more than
`min.cleanable.dirty.ratio` of what lies below `end` is dirty, or when something dirty has waited for
`max.compaction.lag.ms`.

All of what lies below `end` is copied, and merged up to `segment.bytes`, so that segments that shrank
do not stay small forever.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from anabranch.log.config import LogConfig
from anabranch.log.retention import Kept

_LARGEST_RELATIVE_OFFSET = 0x7FFFFFFF


class Part(Kept, Protocol):
    """What is looked at of a segment: as retention does, and where it begins."""

    @property
    def base_offset(self) -> int: ...


class Plan(NamedTuple):
    first_dirty: int
    end: int
    dirty_bytes: int
    dirty_ratio: float
    is_due: bool
    next_ms: int | None
    """If it is not due: when it may be though nothing was written, None if never."""


def first_dirty_of(checkpoint: int | None, log_start: int, log_end: int) -> int:
    """Where to go on: where the last cleaning ended, unless the log is not the one that was cleaned."""
    if checkpoint is None or not log_start <= checkpoint <= log_end:
        return log_start
    return checkpoint


def plan(
    segments: Sequence[Part],
    config: LogConfig,
    *,
    first_dirty: int,
    last_stable: int,
    now_ms: int,
    first_timestamp: Callable[[int], int],
) -> Plan:
    """What is to do for `segments`, the active one last; `first_timestamp(i)` is that of the i-th's start."""
    times_ms: list[int] = []
    cleanable = 0
    for segment in segments[:-1]:
        if segment.end_offset > last_stable:
            break
        if config.min_compaction_lag_ms and segment.end_offset > first_dirty:
            old_enough_ms = segment.max_timestamp + config.min_compaction_lag_ms
            if old_enough_ms > now_ms:
                times_ms.append(old_enough_ms)
                break
        cleanable += 1
    end = segments[cleanable].base_offset
    dirty = [i for i in range(cleanable) if segments[i].end_offset > first_dirty]
    dirty_bytes = sum(segments[i].size for i in dirty)
    total_bytes = sum(segment.size for segment in segments[:cleanable])
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    overdue_ms = _overdue_ms(dirty, first_timestamp, config.max_compaction_lag_ms)
    if overdue_ms is not None:
        times_ms.append(overdue_ms)
    is_due = dirty_bytes > 0 and (
        ratio > config.min_cleanable_dirty_ratio or (overdue_ms is not None and overdue_ms <= now_ms)
    )
    next_ms = None if is_due else min((at for at in times_ms if at > now_ms), default=None)
    return Plan(max(first_dirty, segments[0].base_offset), end, dirty_bytes, ratio, is_due, next_ms)


def _overdue_ms(dirty: list[int], first_timestamp: Callable[[int], int], lag_ms: int) -> int | None:
    """When the oldest dirty segment will have waited for too long."""
    if lag_ms >= _NEVER_MS:
        return None
    oldest = min((at for i in dirty if (at := first_timestamp(i)) > 0), default=None)
    return None if oldest is None else oldest + lag_ms + 1


_NEVER_MS = (1 << 63) - 1


class Sizes(NamedTuple):
    """A segment as `group` sees it."""

    base_offset: int
    end_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def group(segments: Sequence[Sizes], segment_bytes: int, index_bytes: int) -> list[list[Sizes]]:
    """Neighbours that together make up one segment of no more than it may have."""
    groups: list[list[Sizes]] = []
    for segment in segments:
        if groups and _fits([*groups[-1], segment], segment_bytes, index_bytes):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(together: list[Sizes], segment_bytes: int, index_bytes: int) -> bool:
    last = together[-1]
    return (
        sum(each.log_bytes for each in together) <= segment_bytes
        and sum(each.index_bytes for each in together) <= index_bytes
        and sum(each.time_index_bytes for each in together) <= index_bytes
        # Without records there is no offset that could be out of reach.
        and (not last.log_bytes or last.end_offset - 1 - together[0].base_offset <= _LARGEST_RELATIVE_OFFSET)
    )
