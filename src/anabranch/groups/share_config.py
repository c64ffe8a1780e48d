"""Share group options (KIP-932): names, defaults and bounds are Kafka's.

Those with `min` and `max` bound the options of single groups (`group_options`), not the broker's own.
Three options only a group has: where it begins to read, what it reads of transactions, and whether its
consumers may renew their locks.

Heartbeat and assignment intervals are upper limits, as for consumer groups: see `consumer_pace`.
"""

import re
from dataclasses import dataclass

from anabranch.base.config import Kind, Option, at_least, between, one_of, option

_HOUR_MS = 3_600_000

EARLIEST, LATEST = "earliest", "latest"
_BY_DURATION = "by_duration:"
_ISO_DURATION = re.compile(
    r"\+?P(?=.)(?:\+?(?P<days>\d{1,9})D)?"
    r"(?:T(?=.)(?:\+?(?P<hours>\d{1,9})H)?(?:\+?(?P<minutes>\d{1,9})M)?"
    r"(?:\+?(?P<seconds>\d{1,12})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def reset_duration_ms(reset: str) -> int | None:
    """How far back `by_duration:PnDTnHnMn.nS` goes; None of a reset that is not by duration, or is none."""
    if not reset.startswith(_BY_DURATION):
        return None
    match = _ISO_DURATION.fullmatch(reset, len(_BY_DURATION))
    if match is None:
        return None
    days, hours, minutes, seconds = (
        int(match[part] or 0) for part in ("days", "hours", "minutes", "seconds")
    )
    whole_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole_s * 1000 + int((match["fraction"] or "").ljust(3, "0")[:3])


def _wrong_reset(value: str) -> str | None:
    if value in (EARLIEST, LATEST) or reset_duration_ms(value) is not None:
        return None
    return (
        f"Invalid value `{value}` for configuration share.auto.offset.reset. The value must be either "
        "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


OWN_OPTIONS: dict[str, Option] = {
    "share_auto_offset_reset": Option(
        "share.auto.offset.reset",
        Kind.STRING,
        LATEST,
        "Where the group begins to read a partition: earliest, latest or by_duration:PnDTnHnMn.nS.",
        _wrong_reset,
        dynamic=True,
    ),
    "share_isolation_level": Option(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether the group is given records of transactions that are open or aborted.",
        one_of("read_committed", "read_uncommitted"),
        dynamic=True,
    ),
    "share_renew_acknowledge_enable": Option(
        "share.renew.acknowledge.enable",
        Kind.BOOLEAN,
        True,
        "Whether consumers may renew the locks of records that they hold.",
        None,
        dynamic=True,
    ),
}
"""What a group can be told and a broker cannot, by where ShareConfig has it."""


@dataclass(frozen=True, kw_only=True)
class ShareMembersConfig:
    """The members of share groups."""

    share_session_timeout_ms: int = option(
        "group.share.session.timeout.ms",
        Kind.INT,
        45_000,
        at_least(1),
        "A member of a share group that is not heard of for this long is taken for dead.",
    )
    share_min_session_timeout_ms: int = option(
        "group.share.min.session.timeout.ms",
        Kind.INT,
        45_000,
        at_least(1),
        "Least that a group may be told for share.session.timeout.ms.",
    )
    share_max_session_timeout_ms: int = option(
        "group.share.max.session.timeout.ms",
        Kind.INT,
        60_000,
        at_least(1),
        "Most that a group may be told for share.session.timeout.ms.",
    )
    share_heartbeat_interval_ms: int = option(
        "group.share.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        at_least(1),
        "How often members of share groups are told to heartbeat, at least; those that wait for news, and "
        "those of small groups, are told to do so sooner.",
    )
    share_min_heartbeat_interval_ms: int = option(
        "group.share.min.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        at_least(1),
        "Least that a group may be told for share.heartbeat.interval.ms.",
    )
    share_max_heartbeat_interval_ms: int = option(
        "group.share.max.heartbeat.interval.ms",
        Kind.INT,
        15_000,
        at_least(1),
        "Most that a group may be told for share.heartbeat.interval.ms.",
    )
    share_assignment_interval_ms: int = option(
        "group.share.assignment.interval.ms",
        Kind.INT,
        1_000,
        at_least(0),
        "A share group is assigned anew at most this often; small groups are assigned sooner.",
        dynamic=True,
    )
    share_min_assignment_interval_ms: int = option(
        "group.share.min.assignment.interval.ms",
        Kind.INT,
        0,
        at_least(0),
        "Least that a group may be told for share.assignment.interval.ms.",
    )
    share_max_assignment_interval_ms: int = option(
        "group.share.max.assignment.interval.ms",
        Kind.INT,
        15_000,
        at_least(0),
        "Most that a group may be told for share.assignment.interval.ms.",
    )
    share_max_size: int = option(
        "group.share.max.size", Kind.INT, 200, between(1, 1_000), "Members a share group may have."
    )


@dataclass(frozen=True, kw_only=True)
class ShareConfig(ShareMembersConfig):
    """Members, and the records that are given to them."""

    share_record_lock_duration_ms: int = option(
        "group.share.record.lock.duration.ms",
        Kind.INT,
        30_000,
        between(1_000, _HOUR_MS),
        "How long a record that was given to a consumer is kept from the others, unless it says so sooner.",
    )
    share_min_record_lock_duration_ms: int = option(
        "group.share.min.record.lock.duration.ms",
        Kind.INT,
        15_000,
        between(1_000, 30_000),
        "Least that a group may be told for share.record.lock.duration.ms.",
    )
    share_max_record_lock_duration_ms: int = option(
        "group.share.max.record.lock.duration.ms",
        Kind.INT,
        60_000,
        between(30_000, _HOUR_MS),
        "Most that a group may be told for share.record.lock.duration.ms.",
    )
    share_delivery_count_limit: int = option(
        "group.share.delivery.count.limit",
        Kind.INT,
        5,
        between(2, 10),
        "How often a record is given out before it is set aside.",
    )
    share_min_delivery_count_limit: int = option(
        "group.share.min.delivery.count.limit",
        Kind.INT,
        2,
        between(2, 5),
        "Least that a group may be told for share.delivery.count.limit.",
    )
    share_max_delivery_count_limit: int = option(
        "group.share.max.delivery.count.limit",
        Kind.INT,
        10,
        between(5, 25),
        "Most that a group may be told for share.delivery.count.limit.",
    )
    share_partition_max_record_locks: int = option(
        "group.share.partition.max.record.locks",
        Kind.INT,
        2_000,
        between(100, 10_000),
        "Records of a partition that a share group may have out at once.",
    )
    share_min_partition_max_record_locks: int = option(
        "group.share.min.partition.max.record.locks",
        Kind.INT,
        100,
        between(100, 2_000),
        "Least that a group may be told for share.partition.max.record.locks.",
    )
    share_max_partition_max_record_locks: int = option(
        "group.share.max.partition.max.record.locks",
        Kind.INT,
        4_000,
        between(2_000, 10_000),
        "Most that a group may be told for share.partition.max.record.locks.",
    )
    share_max_share_sessions: int = option(
        "group.share.max.share.sessions",
        Kind.INT,
        2_000,
        at_least(1),
        "Sessions of share consumers that a broker keeps at once.",
    )
    share_auto_offset_reset: str = LATEST
    share_isolation_level: str = "read_uncommitted"
    share_renew_acknowledge_enable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateConfig:
    """The topic that keeps what share groups are done with."""

    topic_partitions: int = option(
        "share.coordinator.state.topic.num.partitions",
        Kind.INT,
        50,
        at_least(1),
        "Partitions of the topic that keeps the state of share groups; it cannot be changed later.",
    )
    topic_replication_factor: int = option(
        "share.coordinator.state.topic.replication.factor",
        Kind.SHORT,
        1,
        at_least(1),
        "Replicas of the topic that keeps the state of share groups.",
    )
    topic_min_isr: int = option(
        "share.coordinator.state.topic.min.isr",
        Kind.SHORT,
        1,
        at_least(1),
        "Replicas that must have a record of the state of share groups before it counts.",
    )
    topic_segment_bytes: int = option(
        "share.coordinator.state.topic.segment.bytes",
        Kind.INT,
        100 << 20,
        at_least(1),
        "Segments of the topic that keeps the state of share groups.",
    )
    updates_per_snapshot: int = option(
        "share.coordinator.snapshot.update.records.per.snapshot",
        Kind.INT,
        500,
        between(0, 500),
        "How many changes of a share partition are written before its whole state is.",
    )
    write_timeout_ms: int = option(
        "share.coordinator.write.timeout.ms",
        Kind.INT,
        5_000,
        at_least(1),
        "How long a change of a share partition's state waits until all replicas have it.",
    )
    prune_interval_ms: int = option(
        "share.coordinator.state.topic.prune.interval.ms",
        Kind.INT,
        300_000,
        at_least(1),
        "How often what newer records have replaced is cut off from the topic that keeps the state of share "
        "groups.",
    )

    @property
    def topic_config(self) -> dict[str, str]:
        """Not compacted, since changes add up until the next snapshot: old records are cut off instead."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "compression.type": "producer",
            "min.insync.replicas": str(self.topic_min_isr),
            "segment.bytes": str(self.topic_segment_bytes),
        }
