"""A subscription of a topic that stores nothing: who is there and has room gets a message, others miss it.

    exclusive, failover   the active consumer
    shared                whoever is next and has permits
    key_shared            the consumer that has the key, if it has permits

It has the interface of `subscriptions.Subscription`, as connections use it, and nothing behind it: no cursor,
no redelivery.  What is missed is counted, in messages.
"""

from collections.abc import Callable, Sequence

from anabranch.records.entries import Entry
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.channel import Delivery
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.delaying import metadata_of
from anabranch.subscriptions.errors import (
    ConsumerBusy,
    ConsumerGone,
    InvalidPermits,
    SubscriptionTypeMismatch,
)
from anabranch.subscriptions.exclusive import Exclusive
from anabranch.subscriptions.failover import Failover
from anabranch.subscriptions.hash_ranges import HashRing, KeyOwners, StickyRanges
from anabranch.subscriptions.key_hash import key_of
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.shared import RoundRobin
from anabranch.subscriptions.subscription import MAX_PERMITS

Deliveries = dict[Consumer, list[Delivery]]


class LiveSubscription:
    def __init__(
        self,
        name: str,
        topic: str,
        partition_index: int,
        settings: SubscriptionSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self.kind: SubscriptionKind | None = None
        self.settings = settings
        self.consumers: list[Consumer] = []
        self.messages_dropped = 0
        self.messages_out = self.bytes_out = 0
        self._topic = topic
        self._partition_index = partition_index
        self._now_ms = now_ms
        self._policy: Exclusive | Failover | None = None
        self._active: Consumer | None = None
        self._round_robin = RoundRobin()
        self._owners: KeyOwners | None = None
        self._is_closed = False

    # --- who is attached

    def attach(self, consumer: Consumer, kind: SubscriptionKind) -> None:
        """ConsumerBusy, SubscriptionTypeMismatch."""
        if self._is_closed:
            raise ConsumerGone(f"subscription {self.name} is closed; look the topic up again")
        if self.consumers and kind != self.kind:
            raise SubscriptionTypeMismatch("Subscription is of different type")
        if 0 < self.settings.max_consumers <= len(self.consumers):
            raise ConsumerBusy("Subscription reached max consumers limit")
        if not self.consumers:
            self._begin(consumer, kind)
        if self._policy is not None:
            self._policy.check(self.consumers)
        elif self._owners is not None:
            self._owners.add(consumer)
        else:
            self._round_robin.add(consumer)
        self.consumers.append(consumer)
        consumer.is_attached = True
        if not self._elect() and self._policy is not None and self._policy.is_told:
            consumer.channel.active_changed(consumer, self._active is consumer)

    def _begin(self, consumer: Consumer, kind: SubscriptionKind) -> None:
        self.kind = kind
        self._round_robin = RoundRobin()
        self._policy = self._owners = None
        if kind == SubscriptionKind.EXCLUSIVE:
            self._policy = Exclusive()
        elif kind == SubscriptionKind.FAILOVER:
            self._policy = Failover(self._topic, self._partition_index)
        elif kind == SubscriptionKind.KEY_SHARED:
            is_sticky = consumer.key_sharing.ranges is not None
            self._owners = StickyRanges() if is_sticky else HashRing(self.settings.hash_points)

    def _elect(self) -> bool:
        """Whether another consumer is active now; all are told then."""
        chosen = None if self._policy is None else self._policy.choose(self.consumers)
        if chosen is self._active:
            return False
        self._active = chosen
        if self._policy is not None and self._policy.is_told:
            for consumer in self.consumers:
                consumer.channel.active_changed(consumer, consumer is chosen)
        return True

    def detach(self, consumer: Consumer) -> None:
        """Nothing if it is not attached."""
        if consumer not in self.consumers:
            return
        consumer.is_attached = False
        self.consumers.remove(consumer)
        if self._owners is not None:
            self._owners.remove(consumer)
        elif self._policy is None:
            self._round_robin.remove(consumer)
        self._elect()

    def close(self) -> None:
        """Send everybody away, for good."""
        self._is_closed = True
        for consumer in list(self.consumers):
            self.detach(consumer)
            consumer.channel.disconnect(consumer)

    # --- what consumers say

    def flow(self, consumer: Consumer, permits: int) -> None:
        """InvalidPermits if the number is none that a client can mean."""
        if permits <= 0 or consumer.permits + permits > MAX_PERMITS:
            raise InvalidPermits(f"{permits} permits, with {consumer.permits} given before")
        consumer.permits += permits
        consumer.last_flow_ms = self._now_ms()

    def ack(self, consumer: Consumer, acks: Sequence[Ack], *, cumulative: bool) -> None:
        """Nothing is kept that it could be about."""
        consumer.last_acked_ms = self._now_ms()

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None, epoch: int = -1) -> None:
        """Nothing is kept that could be delivered again."""

    def resume(self, consumer: Consumer) -> None:
        """The next message finds it writable."""

    def backlog(self) -> int:
        return 0

    # --- messages

    def publish(self, entries: Sequence[Entry]) -> None:
        """Deliver to whoever has room; the rest is missed."""
        out: Deliveries = {}
        for entry in entries:
            consumer = self._taker(entry)
            if consumer is None:
                self.messages_dropped += entry.count
                continue
            consumer.permits -= entry.count
            out.setdefault(consumer, []).append(Delivery(entry, 0, None))
        now_ms = self._now_ms()
        for consumer, deliveries in out.items():
            messages = sum([delivery.entry.count for delivery in deliveries])
            size = sum([len(delivery.entry.payload) for delivery in deliveries])
            consumer.messages_out += messages
            consumer.bytes_out += size
            consumer.last_sent_ms = now_ms
            self.messages_out += messages
            self.bytes_out += size
            consumer.channel.deliver(consumer, deliveries)

    def _taker(self, entry: Entry) -> Consumer | None:
        active = self._active
        if self._policy is not None:
            return active if active is not None and active.can_take() else None
        if self._owners is None:
            return self._round_robin.next()
        owner = self._owners.owner(self._owners.hash_of(key_of(metadata_of(entry))))
        return owner if owner is not None and owner.can_take() else None
