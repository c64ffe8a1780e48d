"""Unacked limits of shared and key_shared: who has too many messages gets no more until some are acked.

    a consumer        blocked from `max_per_consumer` on, until it is down to half of that
    the subscription  blocked from `max_per_subscription` on, until it is down to below half of that

Without the bounds a consumer that takes and never acknowledges would have the whole backlog marked as its
own.
"""

from collections.abc import Iterable

from anabranch.subscriptions.consumer import Consumer


class Unacked:
    __slots__ = ("_max_per_consumer", "_max_per_subscription", "is_blocked", "total")

    def __init__(self, max_per_consumer: int, max_per_subscription: int) -> None:
        """0 is no bound."""
        self._max_per_consumer = max_per_consumer
        self._max_per_subscription = max_per_subscription
        self.total = 0
        self.is_blocked = False

    def set_bounds(
        self, max_per_consumer: int, max_per_subscription: int, consumers: Iterable[Consumer]
    ) -> None:
        """Others apply from now on, to those too that have been delivered to."""
        self._max_per_consumer = max_per_consumer
        self._max_per_subscription = max_per_subscription
        self.is_blocked = 0 < max_per_subscription <= self.total
        for consumer in consumers:
            consumer.is_blocked = 0 < max_per_consumer <= consumer.unacked

    def room(self, consumer: Consumer) -> int:
        """How many more messages a consumer may have, at least 1: it would be blocked otherwise."""
        bound = self._max_per_consumer
        return max(bound - consumer.unacked, 1) if bound > 0 else consumer.permits

    def added(self, consumer: Consumer, messages: int) -> None:
        self.total += messages
        consumer.unacked += messages
        if 0 < self._max_per_consumer <= consumer.unacked:
            consumer.is_blocked = True
        if 0 < self._max_per_subscription <= self.total:
            self.is_blocked = True

    def removed(self, consumer: Consumer, messages: int) -> bool:
        """True if somebody was blocked and is not any more."""
        self.total -= messages
        consumer.unacked -= messages
        unblocked = False
        if consumer.is_blocked and consumer.unacked <= self._max_per_consumer // 2:
            consumer.is_blocked = False
            unblocked = True
        if self.is_blocked and self.total < max(self._max_per_subscription // 2, 1):
            self.is_blocked = False
            unblocked = True
        return unblocked
