"""A subscription of one topic (one partition of it): a cursor, the consumers attached, who gets what.

    SUBSCRIBE     attach(consumer, kind)         CLOSE_CONSUMER, lost connection   detach(consumer)
    FLOW          flow(consumer, permits)        the socket takes more again       resume(consumer)
    ACK           ack(consumer, acks, cumulative=...), ack_within(txn, ...)
    END_TXN       end_transaction(txn, commit=...)
    REDELIVER_..  redeliver(consumer, offsets)   None: everything it holds
    SEEK          seek(offset)

What may be delivered is delivered in turns of the event loop, never inside these calls: several causes to
look make one turn, and a turn makes one read of the log and a `deliver` per consumer.  The dispatcher is made
for the kind that the first consumer asks for; when the last one has gone, the next may ask for another.

A seek sends everybody away, as in Pulsar: clients subscribe again and begin with an empty queue.  (One of the
C++ library could stay, but may clear its queue some time after it has heard that the seek succeeded, and with
it what it was sent since.)
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from anabranch.base.errors import AnabranchError
from anabranch.base.seldom import Seldom
from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.acking import Ack, Acking
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.delay import DelayView
from anabranch.subscriptions.dispatcher import Budget, Dispatcher, Outcome
from anabranch.subscriptions.dispatchers import dispatcher_for
from anabranch.subscriptions.errors import (
    ConsumerBusy,
    ConsumerGone,
    InvalidPermits,
    NotAllowed,
    SubscriptionTypeMismatch,
)
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.pending_acks import PendingAck
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.surroundings import DispatchLimit, Surroundings, Timer
from anabranch.subscriptions.unacked import Unacked

READ_BYTES = 256 << 10
MAX_PERMITS = (1 << 31) - 1  # of a consumer, together: more than any client can hold

_UNLIMITED = 1 << 62
_RETRY_S = 1.0
_PAUSE_S = 0.005  # at least, when a rate is spent: then there is more than one message to deliver again
_unreadable = Seldom(logging.getLogger(__name__), 10.0)


class Subscription:
    def __init__(
        self,
        name: str,
        topic: str,
        partition_index: int,
        cursor: Cursor,
        surroundings: Surroundings,
        settings: SubscriptionSettings,
    ) -> None:
        """`topic` is the full name of what is read, `partition_index` -1 if it is not partitioned."""
        self.name = name
        self.topic = topic
        self.partition_index = partition_index
        self.cursor = cursor
        self.kind: SubscriptionKind | None = None
        self.delay: DelayView | None = None
        self.limits: Sequence[DispatchLimit] = ()
        self.moved: Callable[[], None] = _nothing
        """Called when the cursor has changed, so that it is kept."""
        self.reading = Reading(surroundings.source, cursor, surroundings.compacted)
        self.unacked = Unacked(settings.max_unacked_per_consumer, settings.max_unacked_per_subscription)
        self.surroundings = surroundings
        self._settings = settings
        self.dispatcher: Dispatcher | None = None
        self._acking: Acking | None = None
        self._is_due = False  # a turn is on its way
        self._is_waiting = False  # for the log
        self._timer: Timer | None = None
        self._is_closed = False

    @property
    def settings(self) -> SubscriptionSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: SubscriptionSettings) -> None:
        """The rules have changed; what is out stays out."""
        self._settings = settings
        self.unacked.set_bounds(
            settings.max_unacked_per_consumer, settings.max_unacked_per_subscription, self.consumers
        )
        if self.dispatcher is not None:
            self.dispatcher.settings = settings
        self.wake()

    @property
    def consumers(self) -> list[Consumer]:
        return [] if self.dispatcher is None else self.dispatcher.consumers

    # --- consumers

    def attach(self, consumer: Consumer, kind: SubscriptionKind) -> None:
        """ConsumerBusy, SubscriptionTypeMismatch, ConsumerAssignError.

        A newcomer that is not the active one is told so before this returns.
        """
        if self._is_closed:
            raise ConsumerGone(f"subscription {self.name} is closed; look the topic up again")
        consumers = self.consumers
        suits = self.dispatcher is not None and kind == self.kind and self.dispatcher.suits(consumer)
        if consumers and not suits:
            raise SubscriptionTypeMismatch("Subscription is of different type")
        if 0 < self.settings.max_consumers <= len(consumers):
            raise ConsumerBusy("Subscription reached max consumers limit")
        dispatcher = self.dispatcher
        if dispatcher is None or not suits:
            dispatcher = self._make_dispatcher(kind, consumer)
        if not consumers:
            dispatcher.restart()
        dispatcher.attach(consumer)
        consumer.is_attached = True
        self.wake()

    def _make_dispatcher(self, kind: SubscriptionKind, first: Consumer) -> Dispatcher:
        if self.dispatcher is not None:
            self.dispatcher.close()
        self.kind = kind
        self.dispatcher = dispatcher = dispatcher_for(self, kind, first)
        self._acking = Acking(dispatcher, self.reading, self.surroundings.source)
        return dispatcher

    def detach(self, consumer: Consumer) -> None:
        """What it holds goes to others.  Nothing if it is not attached."""
        if consumer.is_attached and self.dispatcher is not None:
            consumer.is_attached = False
            self.dispatcher.detach(consumer)
            self.wake()

    def flow(self, consumer: Consumer, permits: int) -> None:
        """InvalidPermits if the number is none that a client can mean."""
        if permits <= 0 or consumer.permits + permits > MAX_PERMITS:
            raise InvalidPermits(f"{permits} permits, with {consumer.permits} given before")
        consumer.permits += permits
        consumer.last_flow_ms = self.surroundings.clock.now_ms()
        self.resume(consumer)

    def resume(self, consumer: Consumer) -> None:
        """Its connection is writable again."""
        if consumer.is_attached and self.dispatcher is not None:
            self.dispatcher.took_more(consumer)
            self.wake()

    def close(self) -> None:
        """Send everybody away, for good: the topic is unloaded, or the subscription deleted."""
        self._is_closed = True
        self._send_away(list(self.consumers))
        if self.dispatcher is not None:
            self.dispatcher.close()
        if self._is_waiting:
            self._is_waiting = False
            self.surroundings.source.stop_waiting(self._log_grew)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_away(self, consumers: Sequence[Consumer]) -> None:
        for consumer in consumers:
            self.detach(consumer)
            consumer.channel.disconnect(consumer)

    # --- what consumers say

    def ack(self, consumer: Consumer, acks: Sequence[Ack], *, cumulative: bool) -> None:
        """NotAllowed for cumulative ones of shared kinds, InvalidAck beyond the log's end.

        When it returns the cursor has them in memory; `moved` sees to it that they are kept.
        """
        acking = self._acking_of(consumer, cumulative=cumulative)
        try:
            if not cumulative:
                if acking.individual(consumer, acks):
                    self.wake()
            else:
                acking.cumulative(consumer, acks[-1])
        finally:
            self.moved()

    def _acking_of(self, consumer: Consumer, *, cumulative: bool) -> Acking:
        if not consumer.is_attached or self._acking is None or self.kind is None:
            raise ConsumerGone(f"consumer {consumer.id} is not attached to {self.name}")
        if cumulative and self.kind.is_individual:
            raise NotAllowed(f"cumulative acknowledgement of a {self.kind.name.lower()} subscription")
        consumer.last_acked_ms = self.surroundings.clock.now_ms()
        return self._acking

    def ack_within(
        self, txn: TxnId, consumer: Consumer, acks: Sequence[Ack], *, cumulative: bool
    ) -> tuple[int, PendingAck]:
        """As `ack`, of a transaction: nothing counts before that commits.  TransactionConflict.

        What is to be kept of it, and its number among what the transaction acknowledges here.
        """
        acking = self._acking_of(consumer, cumulative=cumulative)
        number = self.reading.pending.next_number(txn)
        if cumulative:
            kept = acking.cumulative_within(txn, consumer, acks[-1])
        else:
            kept = acking.individual_within(txn, consumer, acks)
            self.wake()  # whoever was blocked, or waits for a key
        return number, kept

    def withdraw(self, txn: TxnId, ack: PendingAck) -> None:
        """What `txn` wanted to acknowledge could not be kept: it is delivered again."""
        if ack.entries and self.dispatcher is not None:
            self.dispatcher.give_back(sorted({entry for entry, _ in ack.entries}))
        self.reading.pending.withdraw(txn, ack)
        self.wake()

    def end_transaction(self, txn: TxnId, *, commit: bool) -> None:
        """What `txn` has acknowledged counts, or is delivered again."""
        pending = self.reading.pending
        entries, up_to = pending.acknowledged(txn)
        if not commit and (entries or up_to is not None) and self.dispatcher is not None:
            self.dispatcher.give_back(sorted({entry for entry, _ in entries}))
        pending.ended(txn)
        if commit:
            for _, ranges in entries:
                for start, end in ranges:
                    self.cursor.ack(start, end)
                    self.reading.acked(end)
            if up_to is not None:
                self.advance_to(up_to)
            self.moved()
        self.wake()

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None, epoch: int = -1) -> None:
        """Deliver again the entries at `offsets`, or all that it holds."""
        consumer.epoch = max(consumer.epoch, epoch)
        if consumer.is_attached and self.dispatcher is not None:
            self.dispatcher.redeliver(consumer, offsets)
            self.wake()

    def seek(self, offset: int) -> None:
        """Go on from the message at `offset`; everybody is detached and disconnected before this returns."""
        source = self.surroundings.source
        for txn in self.reading.pending:
            self.reading.pending.ended(txn)  # it was about what was delivered before
        self.cursor.reset(max(self.reading.start, min(offset, source.end)))
        self.moved()
        if self.delay is not None:
            self.delay.clear()
        if self.dispatcher is None:
            self.reading.rewind()
            return
        self._send_away(list(self.consumers))
        self.dispatcher.restart()

    def advance_to(self, end: int) -> None:
        """Everything below `end` is acknowledged, whoever holds it (skip, clear, expiry)."""
        end = min(end, self.surroundings.source.end)
        if end <= self.cursor.mark_delete:
            return
        if self._acking is not None:
            self._acking.up_to(end)
        else:
            self.cursor.ack_up_to(end)
            self.reading.acked(end)
        self.moved()
        self.wake()

    def restore_transaction(self, txn: TxnId, kept: Mapping[int, bytes]) -> None:
        """What `txn`, which is open, has acknowledged before a restart.  Corrupt if it cannot be read."""
        self.reading.pending.restore(txn, kept)
        self.reading.acked(self.reading.pending.end)

    # --- turns

    def wake(self) -> None:
        """Something may be delivered that could not before."""
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self.surroundings.timers.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        dispatcher = self.dispatcher
        if self._is_closed or dispatcher is None or not dispatcher.consumers:
            return
        messages, size_bytes = self._allowance()
        if messages < 1 or size_bytes < 1:
            self._wake_in(max([_PAUSE_S, *(limit.wait_s() for limit in self.limits)]))
            return
        budget = Budget(messages, min(size_bytes, READ_BYTES))
        before = self.cursor.mark_delete
        try:
            outcome = dispatcher.turn(budget)
        except (AnabranchError, OSError) as error:
            _unreadable.warning(
                "%s, subscription %s: cannot read, tried again soon: %s", self.topic, self.name, error
            )
            self._wake_in(_RETRY_S)
            return
        for limit in self.limits:
            limit.take(messages - budget.messages, min(size_bytes, READ_BYTES) - budget.size_bytes)
        if self.cursor.mark_delete != before:  # over a gap
            self.moved()
        self._wait_for(outcome)

    def _allowance(self) -> tuple[int, int]:
        messages = size_bytes = _UNLIMITED
        for limit in self.limits:
            allowed = limit.allowance()
            messages, size_bytes = min(messages, allowed[0]), min(size_bytes, allowed[1])
        return messages, size_bytes

    def _wait_for(self, outcome: Outcome) -> None:
        if outcome is Outcome.MORE:
            self.wake()
        elif outcome is Outcome.DISK and self.reading.disk is not None:
            self.reading.disk.add_done_callback(self._disk_answered)
        elif outcome in (Outcome.END, Outcome.FULL):
            if outcome is Outcome.END and not self._is_waiting:
                self._is_waiting = True
                self.surroundings.source.wait(self._log_grew)
            due_ms = self._next_due_ms()
            if due_ms is not None:
                self._wake_in(max(0, due_ms - self.surroundings.clock.now_ms()) / 1000)

    def _next_due_ms(self) -> int | None:
        """When something that was put aside may be due; who reads in order takes nothing from there."""
        if self.delay is None or self.kind is None or not self.kind.is_individual:
            return None
        return self.delay.next_due_ms()

    def _log_grew(self) -> None:
        self._is_waiting = False
        self.surroundings.source.stop_waiting(self._log_grew)
        self.wake()

    def _disk_answered(self, answered: "asyncio.Future[None]") -> None:
        if answered.cancelled() or answered.exception() is not None:
            self._wake_in(_RETRY_S)
        else:
            self.wake()

    def _wake_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.surroundings.timers.call_later(delay_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()


def _nothing() -> None:
    """Nobody keeps this cursor: it is not durable."""
