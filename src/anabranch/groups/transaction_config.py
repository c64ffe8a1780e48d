"""Transaction coordinator options: names, defaults and bounds are Kafka's.

Kafka's defaults for the topic's replicas (3, of which 2 must have a record) do not fit one broker, and its
own sample configuration sets both to 1, as here.
"""

from dataclasses import dataclass

from anabranch.base.config import Kind, at_least, option

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    max_timeout_ms: int = option(
        "transaction.max.timeout.ms",
        Kind.INT,
        15 * _MINUTE_MS,
        at_least(1),
        "Longest timeout that a producer may ask for its transactions; readers wait while one is open.",
    )
    expiration_ms: int = option(
        "transactional.id.expiration.ms",
        Kind.INT,
        7 * _DAY_MS,
        at_least(1),
        "A transactional id that was not used for this long is forgotten.",
    )
    abort_check_interval_ms: int = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        at_least(1),
        "How often transactions are looked at to abort those whose time is over.",
    )
    expiration_check_interval_ms: int = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        60 * _MINUTE_MS,
        at_least(1),
        "How often transactional ids are looked at to forget those whose time is over.",
    )
    topic_partitions: int = option(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        at_least(1),
        "Partitions of the topic that keeps transactions; it cannot be changed once the topic is there.",
    )
    topic_replication_factor: int = option(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        1,
        at_least(1),
        "Replicas of the topic that keeps transactions.",
    )
    topic_min_isr: int = option(
        "transaction.state.log.min.isr",
        Kind.INT,
        1,
        at_least(1),
        "Replicas of the topic that keeps transactions which must have a record before it counts.",
    )
    topic_segment_bytes: int = option(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        100 << 20,
        at_least(1),
        "Segments of the topic that keeps transactions are small, so that it is compacted and loaded fast.",
    )
    verify_partitions: bool = option(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        None,
        "Whether records of a transaction are refused by partitions that were not added to it.",
        dynamic=True,
    )

    def topic_config(self) -> dict[str, str]:
        """The configuration of the topic that keeps transactions."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(self.topic_min_isr),
            "segment.bytes": str(self.topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
