"""The dispatcher of each kind of subscription."""

from typing import TYPE_CHECKING

from anabranch.subscriptions.dispatcher import Dispatcher
from anabranch.subscriptions.exclusive import Exclusive
from anabranch.subscriptions.failover import Failover
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.shared_dispatch import SharedDispatch
from anabranch.subscriptions.single_active import SingleActive

if TYPE_CHECKING:
    from anabranch.subscriptions.subscription import Subscription


def dispatcher_for(of: "Subscription", kind: SubscriptionKind) -> Dispatcher:
    settings = of.settings
    if kind == SubscriptionKind.EXCLUSIVE:
        return SingleActive(Exclusive(), of.reading, of.surroundings, of.wake, 0)
    if kind == SubscriptionKind.FAILOVER:
        policy = Failover(of.topic, of.partition_index)
        return SingleActive(policy, of.reading, of.surroundings, of.wake, settings.failover_delay_ms)
    delay = of.delay if settings.delays_delivery else None
    return SharedDispatch(of.reading, of.surroundings, of.unacked, delay, settings.round_robin_messages)
