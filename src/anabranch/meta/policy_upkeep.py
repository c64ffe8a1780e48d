"""Policy check intervals: how often topics are held to their policies, by Pulsar's names and defaults."""

from dataclasses import dataclass
from typing import Any

from anabranch.base.config import Kind, at_least, option, same_option
from anabranch.meta.policy_defaults import INACTIVE_FREQUENCY


def _every(name: str, default: int, doc: str) -> Any:
    """1 or more."""
    return option(name, Kind.INT, default, at_least(1), doc, dynamic=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyUpkeep:
    backlog_check_interval_s: int = _every(
        "backlogQuotaCheckIntervalInSeconds",
        60,
        "How often backlogs are compared with their quotas.",
    )
    inactive_check_interval_s: int = same_option(INACTIVE_FREQUENCY)
    expiry_check_interval_minutes: int = _every(
        "messageExpiryCheckIntervalInMinutes",
        5,
        "How often subscriptions skip the messages whose time to live is over.",
    )
    subscription_check_interval_minutes: int = _every(
        "subscriptionExpiryCheckIntervalInMinutes",
        5,
        "How often subscriptions that nobody has used for long are deleted.",
    )
    compaction_check_interval_s: int = _every(
        "brokerServiceCompactionMonitorIntervalInSeconds",
        60,
        "How often topics are looked at whether it is time to compact them.",
    )
    deduplication_entries_interval: int = _every(
        "brokerDeduplicationEntriesInterval",
        1000,
        "After how many messages of a topic it is written down what its producers have sent.",
    )
    deduplication_snapshot_interval_s: int = _every(
        "brokerDeduplicationSnapshotIntervalSeconds",
        120,
        "How often that is written down if fewer messages came.",
    )
    deduplication_max_producers: int = _every(
        "brokerDeduplicationMaxNumberOfProducers",
        10_000,
        "Producers of a topic whose last sequence ids are remembered.",
    )
    deduplication_inactivity_minutes: int = _every(
        "brokerDeduplicationProducerInactivityTimeoutMinutes",
        360,
        "A producer that was away for this long is forgotten by deduplication.",
    )
