"""Subscription settings that follow from the rules of a topic."""

from anabranch.meta.rules import Rules
from anabranch.subscriptions.settings import SubscriptionSettings


def settings_of(rules: Rules) -> SubscriptionSettings:
    return SubscriptionSettings(
        max_unacked_per_consumer=rules.max_unacked_per_consumer or 0,
        max_unacked_per_subscription=rules.max_unacked_per_subscription or 0,
        max_consumers=rules.max_consumers_per_subscription or 0,
        failover_delay_ms=rules.failover_delay_ms,
        delays_delivery=rules.delayed_delivery,
    )
