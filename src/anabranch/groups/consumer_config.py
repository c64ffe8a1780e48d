"""Consumer group options (KIP-848): names, defaults and bounds are Kafka's.

Two of them are upper limits here: a small group heartbeats and is assigned sooner, see `consumer_pace`.
Those with `min` and `max` bound the options of single groups (`group_options`), not the broker's own.
"""

from dataclasses import dataclass

from anabranch.base.config import INT_MAX, Kind, at_least, one_of, option, some_of


def _assignors(value: tuple[str, ...]) -> str | None:
    return some_of("uniform", "range")(value) if value else "List must not be empty"


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        at_least(1),
        "A member that is not heard of for this long is taken for dead.",
    )
    consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        at_least(1),
        "How often members are told to heartbeat, at least; members that wait for news, and those of small "
        "groups, are told to do so sooner.",
    )
    consumer_min_session_timeout_ms: int = option(
        "group.consumer.min.session.timeout.ms",
        Kind.INT,
        45_000,
        at_least(1),
        "Least that a group may be told for consumer.session.timeout.ms.",
    )
    consumer_max_session_timeout_ms: int = option(
        "group.consumer.max.session.timeout.ms",
        Kind.INT,
        60_000,
        at_least(1),
        "Most that a group may be told for consumer.session.timeout.ms.",
    )
    consumer_min_heartbeat_interval_ms: int = option(
        "group.consumer.min.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        at_least(1),
        "Least that a group may be told for consumer.heartbeat.interval.ms.",
    )
    consumer_max_heartbeat_interval_ms: int = option(
        "group.consumer.max.heartbeat.interval.ms",
        Kind.INT,
        15_000,
        at_least(1),
        "Most that a group may be told for consumer.heartbeat.interval.ms.",
    )
    consumer_max_size: int = option(
        "group.consumer.max.size", Kind.INT, INT_MAX, at_least(1), "Members a consumer group may have."
    )
    consumer_assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        Kind.LIST,
        ("uniform", "range"),
        _assignors,
        "Assignors that members may ask for; the first is used if none does.",
    )
    consumer_migration_policy: str = option(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        "Whether a classic group becomes a consumer group when such a consumer joins it (upgrade), and a "
        "consumer group a classic one when its last such consumer leaves (downgrade).",
    )
    consumer_assignment_interval_ms: int = option(
        "group.consumer.assignment.interval.ms",
        Kind.INT,
        1_000,
        at_least(0),
        "A group is assigned anew at most this often, so that many members that start together do not "
        "cause as many assignments; small groups are assigned sooner.",
        dynamic=True,
    )
    consumer_min_assignment_interval_ms: int = option(
        "group.consumer.min.assignment.interval.ms",
        Kind.INT,
        0,
        at_least(0),
        "Least that a group may be told for consumer.assignment.interval.ms.",
    )
    consumer_max_assignment_interval_ms: int = option(
        "group.consumer.max.assignment.interval.ms",
        Kind.INT,
        15_000,
        at_least(0),
        "Most that a group may be told for consumer.assignment.interval.ms.",
    )
