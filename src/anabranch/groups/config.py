"""Group coordinator options: names, defaults and bounds are Kafka's.

Except for the replicas of its topic: Kafka's default of 3 does not fit one broker, and its own sample
configuration sets 1, as here.
"""

from dataclasses import dataclass

from anabranch.base.config import INT_MAX, Kind, at_least, option
from anabranch.groups.consumer_config import ConsumerConfig
from anabranch.groups.share_config import ShareConfig
from anabranch.groups.share_dead_letter_config import DeadLetterConfig


@dataclass(frozen=True, kw_only=True)
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

    commit_timeout_ms: int = option(
        "offsets.commit.timeout.ms",
        Kind.INT,
        5_000,
        at_least(1),
        "How long a commit, or another change of a group, waits until all replicas have it; then the client "
        "is told to ask again.",
    )

    @property
    def topic_config(self) -> dict[str, str]:
        """The configuration of the topic that keeps groups."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.topic_segment_bytes),
        }


@dataclass(frozen=True, kw_only=True)
class ClassicConfig(OffsetsConfig):
    """Groups whose members Join and Sync."""

    min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        None,
        "Shortest session timeout that a member may ask for.",
    )
    max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        None,
        "Longest session timeout that a member may ask for.",
    )
    initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3_000,
        None,
        "How long a new group waits for more members before its first rebalance ends.",
    )
    max_size: int = option(
        "group.max.size", Kind.INT, INT_MAX, at_least(1), "Members that a group may have at most."
    )
    new_member_join_timeout_ms: int = 300_000
    """How long a member may take to come back with the id it was given; nobody may set it in Kafka either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(ClassicConfig, ConsumerConfig, ShareConfig, DeadLetterConfig):
    """All of the group coordinator's options."""
