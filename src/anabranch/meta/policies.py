"""Policies: what a namespace or a topic may be told, in Pulsar's own JSON, and what of it holds for a topic.

    broker's options  <  namespace's policies  <  topic's policies        the later wins, policy by policy

`NamespacePolicies` and `TopicPolicies` are documents: what is None was not said.  `meta/rules.py` says what
follows from all three for one topic, with nothing left open; whoever enforces something reads it there.

Policies that nothing here acts on (persistence, rates of replication, permissions) are kept as they were
given, so that whoever wrote them reads the same again.

Pulsar's conventions: a limit of 0 or below is none, a time or size of -1 is without end.
"""

from typing import Any, Literal

import msgspec
from msgspec import field

BACKLOG_SIZE = "destination_storage"
BACKLOG_AGE = "message_age"
BACKLOG_TYPES = (BACKLOG_SIZE, BACKLOG_AGE)
SUBSCRIPTION_TYPES = ("Exclusive", "Failover", "Shared", "Key_Shared")
SCHEMA_STRATEGIES = (
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)

BacklogAction = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
InactiveMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]


class RetentionPolicies(msgspec.Struct, frozen=True, rename="camel"):
    retention_time_in_minutes: int = 0
    retention_size_in_mb: int = field(default=0, name="retentionSizeInMB")


class BacklogQuota(msgspec.Struct, frozen=True, rename="camel"):
    """`limit` is what older clients call `limitSize`."""

    limit_size: int | None = None
    limit_time: int = -1
    policy: BacklogAction | None = None
    limit: int | None = None

    @property
    def limit_bytes(self) -> int:
        size = self.limit if self.limit_size is None else self.limit_size
        return -1 if size is None else size


class DispatchRate(msgspec.Struct, frozen=True, rename="camel"):
    dispatch_throttling_rate_in_msg: int = -1
    dispatch_throttling_rate_in_byte: int = -1
    relative_to_publish_rate: bool = False
    rate_period_in_second: int = 1


class PublishRate(msgspec.Struct, frozen=True, rename="camel"):
    publish_throttling_rate_in_msg: int = -1
    publish_throttling_rate_in_byte: int = -1


class SubscribeRate(msgspec.Struct, frozen=True, rename="camel"):
    subscribe_throttling_rate_per_consumer: int = -1
    rate_period_in_second: int = 30


class DelayedDeliveryPolicies(msgspec.Struct, frozen=True, rename="camel"):
    """`tick_time` is how exact Pulsar is; here delays are exact to the millisecond whatever it says."""

    active: bool = False
    tick_time: int = 1000
    max_delivery_delay_in_millis: int = 0


class InactiveTopicPolicies(msgspec.Struct, frozen=True, rename="camel"):
    inactive_topic_delete_mode: InactiveMode = "delete_when_no_subscriptions"
    max_inactive_duration_seconds: int = 0
    delete_while_inactive: bool = False


class AutoTopicCreationOverride(msgspec.Struct, frozen=True, rename="camel"):
    allow_auto_topic_creation: bool = False
    topic_type: Literal["partitioned", "non-partitioned", ""] | None = None  # Go's clients say "" for none
    default_num_partitions: int | None = None


class AutoSubscriptionCreationOverride(msgspec.Struct, frozen=True, rename="camel"):
    allow_auto_subscription_creation: bool = False


class AuthPolicies(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who may do what: roles and their actions, of a namespace and of topics; roles by subscription."""

    namespace_auth: dict[str, list[str]] = {}
    destination_auth: dict[str, dict[str, list[str]]] = {}
    subscription_auth_roles: dict[str, list[str]] = {}


class SubscriptionPolicies(msgspec.Struct, frozen=True, rename="camel"):
    """What was said for one subscription of a topic."""

    dispatch_rate: DispatchRate | None = None


class Bundles(msgspec.Struct, frozen=True, rename="camel"):
    boundaries: list[str] = []
    num_bundles: int = 0


class NamespacePolicies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Field names are Pulsar's.  The rates are by cluster, since a namespace may be in several."""

    auth_policies: AuthPolicies = AuthPolicies()
    replication_clusters: list[str] = []
    allowed_clusters: list[str] = []
    bundles: Bundles | None = None
    backlog_quota_map: dict[str, BacklogQuota] = {}
    topic_dispatch_rate: dict[str, DispatchRate] = field(default_factory=dict, name="topicDispatchRate")
    subscription_dispatch_rate: dict[str, DispatchRate] = field(
        default_factory=dict, name="subscriptionDispatchRate"
    )
    replicator_dispatch_rate: dict[str, DispatchRate] = field(
        default_factory=dict, name="replicatorDispatchRate"
    )
    cluster_subscribe_rate: dict[str, SubscribeRate] = field(
        default_factory=dict, name="clusterSubscribeRate"
    )
    publish_max_message_rate: dict[str, PublishRate] = field(
        default_factory=dict, name="publishMaxMessageRate"
    )
    deduplication_enabled: bool | None = field(default=None, name="deduplicationEnabled")
    deduplication_snapshot_interval_seconds: int | None = field(
        default=None, name="deduplicationSnapshotIntervalSeconds"
    )
    auto_topic_creation_override: AutoTopicCreationOverride | None = field(
        default=None, name="autoTopicCreationOverride"
    )
    auto_subscription_creation_override: AutoSubscriptionCreationOverride | None = field(
        default=None, name="autoSubscriptionCreationOverride"
    )
    message_ttl_in_seconds: int | None = None
    subscription_expiration_time_minutes: int | None = None
    retention_policies: RetentionPolicies | None = None
    encryption_required: bool = False
    delayed_delivery_policies: DelayedDeliveryPolicies | None = None
    inactive_topic_policies: InactiveTopicPolicies | None = None
    subscription_auth_mode: Literal["None", "Prefix"] = "None"
    anti_affinity_group: str | None = field(default=None, name="antiAffinityGroup")
    dispatcher_pause_on_ack_state_persistent_enabled: bool | None = field(
        default=None, name="dispatcherPauseOnAckStatePersistentEnabled"
    )
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_topics_per_namespace: int | None = None
    subscription_types_enabled: list[str] = []
    compaction_threshold: int | None = None
    persistence: dict[str, Any] | None = None
    offload_threshold: int = -1
    offload_threshold_in_seconds: int = -1
    schema_compatibility_strategy: str = "UNDEFINED"
    schema_auto_update_compatibility_strategy: str | None = None
    is_allow_auto_update_schema: bool | None = None
    schema_validation_enforced: bool = False
    properties: dict[str, str] = {}
    deleted: bool = False


class TopicPolicies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What was said for one topic alone; of all its partitions, if it has several."""

    backlog_quota_map: dict[str, BacklogQuota] = {}
    retention_policies: RetentionPolicies | None = None
    message_ttl_in_seconds: int | None = None
    deduplication_enabled: bool | None = None
    deduplication_snapshot_interval_seconds: int | None = None
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_message_size: int | None = None
    delayed_delivery_policies: DelayedDeliveryPolicies | None = None
    inactive_topic_policies: InactiveTopicPolicies | None = None
    publish_rate: PublishRate | None = None
    dispatch_rate: DispatchRate | None = None
    subscription_dispatch_rate: DispatchRate | None = None
    replicator_dispatch_rate: DispatchRate | None = None
    subscription_policies: dict[str, SubscriptionPolicies] = {}
    subscription_expiration_time_minutes: int | None = None
    auto_subscription_creation_override: AutoSubscriptionCreationOverride | None = None
    dispatcher_pause_on_ack_state_persistent_enabled: bool | None = None
    replication_clusters: list[str] | None = None
    subscribe_rate: SubscribeRate | None = None
    subscription_types_enabled: list[str] | None = None
    compaction_threshold: int | None = None
    persistence: dict[str, Any] | None = None
    schema_compatibility_strategy: str | None = None
    schema_validation_enforced: bool | None = None


NO_TOPIC_POLICIES = TopicPolicies()
