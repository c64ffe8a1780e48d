"""Policy defaults: what holds for topics unless their namespace or they say otherwise.

Names and defaults are Pulsar's, except for retention: Pulsar drops what every subscription has acked
at once, unless told otherwise.  Here the same log serves Kafka clients, whose default is a week, so that the
log's own retention holds until somebody sets one the Pulsar way, by policy or by these options.

Pulsar fixes many of these at the start; here all of them may change while a broker runs.
"""

from dataclasses import dataclass
from typing import Any

from anabranch.base.config import Kind, Option, at_least, one_of, option, same_option, some_of
from anabranch.meta.policies import SCHEMA_STRATEGIES, SUBSCRIPTION_TYPES, BacklogAction, InactiveMode

_BYTES_IN_GIGABYTE = 1 << 30

INACTIVE_FREQUENCY = Option(
    "brokerDeleteInactiveTopicsFrequencySeconds",
    Kind.INT,
    60,
    "How often inactive topics are looked for.",
    at_least(1),
    dynamic=True,
)


def _flag(name: str, default: bool, doc: str) -> Any:
    return option(name, Kind.BOOLEAN, default, None, doc, dynamic=True)


def _number(name: str, doc: str, default: int = 0) -> Any:
    """0 or more."""
    return option(name, Kind.INT, default, at_least(0), doc, dynamic=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDefaults:
    allow_auto_topic_creation: bool = _flag(
        "allowAutoTopicCreation",
        True,
        "Whether a Pulsar producer or consumer of a topic that is not there creates it.",
    )
    allow_auto_topic_creation_type: str = option(
        "allowAutoTopicCreationType",
        Kind.STRING,
        "non-partitioned",
        one_of("partitioned", "non-partitioned"),
        "What kind of topic is created so.",
        dynamic=True,
    )
    default_num_partitions: int = option(
        "defaultNumPartitions",
        Kind.INT,
        1,
        at_least(1),
        "Partitions of a partitioned topic that is created so.",
        dynamic=True,
    )
    max_num_partitions: int = _number(
        "maxNumPartitionsPerPartitionedTopic",
        "Partitions that a Pulsar topic may have; 0 sets no limit.",
    )
    allow_auto_subscription_creation: bool = _flag(
        "allowAutoSubscriptionCreation",
        True,
        "Whether a consumer of a subscription that is not there creates it.",
    )
    schema_compatibility_strategy: str = option(
        "schemaCompatibilityStrategy",
        Kind.STRING,
        "FULL",
        one_of(*SCHEMA_STRATEGIES),
        "How far a new schema may differ from those that a Pulsar topic has.",
        dynamic=True,
    )
    allow_auto_update_schema: bool = _flag(
        "isAllowAutoUpdateSchemaEnabled",
        True,
        "Whether a producer that brings a new schema adds it to its topic.",
    )
    schema_validation_enforced: bool = _flag(
        "isSchemaValidationEnforced",
        False,
        "Whether producers without a schema are refused at topics that have one.",
    )
    deduplication_enabled: bool = _flag(
        "brokerDeduplicationEnabled",
        False,
        "Whether what a Pulsar producer sends again, by its name and sequence id, is stored once.",
    )
    ttl_s: int = _number(
        "ttlDurationDefaultInSeconds",
        "Subscriptions skip messages that are older; 0 never.",
    )
    subscription_expiration_minutes: int = _number(
        "subscriptionExpirationTimeMinutes",
        "A subscription without consumers for this long is deleted; 0 never.",
    )
    retention_time_minutes: int | None = option(
        "defaultRetentionTimeInMinutes",
        Kind.INT,
        None,
        at_least(-1),
        "How long messages that every subscription has acknowledged are kept; unset, the log's own "
        "retention decides.",
        dynamic=True,
    )
    retention_size_mb: int | None = option(
        "defaultRetentionSizeInMB",
        Kind.LONG,
        None,
        at_least(-1),
        "How much of what every subscription has acknowledged is kept, a partition; unset, the log's own "
        "retention decides.",
        dynamic=True,
    )
    backlog_limit_bytes: int = option(
        "backlogQuotaDefaultLimitBytes",
        Kind.LONG,
        -1,
        None,
        "Size of a backlog beyond which the quota's policy applies; below 0 sets no limit.",
        dynamic=True,
    )
    backlog_limit_gb: float = option(
        "backlogQuotaDefaultLimitGB",
        Kind.DOUBLE,
        -1.0,
        None,
        "The same in GiB, if it is not given in bytes.",
        dynamic=True,
    )
    backlog_limit_s: int = option(
        "backlogQuotaDefaultLimitSecond",
        Kind.INT,
        -1,
        None,
        "Age of a backlog's oldest message beyond which the quota's policy applies; below 0 sets no limit.",
        dynamic=True,
    )
    backlog_action: BacklogAction = option(  # noqa: RUF009
        "backlogQuotaDefaultRetentionPolicy",
        Kind.STRING,
        "producer_request_hold",
        one_of("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
        "Beyond a backlog quota producers wait, or they fail, or the oldest messages are skipped.",
        dynamic=True,
    )
    max_producers_per_topic: int = _number(
        "maxProducersPerTopic",
        "Producers of a topic; 0 sets no limit.",
    )
    max_consumers_per_topic: int = _number(
        "maxConsumersPerTopic",
        "Consumers of a topic; 0 sets no limit.",
    )
    max_consumers_per_subscription: int = _number(
        "maxConsumersPerSubscription",
        "Consumers of a subscription; 0 sets no limit.",
    )
    max_subscriptions_per_topic: int = _number(
        "maxSubscriptionsPerTopic",
        "Subscriptions of a topic; 0 sets no limit.",
    )
    max_topics_per_namespace: int = _number(
        "maxTopicsPerNamespace",
        "Topics, partitions counted, of a namespace; 0 sets no limit.",
    )
    max_unacked_per_consumer: int = _number(
        "maxUnackedMessagesPerConsumer",
        "Messages that a consumer may leave without an ack before it gets no more; 0 sets no limit.",
        default=50_000,
    )
    max_unacked_per_subscription: int = _number(
        "maxUnackedMessagesPerSubscription",
        "The same for all consumers of a shared subscription together; 0 sets no limit.",
        default=200_000,
    )
    delayed_delivery_enabled: bool = _flag(
        "delayedDeliveryEnabled",
        True,
        "Whether a message is kept back until the time its producer asks for.",
    )
    delayed_delivery_max_ms: int = option(
        "delayedDeliveryMaxDelayInMillis",
        Kind.LONG,
        0,
        at_least(0),
        "Longest delay that a producer may ask for; 0 sets no limit.",
        dynamic=True,
    )
    delete_inactive: bool = _flag(
        "brokerDeleteInactiveTopicsEnabled",
        True,
        "Whether topics that Pulsar clients created by using them go when nobody uses them any more.",
    )
    delete_inactive_frequency_s: int = same_option(INACTIVE_FREQUENCY)
    delete_inactive_mode: InactiveMode = option(  # noqa: RUF009
        "brokerDeleteInactiveTopicsMode",
        Kind.STRING,
        "delete_when_no_subscriptions",
        one_of("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
        "When a topic without producers and consumers counts as inactive.",
        dynamic=True,
    )
    delete_inactive_after_s: int | None = option(
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        Kind.INT,
        None,
        at_least(1),
        "How long a topic is inactive before it goes; unset, as long as the looking for them takes turns.",
        dynamic=True,
    )
    publish_rate_msg: int = option(
        "maxPublishRatePerTopicInMessages",
        Kind.INT,
        0,
        None,
        "Messages a second that a topic takes from Pulsar producers; 0 sets no limit.",
        dynamic=True,
    )
    publish_rate_bytes: int = option(
        "maxPublishRatePerTopicInBytes", Kind.LONG, 0, None, "The same in bytes.", dynamic=True
    )
    dispatch_rate_msg: int = option(
        "dispatchThrottlingRatePerTopicInMsg",
        Kind.INT,
        0,
        None,
        "Messages a second that a topic gives to Pulsar consumers; 0 sets no limit.",
        dynamic=True,
    )
    dispatch_rate_bytes: int = option(
        "dispatchThrottlingRatePerTopicInByte", Kind.LONG, 0, None, "The same in bytes.", dynamic=True
    )
    subscription_rate_msg: int = option(
        "dispatchThrottlingRatePerSubscriptionInMsg",
        Kind.INT,
        0,
        None,
        "Messages a second that a subscription gives to its consumers; 0 sets no limit.",
        dynamic=True,
    )
    subscription_rate_bytes: int = option(
        "dispatchThrottlingRatePerSubscriptionInByte", Kind.LONG, 0, None, "The same in bytes.", dynamic=True
    )
    subscribe_rate: int = option(
        "subscribeThrottlingRatePerConsumer",
        Kind.INT,
        0,
        None,
        "How often a consumer may subscribe in `subscribeRatePeriodPerConsumerInSecond`; 0 sets no limit.",
        dynamic=True,
    )
    subscribe_rate_period_s: int = option(
        "subscribeRatePeriodPerConsumerInSecond",
        Kind.INT,
        30,
        at_least(1),
        "The time that `subscribeThrottlingRatePerConsumer` is about.",
        dynamic=True,
    )
    subscription_types: tuple[str, ...] = option(
        "subscriptionTypesEnabled",
        Kind.LIST,
        SUBSCRIPTION_TYPES,
        some_of(*SUBSCRIPTION_TYPES),
        "Kinds of subscription that consumers may ask for.",
        dynamic=True,
    )
    compaction_threshold_bytes: int = option(
        "brokerServiceCompactionThresholdInBytes",
        Kind.LONG,
        0,
        at_least(0),
        "A Pulsar topic is compacted when so much came in since it last was; 0 never by itself.",
        dynamic=True,
    )
    compaction_keeps_keyless: bool = _flag(
        "topicCompactionRetainNullKey",
        False,
        "Whether messages without a key stay when a Pulsar topic is compacted.",
    )
    failover_delay_ms: int = _number(
        "activeConsumerFailoverDelayTimeMillis",
        "How long a failover subscription waits for acks under way before another consumer goes on.",
        default=1000,
    )
    max_message_bytes: int = option(
        "maxMessageSize",
        Kind.INT,
        5 << 20,
        at_least(1),
        "Largest message of a Pulsar producer, metadata included.",
    )

    @property
    def backlog_size_limit(self) -> int:
        """In bytes, by whichever option says it."""
        if self.backlog_limit_bytes > 0 or self.backlog_limit_gb <= 0:
            return self.backlog_limit_bytes
        return int(self.backlog_limit_gb * _BYTES_IN_GIGABYTE)
