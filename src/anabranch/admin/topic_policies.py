"""The policies of topics, one by one: read, set, taken back.

A topic's policy is answered as it was set for it; with `applied=true`, as it follows from the topic, its
namespace and the broker together.  What is set for a topic holds for all of its partitions.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.checks import (
    Check,
    backlog_quota,
    inactive_topics,
    persistence,
    replicated_here,
    retention,
    subscription_types,
    zero_or_more,
)
from anabranch.admin.errors import Refused
from anabranch.admin.namespace_policies import quota_type, told
from anabranch.admin.parts import whole_topic
from anabranch.admin.routes import delete, get, route
from anabranch.admin.topics import TOPIC
from anabranch.meta.policies import (
    BACKLOG_AGE,
    BACKLOG_SIZE,
    NO_TOPIC_POLICIES,
    AutoSubscriptionCreationOverride,
    BacklogQuota,
    DelayedDeliveryPolicies,
    DispatchRate,
    InactiveTopicPolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
    TopicPolicies,
)
from anabranch.meta.rules import Rate, Rules

Applied = Callable[[Rules], Any]
AppliedHere = Callable[[Call], Awaitable[Any]]

_MS_IN_MINUTE = 60_000


class Policy(NamedTuple):
    """A policy by its path, the field that holds it, its type, and how it follows from a topic's rules."""

    path: str
    field: str
    kind: Any
    applied: Applied | None = None
    check: Check | None = None
    setter: str = "POST"
    applied_here: AppliedHere | None = None
    """Where it does not follow from the rules."""


def _retention(rules: Rules) -> RetentionPolicies | None:
    if rules.retention_ms is None or rules.retention_bytes is None:
        return None
    minutes = rules.retention_ms // _MS_IN_MINUTE if rules.retention_ms > 0 else rules.retention_ms
    megabytes = rules.retention_bytes >> 20 if rules.retention_bytes > 0 else rules.retention_bytes
    return RetentionPolicies(minutes, megabytes)


def dispatch_rate_of(rate: Rate) -> DispatchRate:
    return DispatchRate(rate.messages or 0, rate.bytes or 0, rate.is_relative_to_publish, rate.period_s)


async def _clusters(call: Call) -> list[str]:
    own = own_policies(call).replication_clusters
    return own or call.policies.replication_clusters or [call.cluster_name]


async def _enforced(call: Call) -> bool:
    own = own_policies(call).schema_validation_enforced
    asked = call.policies.schema_validation_enforced
    return (
        own
        if own is not None
        else asked or call.services.pulsar.config.current.policies.schema_validation_enforced
    )


async def _strategy(call: Call) -> str:
    return (await call.services.pulsar.schemas.strategy(whole_topic(call).name)).name


def _message_size(value: int, call: Call) -> None:
    most = call.services.pulsar.config.current.policies.max_message_bytes
    if not 0 <= value <= most:
        raise Refused(
            412,
            "topic-level maxMessageSize must be greater than or equal to 0 "
            "and must be smaller than that in the broker-level",
        )


_POLICIES = (
    Policy(
        "messageTTL",
        "message_ttl_in_seconds",
        int,
        lambda r: r.message_ttl_s or 0,
        zero_or_more("Invalid value for message TTL"),
    ),
    Policy("retention", "retention_policies", RetentionPolicies, _retention, retention),
    Policy("deduplicationEnabled", "deduplication_enabled", bool, lambda r: r.deduplication),
    Policy(
        "maxProducers",
        "max_producers_per_topic",
        int,
        lambda r: r.max_producers or 0,
        zero_or_more("maxProducers must be 0 or more"),
    ),
    Policy(
        "maxConsumers",
        "max_consumers_per_topic",
        int,
        lambda r: r.max_consumers or 0,
        zero_or_more("maxConsumers must be 0 or more"),
    ),
    Policy(
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
        int,
        lambda r: r.max_consumers_per_subscription or 0,
        zero_or_more("Invalid value for maxConsumersPerSubscription"),
    ),
    Policy(
        "maxSubscriptionsPerTopic",
        "max_subscriptions_per_topic",
        int,
        lambda r: r.max_subscriptions or 0,
        zero_or_more("maxSubscriptionsPerTopic must be 0 or more"),
    ),
    Policy(
        "maxUnackedMessagesOnConsumer",
        "max_unacked_messages_per_consumer",
        int,
        lambda r: r.max_unacked_per_consumer or 0,
        zero_or_more("maxUnackedNum must be 0 or more"),
    ),
    Policy(
        "maxUnackedMessagesOnSubscription",
        "max_unacked_messages_per_subscription",
        int,
        lambda r: r.max_unacked_per_subscription or 0,
        zero_or_more("maxUnackedNum must be 0 or more"),
    ),
    Policy("maxMessageSize", "max_message_size", int, lambda r: r.max_message_bytes, _message_size),
    Policy(
        "delayedDelivery",
        "delayed_delivery_policies",
        DelayedDeliveryPolicies,
        lambda r: DelayedDeliveryPolicies(r.delayed_delivery, 1, r.max_delay_ms or 0),
    ),
    Policy(
        "inactiveTopicPolicies",
        "inactive_topic_policies",
        InactiveTopicPolicies,
        lambda r: InactiveTopicPolicies(r.delete_inactive_mode, r.delete_inactive_after_s, r.delete_inactive),
        inactive_topics,
    ),
    Policy(
        "publishRate",
        "publish_rate",
        PublishRate,
        lambda r: PublishRate(r.publish_rate.messages or -1, r.publish_rate.bytes or -1),
    ),
    Policy("dispatchRate", "dispatch_rate", DispatchRate, lambda r: dispatch_rate_of(r.dispatch_rate)),
    Policy(
        "subscriptionDispatchRate",
        "subscription_dispatch_rate",
        DispatchRate,
        lambda r: dispatch_rate_of(r.subscription_dispatch_rate),
    ),
    Policy(
        "subscribeRate",
        "subscribe_rate",
        SubscribeRate,
        lambda r: SubscribeRate(r.subscribe_rate or 0, r.subscribe_period_s),
    ),
    Policy(
        "subscriptionTypesEnabled",
        "subscription_types_enabled",
        list[str],
        lambda r: sorted(r.subscription_types),
        subscription_types,
    ),
    Policy("persistence", "persistence", dict[str, Any], None, persistence),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        str,
        setter="PUT",
        applied_here=_strategy,
    ),
    Policy("schemaValidationEnforced", "schema_validation_enforced", bool, applied_here=_enforced),
    Policy(
        "compactionThreshold",
        "compaction_threshold",
        int,
        lambda r: r.compaction_threshold_bytes or 0,
        zero_or_more("Invalid value for compactionThreshold", is_long=True),
    ),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplication_snapshot_interval_seconds",
        int,
        lambda r: r.deduplication_snapshot_s,
        zero_or_more("interval must be 0 or more"),
    ),
    Policy(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        int,
        lambda r: (r.subscription_expiration_s or 0) // 60,
        zero_or_more("Invalid value for subscription expiration time"),
    ),
    Policy(
        "autoSubscriptionCreation",
        "auto_subscription_creation_override",
        AutoSubscriptionCreationOverride,
        lambda r: AutoSubscriptionCreationOverride(r.auto_create_subscriptions),
    ),
    Policy("replicatorDispatchRate", "replicator_dispatch_rate", DispatchRate),
    Policy("dispatcherPauseOnAckStatePersistent", "dispatcher_pause_on_ack_state_persistent_enabled", bool),
    Policy(
        "replication",
        "replication_clusters",
        list[str],
        check=replicated_here,
        applied_here=_clusters,
    ),
)


# How Pulsar's clients set them.
_BY_QUERY = {
    "messageTTL": ("messageTTL",),
    "subscriptionExpirationTime": ("subscriptionExpirationTime",),
}


def own_policies(call: Call) -> TopicPolicies:
    return whole_topic(call).policies or NO_TOPIC_POLICIES


async def alter(call: Call, change: Callable[[TopicPolicies], TopicPolicies]) -> None:
    await call.services.pulsar.catalog.alter_policies(whole_topic(call).name, change)


async def set_field(call: Call, field: str, value: Any) -> None:
    await alter(call, lambda policies: msgspec.structs.replace(policies, **{field: value}))


def rules_of_topic(call: Call) -> Rules:
    return call.services.pulsar.catalog.rules(whole_topic(call).name)


def _enter(policy: Policy) -> None:
    path, words = f"{TOPIC}/{policy.path}", policy.field.replace("_", " ")

    async def show(call: Call) -> Any:
        if call.flag("applied") and policy.applied is not None:
            return policy.applied(rules_of_topic(call))
        if call.flag("applied") and policy.applied_here is not None:
            return await policy.applied_here(call)
        return getattr(own_policies(call), policy.field)

    async def change(call: Call) -> None:
        value = call.body
        if value is None and policy.path in _BY_QUERY and policy.path in call.query:
            value = call.number(policy.path, 0)
        if policy.check is not None and value is not None:
            policy.check(value, call)
        await set_field(call, policy.field, value)

    async def remove(call: Call) -> None:
        await set_field(call, policy.field, None)

    show.__doc__ = f"A topic's {words}."
    change.__doc__ = f"Set a topic's {words}."
    remove.__doc__ = f"Take back a topic's {words}."
    get(path, answer=policy.kind, query=("applied",))(show)
    for method in sorted({"POST", policy.setter}):
        route(method, path, body=policy.kind | None, query=_BY_QUERY.get(policy.path, ()))(change)
    delete(path)(remove)


for _policy in _POLICIES:
    _enter(_policy)


@get(TOPIC + "/backlogQuotaMap", answer=dict[str, BacklogQuota], query=("applied",))
async def quotas(call: Call) -> dict[str, BacklogQuota]:
    """A topic's backlog quotas, by kind."""
    if not call.flag("applied"):
        return {kind: told(quota) for kind, quota in own_policies(call).backlog_quota_map.items()}
    rules = rules_of_topic(call)
    size, age = rules.backlog_size, rules.backlog_age
    return {
        BACKLOG_SIZE: told(BacklogQuota(-1 if size.limit is None else size.limit, -1, size.action)),
        BACKLOG_AGE: told(BacklogQuota(-1, -1 if age.limit is None else age.limit, age.action)),
    }


@route("POST", TOPIC + "/backlogQuota", body=BacklogQuota, query=("backlogQuotaType",))
async def set_quota(call: Call) -> None:
    """Set one of a topic's backlog quotas."""
    kind, quota = quota_type(call), call.body
    kept = own_policies(call).retention_policies or call.policies.retention_policies
    backlog_quota(quota, kept, kind, "topic")
    await alter(
        call,
        lambda policies: msgspec.structs.replace(
            policies, backlog_quota_map={**policies.backlog_quota_map, kind: quota}
        ),
    )


@delete(TOPIC + "/backlogQuota", query=("backlogQuotaType",))
async def remove_quota(call: Call) -> None:
    """Take back one of a topic's backlog quotas."""
    kind = quota_type(call)
    await alter(
        call,
        lambda policies: msgspec.structs.replace(
            policies, backlog_quota_map={k: v for k, v in policies.backlog_quota_map.items() if k != kind}
        ),
    )


@delete(TOPIC + "/policies")
async def remove_all(call: Call) -> None:
    """Take back everything that was set for a topic alone."""
    await alter(call, lambda policies: NO_TOPIC_POLICIES)
