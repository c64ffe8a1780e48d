"""Broker, namespace, topic: the nearest that says something is right."""

from typing import Any

import msgspec
import pytest

from anabranch.base.config import section
from anabranch.meta.policies import (
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
    TopicPolicies,
)
from anabranch.meta.policy_defaults import PolicyDefaults
from anabranch.meta.rules import Quota, Rate, auto_creation_of, log_retention, rules_of

PLAIN = PolicyDefaults()


def namespace(**policies: Any) -> NamespacePolicies:
    return NamespacePolicies(**policies)


def topic(**policies: Any) -> TopicPolicies:
    return TopicPolicies(**policies)


def test_what_holds_if_nobody_says_anything() -> None:
    rules = rules_of(PLAIN, namespace())
    assert (rules.retention_ms, rules.message_ttl_s, rules.max_producers) == (None, None, None)
    assert (rules.max_unacked_per_consumer, rules.max_unacked_per_subscription) == (50_000, 200_000)
    assert rules.backlog_size == Quota(None, "producer_request_hold") == rules.backlog_age
    assert rules.delayed_delivery
    assert (rules.delete_inactive, rules.delete_inactive_after_s) == (True, 60)
    assert not rules.publish_rate.is_limited
    assert not rules.deduplication
    assert rules.subscription_types == {"Exclusive", "Failover", "Shared", "Key_Shared"}
    assert rules.max_message_bytes == 5 << 20
    assert rules == rules_of(PLAIN, namespace(), topic())


@pytest.mark.parametrize(
    ("option", "policy", "rule"),
    [
        ("maxProducersPerTopic", "max_producers_per_topic", "max_producers"),
        ("maxConsumersPerTopic", "max_consumers_per_topic", "max_consumers"),
        ("maxConsumersPerSubscription", "max_consumers_per_subscription", "max_consumers_per_subscription"),
        ("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", "max_subscriptions"),
        ("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer", "max_unacked_per_consumer"),
        (
            "maxUnackedMessagesPerSubscription",
            "max_unacked_messages_per_subscription",
            "max_unacked_per_subscription",
        ),
        ("ttlDurationDefaultInSeconds", "message_ttl_in_seconds", "message_ttl_s"),
    ],
)
def test_limits(option: str, policy: str, rule: str) -> None:
    defaults = section(PolicyDefaults, {option: "7"})
    assert getattr(rules_of(defaults, namespace()), rule) == 7
    assert getattr(rules_of(defaults, namespace(**{policy: 5})), rule) == 5
    assert getattr(rules_of(defaults, namespace(**{policy: 5}), topic(**{policy: 3})), rule) == 3
    assert getattr(rules_of(defaults, namespace(**{policy: 0})), rule) is None  # said: no limit
    assert getattr(rules_of(defaults, namespace(**{policy: 5}), topic(**{policy: 0})), rule) is None


def test_deduplication_can_be_switched_off_again() -> None:
    defaults = section(PolicyDefaults, {"brokerDeduplicationEnabled": "true"})
    assert rules_of(defaults, namespace()).deduplication
    assert not rules_of(defaults, namespace(deduplication_enabled=False)).deduplication
    on = topic(deduplication_enabled=True)
    assert rules_of(defaults, namespace(deduplication_enabled=False), on).deduplication


def test_backlog_quotas_are_by_kind() -> None:
    size = BacklogQuota(limit_size=100, policy="producer_exception")
    age = BacklogQuota(limit_time=60, policy="consumer_backlog_eviction")
    rules = rules_of(PLAIN, namespace(backlog_quota_map={"destination_storage": size, "message_age": age}))
    assert rules.backlog_size == Quota(100, "producer_exception")
    assert rules.backlog_age == Quota(60, "consumer_backlog_eviction")
    own = topic(backlog_quota_map={"destination_storage": BacklogQuota(limit=7, policy="producer_exception")})
    rules = rules_of(PLAIN, namespace(backlog_quota_map={"message_age": age}), own)
    assert (rules.backlog_size.limit, rules.backlog_age.limit) == (7, 60)
    by_option = section(PolicyDefaults, {"backlogQuotaDefaultLimitGB": "0.5"})
    assert rules_of(by_option, namespace()).backlog_size.limit == 1 << 29


def test_rates() -> None:
    own = topic(publish_rate=PublishRate(5, -1), dispatch_rate=DispatchRate(1, 2, True, 10))
    policies = namespace(
        publish_max_message_rate={"standalone": PublishRate(9, 9), "elsewhere": PublishRate(1, 1)},
        subscription_dispatch_rate={"standalone": DispatchRate(0, 3)},
        cluster_subscribe_rate={"standalone": SubscribeRate(4, 20)},
    )
    rules = rules_of(PLAIN, policies, own)
    assert rules.publish_rate == Rate(5, None)
    assert rules.dispatch_rate == Rate(1, 2, 10, True)
    assert rules.subscription_dispatch_rate == Rate(None, 3)
    assert (rules.subscribe_rate, rules.subscribe_period_s) == (4, 20)
    assert rules_of(PLAIN, policies).publish_rate == Rate(9, 9)
    assert rules_of(PLAIN, policies, cluster="elsewhere").publish_rate == Rate(1, 1)


def test_delay_and_inactivity() -> None:
    policies = namespace(
        delayed_delivery_policies=DelayedDeliveryPolicies(False, 5, 70),
        inactive_topic_policies=InactiveTopicPolicies("delete_when_subscriptions_caught_up", 9, True),
        auto_subscription_creation_override=AutoSubscriptionCreationOverride(False),
        subscription_types_enabled=["Shared"],
        encryption_required=True,
    )
    rules = rules_of(PLAIN, policies)
    assert (rules.delayed_delivery, rules.max_delay_ms) == (False, 70)
    assert rules.delete_inactive_mode == "delete_when_subscriptions_caught_up"
    assert (rules.delete_inactive_after_s, rules.auto_create_subscriptions) == (9, False)
    assert rules.subscription_types == {"Shared"}
    assert rules.encryption_required


@pytest.mark.parametrize(
    ("minutes", "megabytes", "overrides"),
    [
        (-1, -1, ("-1", "-1")),
        (10, -1, ("600000", "-1")),
        (-1, 2, ("-1", "2097152")),
        (10, 2, ("600000", "2097152")),
        (0, 0, ("0", "0")),
        (10, 0, ("0", "0")),
    ],
)
def test_retention_as_a_log_is_told(minutes: int, megabytes: int, overrides: tuple[str, str]) -> None:
    said = RetentionPolicies(minutes, megabytes)
    for log in (
        log_retention(PLAIN, namespace(retention_policies=said), None),
        log_retention(PLAIN, namespace(), topic(retention_policies=said)),
        log_retention(
            PLAIN, namespace(retention_policies=RetentionPolicies(1, 1)), topic(retention_policies=said)
        ),
    ):
        assert (log["retention.ms"], log["retention.bytes"]) == overrides


def test_without_a_policy_the_log_has_its_own_retention() -> None:
    assert log_retention(PLAIN, namespace(), None) == {}
    by_option = section(PolicyDefaults, {"defaultRetentionTimeInMinutes": "1"})
    assert log_retention(by_option, namespace(), None) == {"retention.ms": "60000", "retention.bytes": "-1"}


def test_creation_by_use() -> None:
    assert auto_creation_of(PLAIN, namespace()) == (True, None)
    many = section(PolicyDefaults, {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "3"})
    assert auto_creation_of(many, namespace()) == (True, 3)
    off = namespace(auto_topic_creation_override=AutoTopicCreationOverride(False))
    assert auto_creation_of(many, off) == (False, 3)
    own = namespace(auto_topic_creation_override=AutoTopicCreationOverride(True, "partitioned", 5))
    assert auto_creation_of(PLAIN, own) == (True, 5)


def test_policies_are_pulsars_json() -> None:
    text = (
        b'{"retention_policies":{"retentionTimeInMinutes":3,"retentionSizeInMB":4},"replication_clusters":["c"],'
        b'"bundles":{"boundaries":["0x00000000","0xffffffff"],"numBundles":1},"message_ttl_in_seconds":9,'
        b'"backlog_quota_map":{"destination_storage":{"limit":7,"policy":"producer_exception"}},'
        b'"publishMaxMessageRate":{"c":{"publishThrottlingRateInMsg":3,"publishThrottlingRateInByte":-1}},'
        b'"deduplicationEnabled":true,"something_new":1}'
    )
    policies = msgspec.json.decode(text, type=NamespacePolicies)
    assert policies.retention_policies == RetentionPolicies(3, 4)
    assert policies.backlog_quota_map["destination_storage"].limit_bytes == 7
    assert policies.deduplication_enabled
    assert msgspec.json.decode(msgspec.json.encode(policies), type=NamespacePolicies) == policies
