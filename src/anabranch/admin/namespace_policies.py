"""The policies of namespaces, one by one: read, set, taken back.

Most are the same three requests on a field of `NamespacePolicies`; the table below has them.  A policy that
was not set has no answer (204).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.checks import (
    Check,
    auto_creation,
    backlog_quota,
    inactive_topics,
    persistence,
    retention,
    retention_beside,
    subscription_types,
    zero_or_more,
)
from anabranch.admin.errors import Refused
from anabranch.admin.routes import API, delete, get, route
from anabranch.meta.policies import (
    BACKLOG_SIZE,
    BACKLOG_TYPES,
    AutoSubscriptionCreationOverride,
    AutoTopicCreationOverride,
    BacklogQuota,
    DelayedDeliveryPolicies,
    DispatchRate,
    InactiveTopicPolicies,
    NamespacePolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
)
from anabranch.meta.policy_defaults import PolicyDefaults

BASE = API + "/namespaces/{tenant}/{namespace}"


class Policy(NamedTuple):
    """A policy by its path, the field that holds it, and its type."""

    path: str
    field: str
    kind: Any
    check: Check | None = None
    setter: str = "POST"
    removable: bool = True
    unset: Callable[[PolicyDefaults], Any] | None = None
    """What is answered if it was not set, by the broker's options; None: nothing."""


def _retention(value: RetentionPolicies, call: Call) -> None:
    retention(value, call)
    retention_beside(value, call.policies.backlog_quota_map, "namespace")


_POLICIES = (
    Policy(
        "messageTTL",
        "message_ttl_in_seconds",
        int,
        zero_or_more("Invalid value for message TTL, message TTL must >= 0"),
    ),
    Policy(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        int,
        zero_or_more("Invalid value for subscription expiration time"),
    ),
    Policy("retention", "retention_policies", RetentionPolicies, _retention),
    Policy("deduplication", "deduplication_enabled", bool),
    Policy("autoTopicCreation", "auto_topic_creation_override", AutoTopicCreationOverride, auto_creation),
    Policy(
        "autoSubscriptionCreation", "auto_subscription_creation_override", AutoSubscriptionCreationOverride
    ),
    Policy("delayedDelivery", "delayed_delivery_policies", DelayedDeliveryPolicies),
    Policy("inactiveTopicPolicies", "inactive_topic_policies", InactiveTopicPolicies, inactive_topics),
    Policy(
        "maxProducersPerTopic",
        "max_producers_per_topic",
        int,
        zero_or_more("maxProducersPerTopic must be 0 or more"),
    ),
    Policy(
        "maxConsumersPerTopic",
        "max_consumers_per_topic",
        int,
        zero_or_more("maxConsumersPerTopic must be 0 or more"),
    ),
    Policy(
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
        int,
        zero_or_more("maxConsumersPerSubscription must be 0 or more"),
    ),
    Policy(
        "maxUnackedMessagesPerConsumer",
        "max_unacked_messages_per_consumer",
        int,
        zero_or_more("maxUnackedMessagesPerConsumer must be 0 or more"),
    ),
    Policy(
        "maxUnackedMessagesPerSubscription",
        "max_unacked_messages_per_subscription",
        int,
        zero_or_more("maxUnackedMessagesPerSubscription must be 0 or more"),
    ),
    Policy(
        "maxSubscriptionsPerTopic",
        "max_subscriptions_per_topic",
        int,
        zero_or_more("maxSubscriptionsPerTopic must be 0 or more"),
    ),
    Policy(
        "maxTopicsPerNamespace",
        "max_topics_per_namespace",
        int,
        zero_or_more("maxTopicsPerNamespace must be 0 or more"),
        unset=lambda defaults: defaults.max_topics_per_namespace,
    ),
    Policy("subscriptionTypesEnabled", "subscription_types_enabled", list[str], subscription_types),
    Policy("encryptionRequired", "encryption_required", bool, removable=False),
    Policy("persistence", "persistence", dict[str, Any], persistence),
    Policy(
        "schemaCompatibilityStrategy", "schema_compatibility_strategy", str, setter="PUT", removable=False
    ),
    Policy(
        "schemaAutoUpdateCompatibilityStrategy",
        "schema_auto_update_compatibility_strategy",
        str,
        setter="PUT",
        removable=False,
    ),
    Policy(
        "isAllowAutoUpdateSchema",
        "is_allow_auto_update_schema",
        bool,
        removable=False,
        unset=lambda defaults: defaults.allow_auto_update_schema,
    ),
    Policy("schemaValidationEnforced", "schema_validation_enforced", bool, removable=False),
    Policy(
        "compactionThreshold",
        "compaction_threshold",
        int,
        zero_or_more("compactionThreshold must be 0 or more", is_long=True),
        setter="PUT",
    ),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplication_snapshot_interval_seconds",
        int,
        zero_or_more("interval must be greater than or equal to 0"),
    ),
    Policy("subscriptionAuthMode", "subscription_auth_mode", Literal["None", "Prefix"], removable=False),
    Policy(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcher_pause_on_ack_state_persistent_enabled",
        bool,
        unset=lambda defaults: False,
    ),
    Policy("antiAffinity", "anti_affinity_group", str),
)
_DEFAULTS = NamespacePolicies()


async def alter(call: Call, change: Callable[[NamespacePolicies], NamespacePolicies]) -> None:
    _ = call.policies  # refused in Pulsar's words if the namespace is not there
    await call.services.pulsar.cluster.tenants.alter_namespace(call.namespace, change)


async def set_field(call: Call, field: str, value: Any) -> None:
    await alter(call, lambda policies: msgspec.structs.replace(policies, **{field: value}))


def _enter(policy: Policy) -> None:
    path, words = f"{BASE}/{policy.path}", policy.field.replace("_", " ")

    async def show(call: Call) -> Any:
        value = getattr(call.policies, policy.field)
        if value is None and policy.unset is not None:
            return policy.unset(call.services.pulsar.config.current.policies)
        return value

    async def change(call: Call) -> None:
        value = call.body
        if value is None and not policy.removable:
            raise Refused(400, f"the body must say {words}")
        if policy.check is not None and value is not None:
            policy.check(value, call)
        await set_field(call, policy.field, value)

    async def remove(call: Call) -> None:
        await set_field(call, policy.field, getattr(_DEFAULTS, policy.field))

    show.__doc__ = f"A namespace's {words}."
    change.__doc__ = f"Set a namespace's {words}."
    remove.__doc__ = f"Take back a namespace's {words}."
    get(path, answer=policy.kind)(show)
    for method in sorted({"POST", policy.setter}):
        route(method, path, body=policy.kind | None)(change)
    if policy.removable:
        delete(path)(remove)


for _policy in _POLICIES:
    _enter(_policy)


# --- rates, which are by cluster


class RatePolicy(NamedTuple):
    path: str
    field: str
    kind: type[msgspec.Struct]


_RATES = (
    RatePolicy("publishRate", "publish_max_message_rate", PublishRate),
    RatePolicy("dispatchRate", "topic_dispatch_rate", DispatchRate),
    RatePolicy("subscriptionDispatchRate", "subscription_dispatch_rate", DispatchRate),
    RatePolicy("replicatorDispatchRate", "replicator_dispatch_rate", DispatchRate),
    RatePolicy("subscribeRate", "cluster_subscribe_rate", SubscribeRate),
)


def _enter_rate(policy: RatePolicy) -> None:
    path, words = f"{BASE}/{policy.path}", policy.path

    async def show(call: Call) -> Any:
        return getattr(call.policies, policy.field).get(call.cluster_name)

    async def change(call: Call) -> None:
        cluster, rate = call.cluster_name, call.body
        if rate is None:
            raise Refused(400, f"the body must say a {words}")
        await alter(
            call,
            lambda policies: msgspec.structs.replace(
                policies, **{policy.field: {**getattr(policies, policy.field), cluster: rate}}
            ),
        )

    async def remove(call: Call) -> None:
        cluster = call.cluster_name
        await alter(
            call,
            lambda policies: msgspec.structs.replace(
                policies,
                **{policy.field: {k: v for k, v in getattr(policies, policy.field).items() if k != cluster}},
            ),
        )

    show.__doc__ = f"A namespace's {words}."
    change.__doc__ = f"Set a namespace's {words}."
    remove.__doc__ = f"Take back a namespace's {words}."
    get(path, answer=policy.kind)(show)
    route("POST", path, body=policy.kind | None)(change)
    delete(path)(remove)


for _rate in _RATES:
    _enter_rate(_rate)


# --- backlog quotas, which are by kind


def quota_type(call: Call) -> str:
    kind = call.query.get("backlogQuotaType", BACKLOG_SIZE)
    if kind not in BACKLOG_TYPES:
        raise Refused(400, f"backlogQuotaType is one of {', '.join(BACKLOG_TYPES)}")
    return kind


@get(BASE + "/backlogQuotaMap", answer=dict[str, BacklogQuota])
async def quotas(call: Call) -> dict[str, BacklogQuota]:
    """A namespace's backlog quotas, by kind."""
    return {kind: told(quota) for kind, quota in call.policies.backlog_quota_map.items()}


def told(quota: BacklogQuota) -> BacklogQuota:
    """With the limit under both of its names, as clients of all ages want it."""
    return BacklogQuota(quota.limit_bytes, quota.limit_time, quota.policy, quota.limit_bytes)


@route("POST", BASE + "/backlogQuota", body=BacklogQuota, query=("backlogQuotaType",))
async def set_quota(call: Call) -> None:
    """Set one of a namespace's backlog quotas."""
    kind, quota = quota_type(call), call.body
    backlog_quota(quota, call.policies.retention_policies, kind, "namespace")
    await alter(
        call,
        lambda policies: msgspec.structs.replace(
            policies, backlog_quota_map={**policies.backlog_quota_map, kind: quota}
        ),
    )


@delete(BASE + "/backlogQuota", query=("backlogQuotaType",))
async def remove_quota(call: Call) -> None:
    """Take back one of a namespace's backlog quotas."""
    kind = quota_type(call)
    await alter(
        call,
        lambda policies: msgspec.structs.replace(
            policies, backlog_quota_map={k: v for k, v in policies.backlog_quota_map.items() if k != kind}
        ),
    )
