"""Policy checks: which values policies may have, by Pulsar's rules and refused in Pulsar's words."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.meta.policies import (
    BACKLOG_SIZE,
    SUBSCRIPTION_TYPES,
    AutoTopicCreationOverride,
    BacklogQuota,
    InactiveTopicPolicies,
    RetentionPolicies,
)

Check = Callable[[Any, Call], None]

_MEGABYTE = 1 << 20
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


def zero_or_more(refusal: str, *, is_long: bool = False) -> Check:
    """A number of 0 or more, of 64 bits if `is_long`; `refusal` is what Pulsar says to others."""

    def check(value: int, call: Call) -> None:
        _check_int(value, _LONG_MAX if is_long else _INT_MAX)
        if value < 0:
            raise Refused(412, refusal)

    return check


def _check_int(value: int, most: int = _INT_MAX) -> None:
    """Most of Pulsar's numbers have 32 bits, and what is beyond is no request to it."""
    if abs(value) > most:
        raise Refused(400, f"the body is not what it should be: a number is beyond {most}")


def retention(value: RetentionPolicies, call: Call) -> None:
    minutes, megabytes = value.retention_time_in_minutes, value.retention_size_in_mb
    _check_int(minutes)
    if not -1 <= megabytes <= _LONG_MAX // _MEGABYTE:
        _check_int(megabytes)
    if megabytes < -1:
        raise Refused(412, "Invalid retention policy: size limit must be >= -1")
    if minutes < -1:
        raise Refused(412, "Invalid retention policy: time limit must be >= -1")
    if (minutes == 0) != (megabytes == 0):
        raise Refused(
            412,
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the "
            "limits has a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. "
            "To disable retention both limits must be set to 0.",
        )


def backlog_quota(value: BacklogQuota, kept: RetentionPolicies | None, kind: str, of: str) -> None:
    """What a backlog may be is less than what is kept anyway, or nothing would be left to hold it to."""
    if value.policy is None:
        raise Refused(400, "the data validation failed: a backlog quota has a policy")
    if kind == BACKLOG_SIZE and not _go_together(value, kept):
        raise Refused(
            412,
            f"Backlog Quota exceeds configured retention quota for {of}. "
            "Please increase retention quota and retry",
        )


def only_this_cluster(value: list[str], call: Call) -> None:
    """Others come with replication between clusters."""
    if not value:
        raise Refused(412, "ClusterIds should not be null or empty")
    others = sorted(set(value) - {call.cluster_name})
    if others:
        raise Refused(403, f"Invalid cluster id: {others[0][:200]}")


def replicated_here(value: list[str], call: Call) -> None:
    """Of a topic: this cluster, and no other."""
    if call.cluster_name not in value:
        raise Refused(
            412, "Can not remove local cluster from the local topic-level replication clusters policy"
        )
    only_this_cluster(value, call)


def retention_beside(value: RetentionPolicies, quotas: dict[str, BacklogQuota], of: str) -> None:
    """The same, when it is the retention that changes."""
    quota = quotas.get(BACKLOG_SIZE)
    if quota is not None and not _go_together(quota, value):
        raise Refused(412, f"Retention Quota must exceed configured backlog quota for {of}.")


def _go_together(quota: BacklogQuota, kept: RetentionPolicies | None) -> bool:
    if kept is None:
        return True
    megabytes, minutes = kept.retention_size_in_mb, kept.retention_time_in_minutes
    return not (0 < megabytes * _MEGABYTE <= quota.limit_bytes or 0 < minutes * 60 <= quota.limit_time)


def auto_creation(value: AutoTopicCreationOverride, call: Call) -> None:
    if not value.allow_auto_topic_creation:
        return
    count = value.default_num_partitions
    wrong = None
    if not value.topic_type:
        wrong = "Unknown topic type [null]"
    elif value.topic_type == "partitioned" and count is None:
        wrong = "[defaultNumPartitions] cannot be null when the type is partitioned."
    elif value.topic_type == "partitioned" and count is not None and count < 1:
        wrong = "[defaultNumPartitions] cannot be less than 1 for partition type."
    elif value.topic_type == "non-partitioned" and count is not None:
        wrong = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
    if wrong is not None:
        raise Refused(412, f"Invalid configuration for autoTopicCreationOverride. the detail is {wrong}")
    most = call.services.pulsar.config.current.policies.max_num_partitions
    if most and (count or 1) > most:
        raise Refused(406, f"Number of partitions should be less than or equal to {most}")


def inactive_topics(value: InactiveTopicPolicies, call: Call) -> None:
    if value.max_inactive_duration_seconds < 1:
        raise Refused(412, "maxInactiveDurationSeconds must be 1 or more")


def subscription_types(value: list[str], call: Call) -> None:
    unknown = sorted(set(value) - set(SUBSCRIPTION_TYPES))
    if unknown:
        raise Refused(412, f"Unknown subscription type {unknown[0][:100]!r}")


def persistence(value: dict[str, Any], call: Call) -> None:
    numbers = [
        value.get(name, 0) for name in ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
    ]
    if not all(isinstance(number, int) for number in numbers) or any(
        bigger < smaller for bigger, smaller in pairwise(numbers)
    ):
        raise Refused(
            412,
            "Bookkeeper Ensemble >= WriteQuorum >= AckQuorum, all of them whole numbers",
        )
