"""A topic that stores nothing: a message goes to who is there, and is gone.

It has the interface of `Topic`.  Receipts say (0, 0), every message has that place; there is no seek, nothing
waits for the disk.  What nobody could take is counted, by subscription and in all.
"""

import asyncio
from collections.abc import Mapping, Sequence

from anabranch.base.errors import AnabranchError, TooLarge
from anabranch.base.ids import TopicName
from anabranch.base.rate_limit import RateLimit
from anabranch.base.rates import Meter
from anabranch.meta.image import AnyTopic
from anabranch.meta.rules import Rules
from anabranch.records.entries import Entry
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.errors import ConsumerBusy
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.topics.errors import (
    NotAllowed,
    NotEncrypted,
    ProducerBusy,
    ProducerClosed,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicBusy,
    TopicClosed,
)
from anabranch.topics.live_subscription import LiveSubscription
from anabranch.topics.producer import Joined, Producer
from anabranch.topics.producers import Producers
from anabranch.topics.publish import METADATA_BYTES, Published, Send
from anabranch.topics.settings import settings_of
from anabranch.topics.subscribe_rate import SubscribeRates
from anabranch.topics.subscribing import KIND_NAMES, Wanted
from anabranch.topics.surroundings import Surroundings

_NOWHERE = 0  # the entry id and the ledger of every message


class NonPersistentTopic:
    def __init__(self, name: TopicName, index: int, facts: AnyTopic, around: Surroundings) -> None:
        self.name = name
        self.index = index
        self.partition_index = index if facts.is_partitioned else -1
        self.full_name = name.partition(index).pulsar if facts.is_partitioned else name.pulsar
        self._around = around
        self.rules: Rules = around.catalog.rules(name)
        self.opened_ms = around.clock.now_ms()
        self.active_s = around.clock.monotonic()
        self.producers = Producers(self.full_name, None, self._forget_epoch)
        self.subscriptions: dict[str, LiveSubscription] = {}
        self.messages_in = self.bytes_in = self.messages_dropped = 0
        self.meter = Meter(3, around.clock.monotonic())
        self._is_moving = True
        self._rates = SubscribeRates(around.clock)
        self._limit: RateLimit | None = None
        self._refuse: TopicClosed | None = None
        self._follow_rules()

    async def _forget_epoch(self, epoch: int) -> None:
        """It does not outlive the broker."""

    # --- producing

    async def add_producer(self, producer: Producer) -> Joined:
        if self._refuse is not None:
            raise self._refuse
        most = self.rules.max_producers
        if most is not None and len(self.producers) >= most and self.producers.named(producer.name) is None:
            raise ProducerBusy(f"Topic '{self.full_name}' reached max producers limit")
        if self.rules.encryption_required and not producer.is_encrypted:
            raise NotAllowed(f"Encryption is required in {self.full_name}")
        epoch = await self.producers.join(producer)
        producer.meter = Meter(2, self._around.clock.monotonic())
        return Joined(-1, epoch)

    def remove_producer(self, producer: Producer) -> None:
        """Nothing if it is not here."""
        self.producers.leave(producer)

    def publish(self, producer: Producer, sends: Sequence[Send]) -> Published:
        error: AnabranchError | None = self._refuse
        if error is None and producer.is_closed:
            error = ProducerClosed("the producer is closed; open it again")
        if error is not None:
            return Published([], _NOWHERE, None, error, 0.0)
        entries: list[Entry] = []
        for send in sends:
            if len(send.payload) > self.rules.max_message_bytes + METADATA_BYTES:
                error = TooLarge(f"the message is {len(send.payload)} bytes, the limit is below that")
                break
            if self.rules.encryption_required and not send.is_encrypted:
                error = NotEncrypted()
                break
            payload = memoryview(bytes(send.payload))  # its buffer is used again, consumers may be slow
            entries.append(Entry(_NOWHERE, send.messages, _NOWHERE, send.publish_time_ms, payload))
        if entries:
            self._dispatch(producer, entries)
        pause_s = 0.0 if self._limit is None else self._limit.wait_s()
        return Published([_NOWHERE] * len(entries), _NOWHERE, None, error, pause_s)

    def _dispatch(self, producer: Producer, entries: list[Entry]) -> None:
        messages = sum([entry.count for entry in entries])
        size = sum([len(entry.payload) for entry in entries])
        self.messages_in += messages
        self.bytes_in += size
        producer.messages_in += messages
        producer.bytes_in += size
        if self._limit is not None:
            self._limit.take(messages, size)
        for subscription in self.subscriptions.values():
            before = subscription.messages_dropped
            subscription.publish(entries)
            self.messages_dropped += subscription.messages_dropped - before
        if not self.subscriptions:
            self.messages_dropped += messages

    # --- subscribing

    async def attach(self, consumer: Consumer, wanted: Wanted) -> LiveSubscription:
        if self._refuse is not None:
            raise self._refuse
        kind = SubscriptionKind(wanted.kind)
        rules = self.rules
        if consumer.reads_compacted:
            raise NotAllowed("readCompacted only valid on persistent topics")
        if KIND_NAMES[kind] not in rules.subscription_types:
            raise NotAllowed(f"Topic[{self.full_name}] doesn't support {KIND_NAMES[kind]} sub type!")
        attached = sum([len(each.consumers) for each in self.subscriptions.values()])
        if rules.max_consumers is not None and attached >= rules.max_consumers:
            raise ConsumerBusy("Topic reached max consumers limit")
        if not self._rates.take(consumer, rules.subscribe_rate, rules.subscribe_period_s):
            raise NotAllowed(
                "the consumer subscribes more often than its subscribe rate allows; try again later"
            )
        subscription = await self.create_subscription(wanted.subscription, from_earliest=False)
        try:
            subscription.attach(consumer, kind)
        finally:
            self._drop_if_unused(subscription)
        return subscription

    async def create_subscription(
        self, name: str, *, from_earliest: bool, properties: Mapping[str, str] | None = None
    ) -> LiveSubscription:
        """The subscription of that name; it is there as long as somebody is attached."""
        found = self.subscriptions.get(name)
        if found is None:
            most = self.rules.max_subscriptions
            if most is not None and len(self.subscriptions) >= most:
                raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {self.full_name}")
            found = LiveSubscription(
                name, self.full_name, self.partition_index, settings_of(self.rules), self._around.clock.now_ms
            )
            self.subscriptions[name] = found
        return found

    async def detach(self, subscription: LiveSubscription, consumer: Consumer) -> None:
        """A consumer is gone.  Nothing if it was not attached."""
        subscription.detach(consumer)
        self._drop_if_unused(subscription)

    def _drop_if_unused(self, subscription: LiveSubscription) -> None:
        if not subscription.consumers and self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]

    async def unsubscribe(self, name: str, *, force: bool = False, consumer: Consumer | None = None) -> None:
        """Send its consumers away.  SubscriptionBusy if there are others than the one who asks."""
        found = self.subscriptions.get(name)
        if found is None:
            raise SubscriptionNotFound(f"Subscription {name} of topic {self.full_name} does not exist")
        if not force and any(one is not consumer for one in found.consumers):
            raise SubscriptionBusy("Subscription has active connected consumers")
        if consumer is not None:
            found.detach(consumer)
        found.close()
        self.subscriptions.pop(name, None)

    async def seek(self, subscription: LiveSubscription, offset: int) -> None:
        """There is nowhere to go."""

    async def save(self, subscription: LiveSubscription) -> None:
        """There is nothing to keep."""

    def mark_delete_position(self, subscription: LiveSubscription) -> tuple[int, int]:
        return -1, -1

    async def offset_for_time(self, timestamp_ms: int, *, compacted: bool = False) -> int:
        return 0

    def last_message(self, *, compacted: bool = False) -> tuple[int, int, int]:
        return -1, -1, -1

    # --- rules and the end

    def rules_changed(self) -> None:
        rules = self._around.catalog.rules(self.name)
        if rules != self.rules:
            self.rules = rules
            self._follow_rules()
            for subscription in self.subscriptions.values():
                subscription.settings = settings_of(rules)

    def _follow_rules(self) -> None:
        rate = self.rules.publish_rate
        self._limit = None
        if rate.is_limited:
            self._limit = RateLimit(self._around.clock, rate.messages or 0, rate.bytes or 0, rate.period_s)

    @property
    def is_active(self) -> bool:
        """Whether it is not to be deleted for want of use."""
        return self.partition_index >= 0 or bool(len(self.producers)) or bool(self.subscriptions)

    def was_used(self) -> bool:
        return False

    def keeps_data(self, now_s: float) -> bool:
        return False

    def check_unused(self) -> None:
        """TopicBusy if somebody uses it."""
        if len(self.producers) or self.subscriptions:
            raise TopicBusy("Topic has connected producers or consumers")

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Nobody stays."""
        self._refuse = TopicClosed(f"{self.full_name} is not served here any more; look it up again")
        self.producers.close_all(self._refuse)
        for subscription in list(self.subscriptions.values()):
            subscription.close()
        self.subscriptions.clear()

    def look(self, now_s: float) -> bool:
        """Work out rates.  False if nothing has moved for a while."""
        for producer in self.producers:
            producer.look(now_s)
        self._is_moving = self.meter.look((self.messages_in, self.bytes_in, self.messages_dropped), now_s)
        return self._is_moving

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to look at."""
        return not (self._is_moving or len(self.producers) or self.subscriptions)

    async def tend(self) -> None:
        await asyncio.sleep(0)
