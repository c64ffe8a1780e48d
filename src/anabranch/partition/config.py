"""Options of replication: how a follower fetches, and how far it may lag."""

from dataclasses import dataclass

from anabranch.base.config import LONG_MAX, Kind, at_least, one_of, option

_SELECTORS = "org.apache.kafka.common.replica."
LEADER, RACK_AWARE = f"{_SELECTORS}LeaderSelector", f"{_SELECTORS}RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How followers fetch from leaders; a change counts from the next start."""

    lag_time_max_ms: int = option(
        "replica.lag.time.max.ms",
        Kind.LONG,
        10_000,
        at_least(1),
        "A follower that has not caught up with its leader for so long leaves the ISR.",
    )
    lag_max_messages: int = option(
        "replica.lag.max.messages",
        Kind.LONG,
        -1,
        at_least(-1),
        "A follower that lacks more messages than this of what its leader had a second ago, or half of "
        "replica.lag.time.max.ms if that is less, leaves the ISR; -1 is any number.",
    )

    num_fetchers: int = option(
        "num.replica.fetchers",
        Kind.INT,
        1,
        at_least(1),
        "How many fetches at a time a broker has with each leader that it follows.",
    )
    fetch_max_wait_ms: int = option(
        "replica.fetch.wait.max.ms",
        Kind.INT,
        500,
        at_least(0),
        "How long a leader may wait for something to give to a follower.",
    )
    fetch_min_bytes: int = option(
        "replica.fetch.min.bytes",
        Kind.INT,
        1,
        at_least(0),
        "How much a leader waits for before it answers a follower.",
    )
    fetch_max_bytes: int = option(
        "replica.fetch.max.bytes",
        Kind.INT,
        1_048_576,
        at_least(0),
        "The most that a follower fetches of a partition at a time; a larger batch comes whole all the same.",
    )
    fetch_response_max_bytes: int = option(
        "replica.fetch.response.max.bytes",
        Kind.INT,
        10_485_760,
        at_least(0),
        "The most that a follower fetches at a time.",
    )
    fetch_backoff_ms: int = option(
        "replica.fetch.backoff.ms",
        Kind.INT,
        1000,
        at_least(0),
        "How long a follower waits, at most, before it fetches again what could not be.",
    )
    socket_timeout_ms: int = option(
        "replica.socket.timeout.ms",
        Kind.INT,
        30_000,
        at_least(1),
        "How long a follower waits for a leader's answer, beside what the leader may wait.",
    )
    selector_class: str | None = option(
        "replica.selector.class",
        Kind.CLASS,
        None,
        one_of("", LEADER, RACK_AWARE),
        f"Where consumers read: with `{RACK_AWARE}` from a follower in their rack (`client.rack`), else from "
        "the leader.",
    )
    leader_throttled_rate: int = option(
        "leader.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        at_least(0),
        "Bytes a second that this broker gives to followers of throttled replicas.",
        dynamic=True,
    )
    follower_throttled_rate: int = option(
        "follower.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        at_least(0),
        "Bytes a second that this broker fetches for its throttled replicas.",
        dynamic=True,
    )
