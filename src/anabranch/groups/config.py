"""What the group coordinator can be told: names, defaults and bounds are Kafka's.

G2 and G3 add the options of their protocols here as they come to use them.
"""

from dataclasses import dataclass

from anabranch.base.config import Kind, at_least, option


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsConfig:
    """Committed offsets and the topic that keeps them."""

    topic_partitions: int = option(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        at_least(1),
        "Partitions of the topic that keeps groups; it cannot be changed once the topic is there.",
    )
    topic_replication_factor: int = option(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        1,
        at_least(1),
        "Replicas of the topic that keeps groups.",
    )
    topic_segment_bytes: int = option(
        "offsets.topic.segment.bytes",
        Kind.INT,
        100 << 20,
        at_least(1),
        "Segments of the topic that keeps groups are kept small, so that it is compacted and loaded fast.",
    )
    metadata_max_bytes: int = option(
        "offset.metadata.max.bytes",
        Kind.INT,
        4096,
        None,
        "Longest metadata that may stand beside a committed offset.",
    )
    retention_minutes: int = option(
        "offsets.retention.minutes",
        Kind.INT,
        7 * 24 * 60,
        at_least(1),
        "An offset is forgotten this long after its group became empty or left its topic.",
    )
    retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        at_least(1),
        "How often offsets are looked at to forget those whose time is over.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(OffsetsConfig):
    """All of the group coordinator's options."""
