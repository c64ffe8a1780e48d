"""Retention: which of a log's oldest segments are deleted, and when to look again.

Segments go whole and from the front, never one that reaches beyond the high watermark:

    log start   every segment that ends at or before `log_start`, whatever the policy (DeleteRecords)
    size        under the policy delete: as long as what is left is still `retention.bytes` or more
    time        under the policy delete: while the latest timestamp in a segment is more than
                `retention.ms` ago; a segment without timestamps goes by when its file was last written

By size and time only what lies below `hold` goes: from there on somebody has still to read it.

-1 is no limit.  The active segment goes by time too (and by size only if `retention.bytes` is 0); the
caller rolls before it drops, so that the log always has a segment to write to.  An empty one stays.

Clocks.  As in Kafka, it is the records' own time against this machine's.  A timestamp in the future
keeps its segment, and all behind it, until that time has come and `retention.ms` with it; `future_ms`
says so, so that it can be logged.  If this machine's clock jumps ahead, segments go as early as it
jumped: nothing here can tell such a jump from time that passed.  If it jumps back they stay longer.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from anabranch.log.config import LogConfig


class Kept(Protocol):
    """What is looked at of a segment."""

    @property
    def end_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...


class Verdict(NamedTuple):
    by_log_start: int
    by_size: int
    by_time: int
    future_ms: int | None
    """The timestamp that holds the oldest segment that stays, if it is still to come."""
    next_ms: int | None
    """Until this time nothing more will be too old; None if nothing ever will."""
    is_held: bool = False
    """Something would go if it were not for `hold`."""

    @property
    def total(self) -> int:
        """How many of the oldest segments are to go."""
        return self.by_log_start + self.by_size + self.by_time


def judge(
    segments: Sequence[Kept],
    config: LogConfig,
    *,
    log_start: int,
    high_watermark: int,
    now_ms: int,
    modified_ms: Callable[[int], int],
    hold: int | None = None,
) -> Verdict:
    """What is to go of `segments`, the active one last; `modified_ms(i)` is when the i-th was written."""
    free = _judge_freely(
        segments,
        config,
        log_start=log_start,
        high_watermark=high_watermark,
        now_ms=now_ms,
        modified_ms=modified_ms,
    )
    if hold is None:
        return free
    most = _leading(free.total, lambda i: segments[i].end_offset <= max(hold, log_start))
    if most == free.total:
        return free
    by_size = min(free.by_size, most - free.by_log_start)
    by_time = most - free.by_log_start - by_size
    return Verdict(free.by_log_start, by_size, by_time, free.future_ms, now_ms, is_held=True)


def _judge_freely(
    segments: Sequence[Kept],
    config: LogConfig,
    *,
    log_start: int,
    high_watermark: int,
    now_ms: int,
    modified_ms: Callable[[int], int],
) -> Verdict:
    """As `judge`, where nobody holds anything."""
    removable = _removable(segments, high_watermark)
    sealed = min(removable, len(segments) - 1)
    first = by_log_start = _leading(sealed, lambda i: segments[i].end_offset <= log_start)
    if "delete" not in config.cleanup_policy:
        return Verdict(by_log_start, 0, 0, None, None)
    by_size = _beyond_size(segments[first:removable], _total(segments[first:]), config.retention_bytes)
    first += by_size
    if config.retention_ms < 0:
        return Verdict(by_log_start, by_size, 0, None, None)

    def latest_ms(i: int) -> int:
        timestamp = segments[i].max_timestamp
        return timestamp if timestamp >= 0 else modified_ms(i)

    by_time = _leading(removable - first, lambda i: now_ms - latest_ms(first + i) > config.retention_ms)
    first += by_time
    if first == len(segments) or not segments[first].size:
        return Verdict(by_log_start, by_size, by_time, None, None)
    oldest_ms = latest_ms(first)
    return Verdict(
        by_log_start,
        by_size,
        by_time,
        oldest_ms if oldest_ms > now_ms else None,
        max(oldest_ms + config.retention_ms + 1, now_ms),
    )


def _removable(segments: Sequence[Kept], high_watermark: int) -> int:
    """How many segments lie below the high watermark; the active one is not among them if it is empty."""
    count = _leading(len(segments), lambda i: segments[i].end_offset <= high_watermark)
    return count - 1 if count == len(segments) and not segments[-1].size else count


def _leading(count: int, goes: Callable[[int], bool]) -> int:
    """How many of the first `count` go before one that does not."""
    return next((i for i in range(count) if not goes(i)), count)


def _total(segments: Sequence[Kept]) -> int:
    return sum(segment.size for segment in segments)


def _beyond_size(removable: Sequence[Kept], total_bytes: int, retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = total_bytes - retention_bytes
    for i, segment in enumerate(removable):
        excess -= segment.size
        if excess < 0:
            return i
    return len(removable)
