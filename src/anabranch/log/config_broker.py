"""Broker options of logs: upkeep, cleaning, producer state, and times in coarser units.

The sections are frozen classes for the tasks that do the work.  The chains are broker options that decide
a topic's time when the topic does not set it (see `log/config.py`): the first that is set wins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.base.config import LONG_MAX, Kind, Option, at_least, option, same_option
from anabranch.base.errors import InvalidConfig

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DEDUPE_BYTES_PER_THREAD = 1 << 20  # Kafka's floor: below it a cleaning pass covers too few keys to get ahead

_FLUSH_SCHEDULER_INTERVAL = Option(
    "log.flush.scheduler.interval.ms",
    Kind.LONG,
    LONG_MAX,
    "How often it is checked whether a log is due for a flush; flush.ms of topics that do not say.",
    at_least(1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepConfig:
    """Retention, flushing and checkpoints: what runs beside the appends."""

    retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        at_least(1),
        "How often logs are checked for segments that retention deletes.",
    )
    flush_scheduler_interval_ms: int = same_option(_FLUSH_SCHEDULER_INTERVAL)
    flush_offset_checkpoint_interval_ms: int = option(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        at_least(0),
        "How often it is written down up to where each log is flushed, the point recovery starts from.",
    )
    flush_start_offset_checkpoint_interval_ms: int = option(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        at_least(0),
        "How often it is written down where each log starts.",
    )
    high_watermark_checkpoint_interval_ms: int = option(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5_000,
        at_least(1),
        "How often it is written down up to where each log is known to be on all replicas that are in sync.",
    )
    initial_task_delay_ms: int = option(
        "log.initial.task.delay.ms",
        Kind.LONG,
        30_000,
        at_least(0),
        "How long after the start the first round of upkeep waits.",
        internal=True,
    )
    recovery_threads_per_data_dir: int = option(
        "num.recovery.threads.per.data.dir",
        Kind.INT,
        2,
        at_least(1),
        "Threads that sync logs, while the broker runs and at its end; a change counts from the next start.",
        dynamic=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Compaction."""

    enable: bool = option(
        "log.cleaner.enable", Kind.BOOLEAN, True, None, "Whether compacted topics are compacted."
    )
    threads: int = option(
        "log.cleaner.threads", Kind.INT, 1, at_least(1), "Logs compacted at the same time.", dynamic=True
    )
    backoff_ms: int = option(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        at_least(0),
        "How long the cleaner sleeps when there is nothing to clean.",
        dynamic=True,
    )
    dedupe_buffer_bytes: int = option(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        128 << 20,
        None,
        "Memory for the keys of what is being cleaned, over all cleaner threads.",
        dynamic=True,
    )
    io_max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        1.7976931348623157e308,
        lambda value: None if value > 0 else "Value must be more than 0",
        "Bytes a second that cleaning reads and writes at most.",
        dynamic=True,
    )

    def __post_init__(self) -> None:
        if self.dedupe_buffer_bytes // self.threads <= _DEDUPE_BYTES_PER_THREAD:
            raise InvalidConfig(
                f"log.cleaner.dedupe.buffer.size ({self.dedupe_buffer_bytes}) must be more than 1 MiB "
                f"for each of log.cleaner.threads ({self.threads})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStateConfig:
    """How long idle idempotent producers are remembered."""

    expiration_ms: int = option(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        at_least(1),
        "A producer id that has not written for this long is forgotten.",
        dynamic=True,
    )
    expiration_check_interval_ms: int = option(
        "producer.id.expiration.check.interval.ms",
        Kind.INT,
        600_000,
        at_least(1),
        "How often forgotten producer ids are removed.",
        internal=True,
    )


class Synonym(NamedTuple):
    """A broker option that decides for a topic's, and what its value means there."""

    option: Option
    convert: Callable[[Any], Any] | None = None


def _not_zero(value: int) -> str | None:
    return None if value else "Value must be unlimited (-1) or at least 1"


def _at_most_unlimited(unit_ms: int) -> Callable[[int], int]:
    return lambda value: max(value * unit_ms, -1)


def _first(name: str, check: Callable[[Any], str | None], doc: str) -> Option:
    return Option(name, Kind.LONG, None, doc, check, dynamic=True)


SEGMENT_MS = (
    Synonym(
        _first("log.roll.ms", at_least(1), "A segment older than this is rolled; log.roll.hours if not set.")
    ),
    Synonym(
        Option("log.roll.hours", Kind.INT, 168, "As log.roll.ms, in hours.", at_least(1)),
        _at_most_unlimited(_HOUR_MS),
    ),
)
SEGMENT_JITTER_MS = (
    Synonym(
        _first(
            "log.roll.jitter.ms",
            at_least(0),
            "Taken off log.roll.ms at random; log.roll.jitter.hours if not set.",
        )
    ),
    Synonym(
        Option("log.roll.jitter.hours", Kind.INT, 0, "As log.roll.jitter.ms, in hours.", at_least(0)),
        _at_most_unlimited(_HOUR_MS),
    ),
)
FLUSH_MS = (
    Synonym(
        _first(
            "log.flush.interval.ms",
            at_least(0),
            "A record is flushed within this time; log.flush.scheduler.interval.ms if not set.",
        )
    ),
    Synonym(_FLUSH_SCHEDULER_INTERVAL),
)
RETENTION_MS = (
    Synonym(
        _first(
            "log.retention.ms",
            _not_zero,
            "Segments older than this are deleted, -1 keeps them; log.retention.minutes if not set.",
        ),
        _at_most_unlimited(1),
    ),
    Synonym(
        Option(
            "log.retention.minutes",
            Kind.INT,
            None,
            "As log.retention.ms, in minutes; log.retention.hours if not set.",
            _not_zero,
        ),
        _at_most_unlimited(_MINUTE_MS),
    ),
    Synonym(
        Option("log.retention.hours", Kind.INT, 168, "As log.retention.ms, in hours.", _not_zero),
        _at_most_unlimited(_HOUR_MS),
    ),
)
