"""The subscriptions of one topic: found or made, attached to, kept, deleted.

    durable       a `DurableCursor` in the store, there as long as nobody deletes it
    not durable   a cursor in memory, gone with its last consumer (readers)

What waits for the store (making, attaching the first consumer, deleting) happens one after the other for
each name; everything else is done at once.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from anabranch.base.errors import AnabranchError
from anabranch.base.turns import Turns
from anabranch.partition.entries import EntryReader
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.delay import Delays
from anabranch.subscriptions.durable import CursorName, DurableCursor, SubscriptionDocument, SubscriptionGone
from anabranch.subscriptions.errors import ConsumerBusy
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.subscription import Subscription
from anabranch.subscriptions.surroundings import Surroundings as Around
from anabranch.topics.compacted_entries import CompactedEntries
from anabranch.topics.dispatch_limits import DispatchLimits
from anabranch.topics.errors import NotAllowed, SubscriptionBusy, SubscriptionNotFound
from anabranch.topics.held import Held
from anabranch.topics.settings import settings_of
from anabranch.topics.subscribe_rate import SubscribeRates
from anabranch.topics.surroundings import Surroundings
from anabranch.topics.transactional_acks import TransactionalAcks

if TYPE_CHECKING:
    from anabranch.topics.topic import Topic

EARLIEST = -1
LATEST = (1 << 63) - 1
KIND_NAMES = {
    SubscriptionKind.EXCLUSIVE: "Exclusive",
    SubscriptionKind.SHARED: "Shared",
    SubscriptionKind.FAILOVER: "Failover",
    SubscriptionKind.KEY_SHARED: "Key_Shared",
}


class Wanted(NamedTuple):
    """What a SUBSCRIBE asks for."""

    subscription: str
    kind: SubscriptionKind | int
    is_durable: bool
    start: tuple[int, int] | None  # (offset, batch index) of start_message_id; EARLIEST, LATEST
    from_earliest: bool  # initialPosition, for a new durable subscription
    rollback_s: int  # start_message_rollback_duration_sec
    properties: Mapping[str, str]  # of the subscription, if it is new
    may_create: bool


class Subscriptions:
    def __init__(self, topic: "Topic", around: Surroundings) -> None:
        self._topic = topic
        self._around = around
        self._held: dict[str, Held] = {}
        self._turns = Turns()
        self._delays: Delays | None = None
        self._limits = DispatchLimits(topic.rules, around.clock)
        self._rates = SubscribeRates(around.clock)
        self.transactional = TransactionalAcks(around)
        self._is_closed = False

    async def load(self) -> None:
        """Bring back the durable ones."""
        kept = await self._around.positions.of_topic(self._topic.name.kafka, self._topic.index)
        for name, durable in kept.items():
            if name not in self._held:
                await self.transactional.load(self._hold(name, durable.cursor, durable))

    # --- finding

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def find(self, name: str) -> Subscription | None:
        held = self._held.get(name)
        return None if held is None else held.subscription

    def get(self, name: str) -> Held:
        held = self._held.get(name)
        if held is None:
            raise SubscriptionNotFound(f"Subscription {name} not found for topic {self._topic.full_name}")
        return held

    @property
    def has_consumers(self) -> bool:
        return any(held.subscription.consumers for held in self._held.values())

    @property
    def consumer_count(self) -> int:
        return sum([len(held.subscription.consumers) for held in self._held.values()])

    @property
    def delayed_count(self) -> int:
        return 0 if self._delays is None else len(self._delays)

    def slowest(self) -> int | None:
        """How far the durable subscription that is furthest behind has got; None if there is none."""
        marks = [held.cursor.mark_delete for held in self._held.values() if held.durable is not None]
        return min(marks, default=None)

    # --- attaching

    async def attach(self, consumer: Consumer, wanted: Wanted) -> Subscription:
        kind = SubscriptionKind(wanted.kind)
        self._check_rules(consumer, kind)
        async with self._turns.of(wanted.subscription):
            held = await self._find_or_make(wanted, compacted=consumer.reads_compacted)
            subscription = held.subscription
            try:
                await self._prepare(held, kind)
                self._check_open()
                subscription.attach(consumer, kind)
            except BaseException:
                await self._not_attached(held)
                raise
            held.attached(consumer)
        self._tell_end(held)
        if held.durable is not None:
            await self._around.positions.set_kind(held.durable, KIND_NAMES[kind])
        return subscription

    def _check_rules(self, consumer: Consumer, kind: SubscriptionKind) -> None:
        self._check_open()
        topic, rules = self._topic, self._topic.rules
        if consumer.reads_compacted and kind.is_individual:
            raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
        if KIND_NAMES[kind] not in rules.subscription_types:
            raise NotAllowed(f"Topic[{topic.full_name}] doesn't support {KIND_NAMES[kind]} sub type!")
        most = rules.max_consumers
        if most is not None and self.consumer_count >= most:
            raise ConsumerBusy("Topic reached max consumers limit")
        if not self._rates.take(consumer, rules.subscribe_rate, rules.subscribe_period_s):
            raise NotAllowed(
                "the consumer subscribes more often than its subscribe rate allows; try again later"
            )

    async def _find_or_make(self, wanted: Wanted, *, compacted: bool) -> Held:
        held = self._held.get(wanted.subscription)
        if held is not None:
            if wanted.is_durable != held.is_durable:
                there = "Durable" if held.is_durable else "NonDurable"
                raise NotAllowed(f"{there} subscription with the same name already exists.")
            return held
        rules = self._topic.rules
        if not wanted.is_durable:
            start = await self._start_of(wanted, compacted=compacted)
            self._check_room()
            return self._hold(wanted.subscription, Cursor(start), None)
        if not (wanted.may_create and rules.auto_create_subscriptions):
            raise SubscriptionNotFound(
                f"Subscription {wanted.subscription} does not exist, and is not made by subscribing"
            )
        start = await self._start_of(wanted, compacted=compacted)
        return await self._make(wanted.subscription, start, wanted.properties)

    async def _start_of(self, wanted: Wanted, *, compacted: bool) -> int:
        topic = self._topic
        if wanted.start is not None:
            start = self.clamp(wanted.start[0], compacted=compacted)
        else:
            start = self.clamp(EARLIEST if wanted.from_earliest else LATEST, compacted=compacted)
        if wanted.rollback_s > 0:
            back_ms = self._around.clock.now_ms() - wanted.rollback_s * 1000
            start = min(start, await topic.offset_for_time(back_ms))
        return start

    async def _prepare(self, held: Held, kind: SubscriptionKind) -> None:
        """What has to be there before the first consumer is."""
        subscription = held.subscription
        if held.durable is not None and not held.durable.attachments:
            try:
                await self._around.positions.attached(held.durable)
            except SubscriptionGone:  # a Kafka client deleted the group
                self._let_go(held)
                raise
        if kind.is_individual and subscription.delay is None:  # where none is delayed too: that may change
            subscription.delay = held.delay = self._all_delays().view(held.cursor.mark_delete)

    async def _not_attached(self, held: Held) -> None:
        """A first consumer was refused after all."""
        if held.subscription.consumers:
            return
        if held.durable is None:
            self._let_go(held)
        elif held.durable.attachments:
            await self._around.positions.detached(held.durable)

    def _all_delays(self) -> Delays:
        if self._delays is None:
            folder = self._around.partition_folder(self._topic.name, self._topic.index)
            self._delays = Delays(self._around.disk, folder, self._around.clock.now_ms())
        return self._delays

    async def detach(self, subscription: Subscription, consumer: Consumer) -> None:
        """A consumer is gone.  Nothing if it was not attached."""
        subscription.detach(consumer)
        held = self._held.get(subscription.name)
        if held is None or held.subscription is not subscription or subscription.consumers:
            return
        held.last_active_ms = self._around.clock.now_ms()
        if held.durable is None:
            self._let_go(held)
            return
        await self._settle(held)

    async def _settle(self, held: Held) -> None:
        """If nobody is attached any more, Kafka's clients may have the group."""
        durable = held.durable
        if durable is not None and durable.attachments and not held.subscription.consumers:
            async with self._turns.of(held.subscription.name):
                if durable.attachments and not held.subscription.consumers:
                    await self._around.positions.detached(durable)

    # --- making and deleting

    async def create(
        self, name: str, offset: int, properties: Mapping[str, str] | None = None
    ) -> Subscription:
        """The durable subscription of that name, made at `offset` if it is not there."""
        async with self._turns.of(name):
            held = self._held.get(name)
            return (held or await self._make(name, self.clamp(offset), properties or {})).subscription

    async def _make(self, name: str, offset: int, properties: Mapping[str, str]) -> Held:
        self._check_room()
        document = SubscriptionDocument(self._around.clock.now_ms(), properties=dict(properties))
        where = CursorName(name, self._topic.name.kafka, self._topic.index)
        durable = await self._around.positions.create(where, document, offset)
        self._check_open()
        return self._hold(name, durable.cursor, durable)

    def _check_room(self) -> None:
        most = self._topic.rules.max_subscriptions
        if most is not None and len(self._held) >= most:
            raise NotAllowed(
                f"Exceed the maximum number of subscriptions of the topic: {self._topic.full_name}"
            )

    def _hold(self, name: str, cursor: Cursor, durable: DurableCursor | None) -> Held:
        topic, around = self._topic, self._around
        subscription = Subscription(
            name,
            topic.full_name,
            topic.partition_index,
            cursor,
            Around(
                EntryReader(topic.partition),
                around.clock,
                asyncio.get_running_loop(),
                CompactedEntries(topic.partition),
            ),
            settings_of(topic.rules),
        )
        held = self._held[name] = Held(subscription, durable, around.clock)
        subscription.limits = self._limits.of_one(name)
        subscription.moved = lambda: self._moved(held)
        return held

    async def delete(self, name: str, *, force: bool = False, consumer: Consumer | None = None) -> None:
        """Delete a subscription; `consumer` is the one that asks, and is not told to come back."""
        async with self._turns.of(name):
            held = self.get(name)
            if not force and any(one is not consumer for one in held.subscription.consumers):
                raise SubscriptionBusy("Subscription has active connected consumers")
            if consumer is not None:
                held.subscription.detach(consumer)
            held.subscription.close()
            if held.durable is not None:
                try:
                    await self.transactional.forget(held)
                    await self._around.positions.delete(held.durable)
                except BaseException:
                    await self._stays(held, held.durable)
                    if consumer is not None:  # so it is to come back after all
                        consumer.channel.disconnect(consumer)
                    raise
            self._let_go(held)

    async def _stays(self, held: Held, durable: DurableCursor) -> None:
        """It could not be deleted: whoever comes next finds it as it was."""
        self._let_go(held)
        if self._is_closed or durable.is_deleted:
            return
        again = self._hold(durable.name.subscription, durable.cursor, durable)
        with suppress(AnabranchError, OSError):
            await self.transactional.load(again)
        if durable.attachments:
            with suppress(AnabranchError, OSError):  # it is tried again by itself
                await self._around.positions.detached(durable)

    def _let_go(self, held: Held) -> None:
        if self._held.get(held.subscription.name) is held:
            del self._held[held.subscription.name]
        held.subscription.close()
        if held.delay is not None:
            held.delay.close()

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Nothing if it is not durable: what nobody keeps has none."""
        durable = self.get(name).durable
        if durable is not None:
            await self._around.positions.set_properties(durable, properties)

    # --- moving

    def clamp(self, offset: int, *, compacted: bool = False) -> int:
        """Where reading goes on that is asked to begin at `offset`."""
        topic = self._topic
        return min(max(offset, topic.compacted_start if compacted else topic.start), topic.end)

    async def seek(self, subscription: Subscription, offset: int) -> None:
        held = self.get(subscription.name)
        if held.subscription is not subscription:
            raise SubscriptionNotFound(f"Subscription {subscription.name} was deleted, and made anew")
        compacted = any(consumer.reads_compacted for consumer in subscription.consumers)
        offset = self.clamp(offset, compacted=compacted)
        if held.durable is not None:
            await self.transactional.forget(held)
            await self._around.positions.reset(held.durable, offset)
        subscription.seek(offset)
        await self._settle(held)

    async def keep(self, subscription: Subscription) -> None:
        """Return when all that was acknowledged so far is kept."""
        held = self._held.get(subscription.name)
        if held is not None and held.durable is not None:
            await self._around.positions.save(held.durable)

    def _moved(self, held: Held) -> None:
        if held.durable is not None:
            self._around.positions.touched(held.durable)
        if self._topic.terminated_at is not None:
            self._tell_end(held)

    def terminated(self) -> None:
        for held in self:
            self._tell_end(held)

    def _tell_end(self, held: Held) -> None:
        """Consumers of a terminated topic are told when there is nothing left for them."""
        end = self._topic.terminated_at
        if end is not None and held.cursor.mark_delete >= end:
            for consumer in held.not_told():
                consumer.channel.reached_end(consumer)

    # --- rules

    def rules_changed(self) -> None:
        self._limits.follow(self._topic.rules, self._topic.meter.rates)
        settings = settings_of(self._topic.rules)
        for held in self:
            held.subscription.settings = settings
            held.subscription.limits = self._limits.of_one(held.subscription.name)

    # --- rates and the end

    def look(self, now_s: float) -> bool:
        """Work out rates.  False if nothing has moved for a while."""
        if self._limits.is_relative:
            self.rules_changed()
        moved = False
        for held in self._held.values():
            moved = held.look(now_s) or moved
        return moved

    async def save(self) -> None:
        """Keep everything, and let go of it: the topic closes."""
        kept = [held.durable for held in self if held.durable is not None and not held.durable.is_deleted]
        self._held.clear()
        closed = [self._around.positions.close(durable) for durable in kept]
        for failure in await asyncio.gather(*closed, return_exceptions=True):
            if failure is not None:
                raise failure

    def close(self) -> None:
        """Nobody stays."""
        self._is_closed = True
        for held in self:
            held.subscription.close()
        if self._delays is not None:
            self._delays.close()
            self._delays = None

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._topic.closed()
