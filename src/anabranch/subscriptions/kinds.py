"""Subscription kinds: the four ways to share one, by the numbers that Pulsar's protocol gives them."""

from enum import IntEnum


class SubscriptionKind(IntEnum):
    EXCLUSIVE = 0  # one consumer
    SHARED = 1  # each message to any consumer
    FAILOVER = 2  # one consumer, others stand by
    KEY_SHARED = 3  # each message to the consumer that has its key

    @property
    def is_individual(self) -> bool:
        """Whether messages are given out, and acknowledged, one by one."""
        return self in (SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED)
