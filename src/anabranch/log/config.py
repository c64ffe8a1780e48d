"""Log options: the topic's own, and the broker's that stand behind them.

Every topic option has a broker option, its synonym, which decides when the topic does not say; for times
there is a chain of them in ever coarser units, of which the first that is set decides:

    topic            broker
    segment.bytes    log.segment.bytes
    segment.ms       log.roll.ms, log.roll.hours
    flush.ms         log.flush.interval.ms, log.flush.scheduler.interval.ms
    retention.ms     log.retention.ms, log.retention.minutes, log.retention.hours

    LogConfig.build({"retention.ms": "1000"}, {"log.retention.hours": "1"}).retention_ms  ->  1000
    LogConfig.build({}, {"log.retention.hours": "1"}).retention_ms                        ->  3600000

`TOPIC_OPTIONS` and `BROKER_OPTIONS` are all of them by name, for whoever describes or alters them.
Those that have no effect on a log (tiered storage, see `log/config_inert.py`; tables, `log/config_table.py`)
are among them, but not in LogConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.base.config import (
    LONG_MAX,
    Check,
    Kind,
    Option,
    at_least,
    between,
    closest,
    one_of,
    options_of,
    same_option,
    some_of,
)
from anabranch.base.errors import InvalidConfig
from anabranch.log.config_broker import FLUSH_MS, RETENTION_MS, SEGMENT_JITTER_MS, SEGMENT_MS, Synonym
from anabranch.log.config_inert import INERT_OPTIONS
from anabranch.log.config_table import TABLE_OPTIONS, check_table

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


SYNONYMS: dict[str, tuple[Synonym, ...]] = {}
"""The broker options behind each topic option, the first that is set decides."""


def _topic_option(
    name: str,
    kind: Kind,
    default: Any,
    check: Check | None,
    doc: str,
    *,
    broker: str | tuple[Synonym, ...],
    internal: bool = False,
) -> Any:
    """Declare a topic option with its broker synonyms; a mere name means the same option under that name."""
    declared = Option(name, kind, default, doc, check, dynamic=True, internal=internal)
    SYNONYMS[name] = _same_for_broker(declared, broker) if isinstance(broker, str) else broker
    return same_option(declared)


def _same_for_broker(declared: Option, name: str) -> tuple[Synonym, ...]:
    return (Synonym(replace(declared, name=name)),)


def _gzip_level(level: int) -> str | None:
    legal = level == -1 or 1 <= level <= 9
    return None if legal else "Value must be between 1 and 9 or equal to -1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configuration of one topic's logs."""

    segment_bytes: int = _topic_option(
        "segment.bytes",
        Kind.INT,
        1 << 30,
        at_least(1 << 20),
        "A segment file is rolled before it would grow beyond this.",
        broker="log.segment.bytes",
    )
    segment_ms: int = _topic_option(
        "segment.ms",
        Kind.LONG,
        _WEEK_MS,
        at_least(1),
        "A segment older than this is rolled even if it is not full.",
        broker=SEGMENT_MS,
    )
    segment_jitter_ms: int = _topic_option(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        at_least(0),
        "At most this random time is taken off segment.ms, so that logs do not all roll at once.",
        broker=SEGMENT_JITTER_MS,
    )
    segment_index_bytes: int = _topic_option(
        "segment.index.bytes",
        Kind.INT,
        10 << 20,
        at_least(4),
        "Largest size of a segment's offset index; a full one rolls the segment.",
        broker="log.index.size.max.bytes",
    )
    index_interval_bytes: int = _topic_option(
        "index.interval.bytes",
        Kind.INT,
        4096,
        at_least(0),
        "An index gets an entry for every so many bytes of log.",
        broker="log.index.interval.bytes",
    )
    retention_ms: int = _topic_option(
        "retention.ms",
        Kind.LONG,
        _WEEK_MS,
        at_least(-1),
        "Under the policy delete, segments older than this are deleted; -1 sets no limit.",
        broker=RETENTION_MS,
    )
    retention_bytes: int = _topic_option(
        "retention.bytes",
        Kind.LONG,
        -1,
        None,
        "Under the policy delete, the oldest segments of a larger partition are deleted; -1 sets no limit.",
        broker="log.retention.bytes",
    )
    cleanup_policy: frozenset[str] = _topic_option(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        some_of("compact", "delete"),
        "What becomes of old segments: delete, compact (keep the last record of each key), both, or nothing.",
        broker="log.cleanup.policy",
    )
    delete_retention_ms: int = _topic_option(
        "delete.retention.ms",
        Kind.LONG,
        _DAY_MS,
        at_least(0),
        "How long compaction keeps the marker of a deleted key for readers to see.",
        broker="log.cleaner.delete.retention.ms",
    )
    min_cleanable_dirty_ratio: float = _topic_option(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        between(0, 1),
        "A log is compacted once this share of it has not been compacted yet.",
        broker="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = _topic_option(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        at_least(0),
        "A record stays uncompacted at least this long.",
        broker="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: int = _topic_option(
        "max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        at_least(1),
        "A record becomes eligible for compaction after this long, whatever the dirty ratio.",
        broker="log.cleaner.max.compaction.lag.ms",
    )
    flush_messages: int = _topic_option(
        "flush.messages",
        Kind.LONG,
        LONG_MAX,
        at_least(1),
        "The log is flushed to disk after so many messages; by default the operating system decides.",
        broker="log.flush.interval.messages",
    )
    flush_ms: int = _topic_option(
        "flush.ms",
        Kind.LONG,
        LONG_MAX,
        at_least(0),
        "The log is flushed to disk after this time; by default the operating system decides.",
        broker=FLUSH_MS,
    )
    max_message_bytes: int = _topic_option(
        "max.message.bytes",
        Kind.INT,
        (1 << 20) + 12,
        at_least(0),
        "Largest record batch, after compression, that the topic accepts.",
        broker="message.max.bytes",
    )
    message_timestamp_type: str = _topic_option(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Whether a record keeps its producer's timestamp or gets the broker's.",
        broker="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: int = _topic_option(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        at_least(0),
        "With CreateTime, how far a timestamp may lie before the broker's time.",
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = _topic_option(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        _HOUR_MS,
        at_least(0),
        "With CreateTime, how far a timestamp may lie after the broker's time.",
        broker="log.message.timestamp.after.max.ms",
    )
    compression_type: str = _topic_option(
        "compression.type",
        Kind.STRING,
        "producer",
        one_of(*COMPRESSION_TYPES),
        "What batches are compressed with when stored; producer leaves them as they came.",
        broker="compression.type",
    )
    compression_gzip_level: int = _topic_option(
        "compression.gzip.level",
        Kind.INT,
        -1,
        _gzip_level,
        "The level if compression.type is gzip.",
        broker="compression.gzip.level",
    )
    compression_lz4_level: int = _topic_option(
        "compression.lz4.level",
        Kind.INT,
        9,
        between(1, 17),
        "The level if compression.type is lz4.",
        broker="compression.lz4.level",
    )
    compression_zstd_level: int = _topic_option(
        "compression.zstd.level",
        Kind.INT,
        3,
        between(-131072, 22),
        "The level if compression.type is zstd.",
        broker="compression.zstd.level",
    )
    min_insync_replicas: int = _topic_option(
        "min.insync.replicas",
        Kind.INT,
        1,
        at_least(1),
        "Replicas that must be in sync for a write with acks=all.",
        broker="min.insync.replicas",
    )
    unclean_leader_election_enable: bool = _topic_option(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        None,
        "Whether a replica that is not in sync may lead as a last resort, losing records.",
        broker="unclean.leader.election.enable",
    )
    file_delete_delay_ms: int = _topic_option(
        "file.delete.delay.ms",
        Kind.LONG,
        60_000,
        at_least(0),
        "How long the files of a deleted segment stay before they are removed.",
        broker="log.segment.delete.delay.ms",
    )
    preallocate: bool = _topic_option(
        "preallocate",
        Kind.BOOLEAN,
        False,
        None,
        "Whether a new segment's file is given its full size at once.",
        broker="log.preallocate",
    )
    errors_deadletterqueue_group_enable: bool = _topic_option(
        "errors.deadletterqueue.group.enable",
        Kind.BOOLEAN,
        False,
        None,
        "Whether share groups may write records to it that they have given up.",
        broker=(),
        internal=True,  # Kafka has it from 4.4 on, and tools that were made for older ones compare the list
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "cleanup_policy", frozenset(self.cleanup_policy))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )

    @classmethod
    def build(cls, topic_overrides: Mapping[str, str], broker: Mapping[str, str]) -> "LogConfig":
        """As the topic says, else as the broker's options that were set say, else Kafka's defaults."""
        unknown = topic_overrides.keys() - TOPIC_OPTIONS.keys()
        if unknown:
            name = min(unknown)
            raise InvalidConfig(f"Unknown topic config name: {name}{closest(name, TOPIC_OPTIONS)}")
        for inert in INERT_OPTIONS:
            topic_value(inert, topic_overrides, broker)
        check_table({kept: topic_value(kept, topic_overrides, broker) for kept in TABLE_OPTIONS})
        return cls(
            **{
                attribute: topic_value(declared, topic_overrides, broker)
                for attribute, declared in options_of(cls).items()
            }
        )


def topic_value(declared: Option, topic_overrides: Mapping[str, str], broker: Mapping[str, str]) -> Any:
    """What one topic option amounts to."""
    if declared.name in topic_overrides:
        return declared.parse(topic_overrides[declared.name])
    for synonym in SYNONYMS[declared.name]:
        text = broker.get(synonym.option.name)
        if text is not None:
            value = synonym.option.parse(text)
            return synonym.convert(value) if synonym.convert else value
    return declared.default


SYNONYMS |= {
    inert.name: _same_for_broker(inert, broker) if broker else () for inert, broker in INERT_OPTIONS.items()
}
SYNONYMS |= {kept.name: () for kept in TABLE_OPTIONS}
TOPIC_OPTIONS: Mapping[str, Option] = {
    declared.name: declared for declared in (*options_of(LogConfig).values(), *INERT_OPTIONS, *TABLE_OPTIONS)
}
BROKER_OPTIONS: Mapping[str, Option] = {
    synonym.option.name: synonym.option for chain in SYNONYMS.values() for synonym in chain
}
