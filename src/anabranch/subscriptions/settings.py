"""Subscription settings: limits and delays, by Pulsar's names for them.

The defaults are Pulsar's.  0 means no limit.
"""

from typing import NamedTuple


class SubscriptionSettings(NamedTuple):
    max_unacked_per_consumer: int = 50_000  # maxUnackedMessagesPerConsumer
    max_unacked_per_subscription: int = 200_000  # maxUnackedMessagesPerSubscription
    max_consumers: int = 0  # maxConsumersPerSubscription
    failover_delay_ms: int = 1_000  # activeConsumerFailoverDelayTimeMillis
    round_robin_messages: int = 20  # dispatcherMaxRoundRobinBatchSize
    look_ahead_per_consumer: int = 2_000  # keySharedLookAheadMsgInReplayThresholdPerConsumer
    look_ahead_per_subscription: int = 20_000  # keySharedLookAheadMsgInReplayThresholdPerSubscription
    hash_points: int = 100  # subscriptionKeySharedConsistentHashingReplicaPoints
    delays_delivery: bool = True  # delayedDeliveryEnabled
