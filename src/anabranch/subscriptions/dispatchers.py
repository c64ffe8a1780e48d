"""The dispatcher of each kind of subscription."""

from typing import TYPE_CHECKING

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.delaying import Delaying
from anabranch.subscriptions.dispatcher import Dispatcher
from anabranch.subscriptions.exclusive import Exclusive
from anabranch.subscriptions.failover import Failover
from anabranch.subscriptions.keyed_dispatch import KeyedDispatch
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.outstanding import Outstanding
from anabranch.subscriptions.shared_dispatch import SharedDispatch
from anabranch.subscriptions.single_active import SingleActive

if TYPE_CHECKING:
    from anabranch.subscriptions.subscription import Subscription


def dispatcher_for(of: "Subscription", kind: SubscriptionKind, first: Consumer) -> Dispatcher:
    """For consumers of that kind that share as the first one wants to."""
    reading, surroundings, settings = of.reading, of.surroundings, of.settings
    surroundings.source.splits = kind == SubscriptionKind.KEY_SHARED
    if kind == SubscriptionKind.EXCLUSIVE:
        return SingleActive(Exclusive(), reading, surroundings, of.wake, settings)
    if kind == SubscriptionKind.FAILOVER:
        policy = Failover(of.topic, of.partition_index)
        return SingleActive(policy, reading, surroundings, of.wake, settings)
    outstanding = Outstanding(reading, of.unacked)
    delaying = Delaying(of.delay)
    if kind == SubscriptionKind.SHARED:
        return SharedDispatch(reading, surroundings, outstanding, delaying, settings)
    return KeyedDispatch(first.key_sharing, reading, surroundings, outstanding, delaying, settings)
