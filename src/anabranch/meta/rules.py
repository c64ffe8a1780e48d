"""The rules of one topic: broker's options, namespace's policies and its own, settled.

    rules = rules_of(defaults, namespace_policies, topic_policies)
    rules.max_producers, rules.retention_ms, rules.backlog_size ...

A pure function of three immutable values, so that whoever holds a topic keeps its `Rules` and remakes them
when the cluster's image brings another one of the three; equal rules compare equal.

Limits are None where there is none, so that nobody has to remember which of 0 and -1 means it.
"""

from typing import Any, NamedTuple, TypeVar

import msgspec

from anabranch.meta.policies import (
    BACKLOG_AGE,
    BACKLOG_SIZE,
    NO_TOPIC_POLICIES,
    BacklogAction,
    BacklogQuota,
    DelayedDeliveryPolicies,
    DispatchRate,
    InactiveMode,
    InactiveTopicPolicies,
    NamespacePolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
    TopicPolicies,
)
from anabranch.meta.policy_defaults import PolicyDefaults

Value = TypeVar("Value")

WITHOUT_END = -1

_MS_IN_MINUTE = 60_000
_BYTES_IN_MEGABYTE = 1 << 20


class Quota(msgspec.Struct, frozen=True):
    """Beyond `limit` (bytes or seconds) of backlog `action` is taken; None is without limit."""

    limit: int | None
    action: BacklogAction


class Rate(msgspec.Struct, frozen=True):
    """How much in `period_s` seconds; None is without limit."""

    messages: int | None = None
    bytes: int | None = None
    period_s: int = 1
    is_relative_to_publish: bool = False

    @property
    def is_limited(self) -> bool:
        return self.messages is not None or self.bytes is not None


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    retention_ms: int | None  # of what every subscription has acknowledged; None: what the log is told
    retention_bytes: int | None
    message_ttl_s: int | None
    subscription_expiration_s: int | None
    backlog_size: Quota  # bytes
    backlog_age: Quota  # seconds
    deduplication: bool
    deduplication_snapshot_s: int | None  # None: as often as the broker does it
    max_producers: int | None
    max_consumers: int | None
    max_consumers_per_subscription: int | None
    max_subscriptions: int | None
    max_unacked_per_consumer: int | None
    max_unacked_per_subscription: int | None
    max_message_bytes: int
    delayed_delivery: bool
    max_delay_ms: int | None
    delete_inactive: bool
    delete_inactive_mode: InactiveMode
    delete_inactive_after_s: int
    publish_rate: Rate
    dispatch_rate: Rate  # of the topic, over all its subscriptions
    subscription_dispatch_rate: Rate  # of each subscription
    subscription_rates: dict[str, Rate]  # of those that have one of their own
    subscribe_rate: int | None  # times that one consumer may subscribe in `subscribe_period_s`
    subscribe_period_s: int
    subscription_types: frozenset[str]
    auto_create_subscriptions: bool
    encryption_required: bool
    failover_delay_ms: int
    compaction_threshold_bytes: int | None
    compaction_keeps_keyless: bool


def rules_of(
    defaults: PolicyDefaults,
    namespace: NamespacePolicies,
    topic: TopicPolicies | None = None,
    cluster: str = "standalone",
) -> Rules:
    """What holds for a topic in a namespace; `cluster` is whose rates of the namespace are meant."""
    topic = topic or NO_TOPIC_POLICIES
    retention_ms, retention_bytes = _retention(defaults, namespace, topic)
    delay = _delay(defaults, namespace, topic)
    inactive = _inactive(defaults, namespace, topic)
    return Rules(
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        message_ttl_s=_limit(topic.message_ttl_in_seconds, namespace.message_ttl_in_seconds, defaults.ttl_s),
        subscription_expiration_s=_times(
            60,
            _limit(
                topic.subscription_expiration_time_minutes,
                namespace.subscription_expiration_time_minutes,
                defaults.subscription_expiration_minutes,
            ),
        ),
        backlog_size=_quota(BACKLOG_SIZE, defaults, namespace, topic),
        backlog_age=_quota(BACKLOG_AGE, defaults, namespace, topic),
        deduplication=_said(
            topic.deduplication_enabled, namespace.deduplication_enabled, defaults.deduplication_enabled
        ),
        deduplication_snapshot_s=_limit(
            topic.deduplication_snapshot_interval_seconds,
            namespace.deduplication_snapshot_interval_seconds,
            0,
        ),
        **_counts(defaults, namespace, topic),
        max_message_bytes=min(
            topic.max_message_size or defaults.max_message_bytes, defaults.max_message_bytes
        ),
        delayed_delivery=delay.active,
        max_delay_ms=_positive(delay.max_delivery_delay_in_millis),
        delete_inactive=inactive.delete_while_inactive,
        delete_inactive_mode=inactive.inactive_topic_delete_mode,
        delete_inactive_after_s=inactive.max_inactive_duration_seconds,
        **_rates(defaults, namespace, topic, cluster),
        subscription_types=frozenset(
            topic.subscription_types_enabled
            or namespace.subscription_types_enabled
            or defaults.subscription_types
        ),
        auto_create_subscriptions=_auto_create_subscriptions(defaults, namespace, topic),
        encryption_required=namespace.encryption_required,
        failover_delay_ms=defaults.failover_delay_ms,
        compaction_threshold_bytes=_limit(
            topic.compaction_threshold, namespace.compaction_threshold, defaults.compaction_threshold_bytes
        ),
        compaction_keeps_keyless=defaults.compaction_keeps_keyless,
    )


def _rates(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies, cluster: str
) -> dict[str, Any]:
    subscribe = _subscribe_rate(defaults, namespace, topic, cluster)
    return {
        "publish_rate": _publish_rate(defaults, namespace, topic, cluster),
        "dispatch_rate": _dispatch_rate(
            topic.dispatch_rate,
            namespace.topic_dispatch_rate.get(cluster),
            DispatchRate(defaults.dispatch_rate_msg, defaults.dispatch_rate_bytes),
        ),
        "subscription_dispatch_rate": _dispatch_rate(
            topic.subscription_dispatch_rate,
            namespace.subscription_dispatch_rate.get(cluster),
            DispatchRate(defaults.subscription_rate_msg, defaults.subscription_rate_bytes),
        ),
        "subscription_rates": {
            name: _dispatch_rate(told.dispatch_rate, None, DispatchRate())
            for name, told in topic.subscription_policies.items()
            if told.dispatch_rate is not None
        },
        "subscribe_rate": _positive(subscribe.subscribe_throttling_rate_per_consumer),
        "subscribe_period_s": max(1, subscribe.rate_period_in_second),
    }


class AutoCreation(NamedTuple):
    """What becomes of a topic that a Pulsar client uses and that is not there."""

    is_allowed: bool
    partitions: int | None  # None: it has none


def auto_creation_of(defaults: PolicyDefaults, namespace: NamespacePolicies) -> AutoCreation:
    said = namespace.auto_topic_creation_override
    allowed = defaults.allow_auto_topic_creation if said is None else said.allow_auto_topic_creation
    kind = (said and said.topic_type) or defaults.allow_auto_topic_creation_type
    count = (said and said.default_num_partitions) or defaults.default_num_partitions
    return AutoCreation(allowed, count if kind == "partitioned" else None)


def retention_of(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies | None
) -> RetentionPolicies | None:
    """The retention that was set the Pulsar way; None if the log's own configuration decides."""
    said = (topic and topic.retention_policies) or namespace.retention_policies
    minutes, megabytes = defaults.retention_time_minutes, defaults.retention_size_mb
    if said is not None or (minutes is None and megabytes is None):
        return said
    return RetentionPolicies(
        WITHOUT_END if minutes is None else minutes, WITHOUT_END if megabytes is None else megabytes
    )


def log_retention(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies | None
) -> dict[str, str]:
    """What a retention that was set the Pulsar way says in the options of a log; empty if there is none."""
    retention_ms, retention_bytes = _retention(defaults, namespace, topic or NO_TOPIC_POLICIES)
    if retention_ms is None or retention_bytes is None:
        return {}
    if not retention_ms or not retention_bytes:  # Pulsar: without one of them nothing is kept
        retention_ms = retention_bytes = 0
    return {"retention.ms": str(retention_ms), "retention.bytes": str(retention_bytes)}


def _retention(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies
) -> tuple[int | None, int | None]:
    said = retention_of(defaults, namespace, topic)
    if said is None:
        return None, None
    minutes, megabytes = said.retention_time_in_minutes, said.retention_size_in_mb
    return (
        WITHOUT_END if minutes < 0 else minutes * _MS_IN_MINUTE,
        WITHOUT_END if megabytes < 0 else megabytes * _BYTES_IN_MEGABYTE,
    )


def _counts(defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies) -> dict[str, Any]:
    return {
        "max_producers": _limit(
            topic.max_producers_per_topic, namespace.max_producers_per_topic, defaults.max_producers_per_topic
        ),
        "max_consumers": _limit(
            topic.max_consumers_per_topic, namespace.max_consumers_per_topic, defaults.max_consumers_per_topic
        ),
        "max_consumers_per_subscription": _limit(
            topic.max_consumers_per_subscription,
            namespace.max_consumers_per_subscription,
            defaults.max_consumers_per_subscription,
        ),
        "max_subscriptions": _limit(
            topic.max_subscriptions_per_topic,
            namespace.max_subscriptions_per_topic,
            defaults.max_subscriptions_per_topic,
        ),
        "max_unacked_per_consumer": _limit(
            topic.max_unacked_messages_per_consumer,
            namespace.max_unacked_messages_per_consumer,
            defaults.max_unacked_per_consumer,
        ),
        "max_unacked_per_subscription": _limit(
            topic.max_unacked_messages_per_subscription,
            namespace.max_unacked_messages_per_subscription,
            defaults.max_unacked_per_subscription,
        ),
    }


def _quota(kind: str, defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies) -> Quota:
    said = topic.backlog_quota_map.get(kind) or namespace.backlog_quota_map.get(kind)
    if said is None:
        said = BacklogQuota(defaults.backlog_size_limit, defaults.backlog_limit_s, defaults.backlog_action)
    limit = said.limit_bytes if kind == BACKLOG_SIZE else said.limit_time
    # Pulsar's limits are none below 0; a size of 0 allows no backlog at all, a time of 0 is none.
    is_set = limit >= 0 if kind == BACKLOG_SIZE else limit > 0
    return Quota(limit if is_set else None, said.policy or defaults.backlog_action)


def _delay(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies
) -> DelayedDeliveryPolicies:
    return (
        topic.delayed_delivery_policies
        or namespace.delayed_delivery_policies
        or DelayedDeliveryPolicies(
            defaults.delayed_delivery_enabled,
            max_delivery_delay_in_millis=defaults.delayed_delivery_max_ms,
        )
    )


def _inactive(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies
) -> InactiveTopicPolicies:
    return (
        topic.inactive_topic_policies
        or namespace.inactive_topic_policies
        or InactiveTopicPolicies(
            defaults.delete_inactive_mode,
            defaults.delete_inactive_after_s or defaults.delete_inactive_frequency_s,
            defaults.delete_inactive,
        )
    )


def _publish_rate(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies, cluster: str
) -> Rate:
    said = (
        topic.publish_rate
        or namespace.publish_max_message_rate.get(cluster)
        or PublishRate(defaults.publish_rate_msg, defaults.publish_rate_bytes)
    )
    return Rate(
        _positive(said.publish_throttling_rate_in_msg), _positive(said.publish_throttling_rate_in_byte)
    )


def _dispatch_rate(topic: DispatchRate | None, namespace: DispatchRate | None, default: DispatchRate) -> Rate:
    said = topic or namespace or default
    return Rate(
        _positive(said.dispatch_throttling_rate_in_msg),
        _positive(said.dispatch_throttling_rate_in_byte),
        max(1, said.rate_period_in_second),
        said.relative_to_publish_rate,
    )


def _auto_create_subscriptions(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies
) -> bool:
    said = topic.auto_subscription_creation_override or namespace.auto_subscription_creation_override
    return (
        defaults.allow_auto_subscription_creation if said is None else said.allow_auto_subscription_creation
    )


def _subscribe_rate(
    defaults: PolicyDefaults, namespace: NamespacePolicies, topic: TopicPolicies, cluster: str
) -> SubscribeRate:
    return (
        topic.subscribe_rate
        or namespace.cluster_subscribe_rate.get(cluster)
        or SubscribeRate(defaults.subscribe_rate, defaults.subscribe_rate_period_s)
    )


def _said(topic: Value | None, namespace: Value | None, default: Value) -> Value:
    """What the nearest one says."""
    if topic is not None:
        return topic
    return default if namespace is None else namespace


def _limit(topic: int | None, namespace: int | None, default: int) -> int | None:
    return _positive(_said(topic, namespace, default))


def _positive(limit: int) -> int | None:
    return limit if limit > 0 else None


def _times(factor: int, limit: int | None) -> int | None:
    return None if limit is None else factor * limit
