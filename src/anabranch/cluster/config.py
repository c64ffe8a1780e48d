"""Options of the control plane: when leaders go back to their preferred brokers, and how a broker stops."""

from dataclasses import dataclass

from anabranch.base.config import Kind, at_least, option


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    auto_leader_rebalance: bool = option(
        "auto.leader.rebalance.enable",
        Kind.BOOLEAN,
        True,
        None,
        "Whether the controller elects preferred leaders by itself.",
    )
    imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds",
        Kind.LONG,
        300,
        at_least(1),
        "How often the controller looks whether to elect preferred leaders.",
    )
    imbalance_percentage: int = option(
        "leader.imbalance.per.broker.percentage",
        Kind.INT,
        10,
        at_least(0),
        "The share of the partitions that prefer a broker which others may lead.",
    )
    controlled_shutdown: bool = option(
        "controlled.shutdown.enable",
        Kind.BOOLEAN,
        True,
        None,
        "Whether a broker that stops first has its partitions led by others.",
    )
    controlled_shutdown_max_retries: int = option(
        "controlled.shutdown.max.retries",
        Kind.INT,
        3,
        at_least(0),
        "How many more seconds than one a broker that stops waits for that.",
    )
