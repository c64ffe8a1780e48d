"""A topic (one partition of it) as Pulsar clients attach to it.

    PRODUCER   await topic.add_producer(producer) -> Joined          topic.remove_producer(producer)
    SEND       topic.publish(producer, sends) -> Published
    SUBSCRIBE  await topic.attach(consumer, wanted) -> Subscription  await topic.detach(subscription, …)
    ACK        subscription.ack(...), await topic.save(subscription) for a receipt; topic.ack_within(...)
    SEEK       await topic.seek(subscription, offset), with await topic.offset_for_time(ms) for a time

A topic is open as long as somebody may use it.  When it closes (unloaded, deleted, the broker stops) its
clients are told to look it up again, and what it keeps is saved.  One that is terminated takes no more
messages, for good; who has read everything is told that there is no more.

What it decides is in the files beside this one; here it is put together.
"""

import asyncio
import logging
from collections.abc import Sequence

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import TopicName
from anabranch.base.rate_limit import RateLimit
from anabranch.base.rates import Meter
from anabranch.groups.effects import Producer as TxnProducer
from anabranch.groups.transaction_ids import TxnId
from anabranch.meta.image import AnyTopic
from anabranch.meta.rules import Rules
from anabranch.partition.partition import Partition
from anabranch.partition.standing import standing_of
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.subscription import Subscription
from anabranch.topics.backlog import exceeded
from anabranch.topics.compacting import Compacting
from anabranch.topics.deduplicating import Deduplicating
from anabranch.topics.errors import (
    BacklogExceeded,
    BacklogHold,
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    TopicBusy,
    TopicClosed,
    TopicTerminated,
)
from anabranch.topics.message_ids import LastMessage, entry_before, last_compacted
from anabranch.topics.producer import Joined, Producer
from anabranch.topics.producers import Producers
from anabranch.topics.publish import METADATA_BYTES, Published, Send
from anabranch.topics.publishing import Publishing
from anabranch.topics.subscribing import Subscriptions
from anabranch.topics.subscribing import Wanted as Wanted
from anabranch.topics.surroundings import Surroundings

log = logging.getLogger(__name__)


class Topic:
    def __init__(
        self, name: TopicName, index: int, facts: AnyTopic, partition: Partition, around: Surroundings
    ) -> None:
        self.name = name
        self.index = index
        self.partition_index = index if facts.is_partitioned else -1  # what message ids carry
        self.full_name = name.partition(index).pulsar if facts.is_partitioned else name.pulsar
        self.partition = partition
        self._around = around
        self.rules: Rules = around.catalog.rules(name)
        self.created_ms = facts.created_ms
        self.opened_ms = around.clock.now_ms()
        self.active_s = around.clock.monotonic()  # when it was last seen to be of use
        self.tended_s = self.active_s  # when it was last written down what its producers have sent
        self.terminated_at = facts.terminated.get(index)
        self.producers = Producers(self.full_name, facts.epochs.get(index), self._store_epoch)
        self.publishing = Publishing(partition, around.clock)
        self.compacting = Compacting(self.full_name, partition, around.disk, around.clock, around.compactor)
        self.subscriptions = Subscriptions(self, around)
        self.meter = Meter(2, around.clock.monotonic())
        self._is_moving = True
        self._seen_end = partition.log_end
        self._last = LastMessage(partition)
        self._deduplicating = Deduplicating(name, index, partition, self.publishing, around)
        self._follow_rules()
        if self.terminated_at is not None:
            self.publishing.refuse = TopicTerminated("Topic was already terminated")

    async def load(self) -> None:
        """Bring back what was kept.  Nothing is served before."""
        await self.subscriptions.load()
        await self._deduplicating.follow(self.rules.deduplication)

    # --- producing

    async def add_producer(self, producer: Producer) -> Joined:
        self._check_producer(producer)
        await self._deduplicating.settled()
        try:
            epoch = await self.producers.join(producer)
        except ProducerFenced:
            if self.publishing.refuse is None:
                raise
        if self.publishing.refuse is not None:  # it closed, or was terminated, while this one stood in line
            self.producers.leave(producer)
            raise self.publishing.refuse
        self._deduplicating.joined(producer.name)
        producer.meter = Meter(2, self._around.clock.monotonic())
        last = self._deduplicating.last_sequence_id(producer.name)
        try:
            await self._deduplicating.safe()
        except BaseException:
            self.remove_producer(producer)
            raise
        return Joined(last, epoch)

    def _check_producer(self, producer: Producer) -> None:
        if self.publishing.refuse is not None:
            raise self.publishing.refuse
        rules = self.rules
        most = rules.max_producers
        if most is not None and len(self.producers) >= most and self.producers.named(producer.name) is None:
            raise ProducerBusy(f"Topic '{self.full_name}' reached max producers limit")
        if rules.encryption_required and not producer.is_encrypted:
            raise NotAllowed(f"Encryption is required in {self.full_name}")
        quota = exceeded(self.partition, self.subscriptions.slowest(), rules, self._around.clock.now_ms())
        if quota is not None and quota.action == "producer_request_hold":
            raise BacklogHold(
                f"Cannot create producer on topic with backlog quota exceeded: {self.full_name}"
            )
        if quota is not None and quota.action == "producer_exception":
            raise BacklogExceeded(
                f"Cannot create producer on topic with backlog quota exceeded: {self.full_name}"
            )

    def remove_producer(self, producer: Producer) -> None:
        """Nothing if it is not here."""
        if self.producers.leave(producer):
            self._deduplicating.left(producer.name)

    def publish(
        self, producer: Producer, sends: Sequence[Send], within: TxnProducer | None = None
    ) -> Published:
        """`within`: the producer id and epoch of the transaction that they belong to."""
        return self.publishing.publish(producer, sends, within)

    async def _store_epoch(self, epoch: int) -> None:
        await self._around.catalog.store_epoch(self.name, self.index, epoch)

    def send_producers_away(self) -> None:
        """They may come back when they are let in again (a backlog quota)."""
        for producer in self.producers:
            self._deduplicating.left(producer.name)
        self.producers.close_all(self.closed())

    # --- subscribing

    async def attach(self, consumer: Consumer, wanted: Wanted) -> Subscription:
        return await self.subscriptions.attach(consumer, wanted)

    async def detach(self, subscription: Subscription, consumer: Consumer) -> None:
        """A consumer is gone.  Nothing if it was not attached."""
        await self.subscriptions.detach(subscription, consumer)

    async def create_subscription(
        self, name: str, *, from_earliest: bool, properties: dict[str, str] | None = None
    ) -> Subscription:
        """The durable subscription of that name, made if it is not there."""
        return await self.subscriptions.create(name, self.start if from_earliest else self.end, properties)

    async def unsubscribe(self, name: str, *, force: bool = False, consumer: Consumer | None = None) -> None:
        """Delete a subscription.  SubscriptionBusy if it has other consumers than the one who asks."""
        await self.subscriptions.delete(name, force=force, consumer=consumer)

    async def seek(self, subscription: Subscription, offset: int) -> None:
        """Go on from `offset`; -1 is the earliest there is, anything beyond the end what comes next."""
        await self.subscriptions.seek(subscription, offset)

    async def save(self, subscription: Subscription) -> None:
        """Return when everything acknowledged so far is kept."""
        await self.subscriptions.keep(subscription)

    async def ack_within(
        self, txn: TxnId, subscription: str, consumer: Consumer, acks: Sequence[Ack], *, cumulative: bool
    ) -> None:
        """Acknowledge in a transaction; returns when a restart would know of it.  TransactionConflict."""
        held = self.subscriptions.get(subscription)
        await self.subscriptions.transactional.ack(held, txn, consumer, acks, cumulative=cumulative)

    async def end_transaction(self, txn: TxnId, subscription: str, *, commit: bool) -> None:
        """What a transaction has acknowledged of a subscription counts, or is delivered again."""
        await self.subscriptions.transactional.end(txn, self.subscriptions.get(subscription), commit=commit)

    def mark_delete_position(self, subscription: Subscription) -> tuple[int, int]:
        """(ledger, entry id) of the last entry that is acknowledged with everything before it."""
        return entry_before(self.partition, subscription.cursor.mark_delete)

    # --- where things are

    @property
    def start(self) -> int:
        return self.partition.log_start

    @property
    def end(self) -> int:
        return self.partition.last_stable

    @property
    def compacted_start(self) -> int:
        """Where who wants the last message of every key only can begin: the view has what the log has not."""
        return self.start if self.partition.view is None else 0

    async def offset_for_time(self, timestamp_ms: int, *, compacted: bool = False) -> int:
        """The first message published at or after a time; the end if there is none."""
        view = self.partition.view if compacted else None
        if view is not None:
            in_view = view.offset_for_time(timestamp_ms)
            if in_view is not None:
                return in_view
        found = await self.partition.offset_for_time(timestamp_ms)
        return self.end if found is None else min(max(found.offset, self.start), self.end)

    def last_message(self, *, compacted: bool = False) -> tuple[int, int, int]:
        """(ledger, entry id, batch index) of the last message; all -1 if there is none.

        `compacted`: of the last one that is not superseded, if nothing came since compaction.
        """
        view = self.partition.view if compacted else None
        if view is not None and view.horizon >= self.end:
            return last_compacted(view)
        return self._last.look()

    # --- rules

    def rules_changed(self) -> None:
        """The cluster has other rules for this topic, or may have."""
        rules = self._around.catalog.rules(self.name)
        if rules == self.rules:
            return
        self.rules = rules
        self._follow_rules()
        self.subscriptions.rules_changed()
        names = [producer.name for producer in self.producers]
        self._deduplicating.follow_soon(rules.deduplication, names)

    def _follow_rules(self) -> None:
        rules, publishing = self.rules, self.publishing
        publishing.max_message_bytes = rules.max_message_bytes + METADATA_BYTES
        publishing.max_delay_ms = rules.max_delay_ms
        publishing.encrypted_only = rules.encryption_required
        rate = rules.publish_rate
        publishing.limit = (
            RateLimit(self._around.clock, rate.messages or 0, rate.bytes or 0, rate.period_s)
            if rate.is_limited
            else None
        )

    # --- the end

    @property
    def is_active(self) -> bool:
        """Whether it is not to be deleted for want of use."""
        if len(self.producers) or self.subscriptions.has_consumers or self.partition_index >= 0:
            return True
        if standing_of(self.partition).open_transactions:
            return True
        if self.rules.delete_inactive_mode == "delete_when_no_subscriptions":
            return bool(len(self.subscriptions))
        end = self.end
        return any(held.cursor.backlog(end) for held in self.subscriptions)

    def was_used(self) -> bool:
        """Whether it has grown since this was last asked, or somebody waits for that: Kafka's clients do so
        without being attached."""
        before, self._seen_end = self._seen_end, self.partition.log_end
        return self._seen_end != before or self.partition.is_awaited

    def keeps_data(self, now_s: float) -> bool:
        """Whether it has messages that its retention keeps; without one of its own the log's decides."""
        if self.partition.log_end == self.partition.log_start:
            return False
        retention_ms = self.rules.retention_ms
        return retention_ms is None or retention_ms < 0 or (now_s - self.active_s) * 1000 < retention_ms

    async def terminate(self) -> tuple[int, int, int]:
        """Take no more messages, for good; the last one there is."""
        if self.terminated_at is None and self.publishing.refuse is None:
            self.partition.is_ended = True  # for Kafka's producers too
            end = self.partition.log_end
            refuse = self.publishing.refuse = TopicTerminated("Topic was already terminated")
            # Now: a Go client that is refused a message first does not hear that its producer is closed.
            self.producers.close_all(refuse)
            try:
                if (unsafe := self.partition.acknowledgement(end)) is not None:
                    await unsafe
                self.partition.check_leads()
                await self._around.catalog.store_terminated(self.name, self.index, end)
            except BaseException:
                self.partition.is_ended = False
                if self.publishing.refuse is refuse:
                    self.publishing.refuse = None
                raise
            self.terminated_at = end
            self.subscriptions.terminated()
        return self.last_message()

    async def close(self) -> None:
        """Serve it no more: clients are told to look it up again, what it keeps is saved."""
        self.abandon()
        await asyncio.gather(self.subscriptions.save(), self._deduplicating.close(), self.compacting.stop())

    def abandon(self) -> None:
        """The topic is gone, or goes: nobody may stay."""
        self.publishing.refuse = self.closed()
        self.producers.close_all(self.closed())
        self.subscriptions.close()
        self._deduplicating.abandon()
        self.compacting.abandon()

    def closed(self) -> TopicClosed:
        return TopicClosed(f"{self.full_name} is not served here any more; look it up again")

    def check_unused(self) -> None:
        """TopicBusy if somebody uses it."""
        if len(self.producers):
            raise TopicBusy(f"Topic has {len(self.producers)} connected producers")
        if self.subscriptions.has_consumers:
            raise TopicBusy("Topic has connected consumers")

    # --- upkeep

    def compact(self) -> None:
        """Begin to compact what readers who want the last message of every key get.  AlreadyCompacting."""
        self.compacting.trigger(keeps_keyless=self.rules.compaction_keeps_keyless)

    def look(self, now_s: float) -> bool:
        """Work out rates.  False if nothing has moved for a while."""
        for producer in self.producers:
            producer.look(now_s)
        publishing = self.publishing
        moved = self.meter.look((publishing.messages_in, publishing.bytes_in), now_s)
        self._is_moving = self.subscriptions.look(now_s) or moved
        return self._is_moving

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to look at: nobody is attached, and nothing had moved at the last look."""
        return not (self._is_moving or len(self.producers) or self.subscriptions.has_consumers)

    async def tend(self) -> None:
        """Now and then: what deduplication has learnt is kept, who was away for long is forgotten.

        It is switched, if that could not be done when the rules changed.
        """
        names = [producer.name for producer in self.producers]
        try:
            await self._deduplicating.follow_now(self.rules.deduplication, names)
            await self._deduplicating.tend()
        except (AnabranchError, OSError) as error:
            log.warning(
                "%s: sequence ids of producers could not be stored, tried again later: %s",
                self.full_name,
                error,
            )
