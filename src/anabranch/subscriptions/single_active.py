"""Dispatch to one consumer at a time, in the order of the log: exclusive and failover subscriptions.

The policy says who is active.  When that changes, reading goes back to the first message not acknowledged, so
that the successor gets in order what its predecessor left.  If the predecessor is still attached, the
acknowledgements that it has under way are given a moment to come in first.

Nothing is parsed: entries go from the log to the channel as they are.  What was delivered is remembered only
to know how many messages an acknowledged entry has.  Redeliveries are not counted, as in Pulsar.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from anabranch.records.batch import HEADER_SIZE
from anabranch.subscriptions.consumer import NO_HASH, Consumer
from anabranch.subscriptions.dispatcher import Budget, Outcome
from anabranch.subscriptions.outgoing import Outgoing
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.surroundings import Surroundings, Timer

_ONE = (1, NO_HASH)


class ActivePolicy(Protocol):
    @property
    def is_told(self) -> bool:
        """Whether clients are told which of them is active."""

    def check(self, attached: Sequence[Consumer]) -> None:
        """Raises if there is no place for one more."""

    def choose(self, attached: Sequence[Consumer]) -> Consumer | None: ...


class SingleActive:
    def __init__(
        self,
        policy: ActivePolicy,
        reading: Reading,
        surroundings: Surroundings,
        wake: Callable[[], None],
        settings: SubscriptionSettings,
    ) -> None:
        self.settings = settings
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self._policy = policy
        self._reading = reading
        self._surroundings = surroundings
        self._wake = wake
        self._settling: Timer | None = None
        self._has_started = False  # the active one has been told, and reading is where it has to begin
        self._bytes_per_message = 1024.0

    def suits(self, consumer: Consumer) -> bool:
        return True

    # --- who is active

    def attach(self, consumer: Consumer) -> None:
        self._policy.check(self.consumers)
        self.consumers.append(consumer)
        if not self._elect() and self._policy.is_told:
            consumer.channel.active_changed(consumer, self.active is consumer)

    def detach(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        consumer.pending.clear()
        self._elect()

    def _elect(self) -> bool:
        chosen = self._policy.choose(self.consumers)
        if chosen is self.active:
            return False
        predecessor, self.active = self.active, chosen
        self._has_started = False
        if chosen is None:
            self._reading.choose(compacted=False)
            self._settled()
        elif predecessor in self.consumers and self.settings.failover_delay_ms and self._settling is None:
            delay_s = self.settings.failover_delay_ms / 1000
            self._settling = self._surroundings.timers.call_later(delay_s, self._settled)
        return True

    def _settled(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        self._wake()

    def _start(self) -> None:
        self._has_started = True
        self._reading.choose(compacted=self.active is not None and self.active.reads_compacted)
        self.restart()
        if self._policy.is_told:
            for consumer in self.consumers:
                consumer.channel.active_changed(consumer, consumer is self.active)

    # --- delivering

    def took_more(self, consumer: Consumer) -> None:
        """The next turn looks for itself."""

    def turn(self, budget: Budget) -> Outcome:
        consumer = self.active
        if consumer is None or self._settling is not None:
            return Outcome.NOBODY
        if not self._has_started:
            self._start()
        if not consumer.can_take():
            return Outcome.NOBODY
        reading = self._reading
        room = min(consumer.permits, budget.messages)
        entries = reading.fresh(min(budget.size_bytes, int(room * (self._bytes_per_message + HEADER_SIZE))))
        if not entries:
            if reading.disk is not None:
                return Outcome.DISK
            return Outcome.END if reading.is_at_end else Outcome.MORE
        out = Outgoing(reading, {}, None)
        for entry in entries:
            if room <= 0:
                reading.offset = entry.offset
                break
            room -= entry.count
            out.add(consumer, entry, _ONE if entry.count == 1 else (entry.count, NO_HASH))
        out.send(self._surroundings.clock.now_ms())
        self._bytes_per_message = (self._bytes_per_message + out.size_bytes / out.messages) / 2
        budget.messages -= out.messages
        budget.size_bytes -= out.size_bytes
        return Outcome.END if reading.is_at_end else Outcome.MORE

    # --- what became of it

    def acked(self, owner: Consumer, messages: int, done: Sequence[tuple[int, int]]) -> bool:
        return False

    def passing(self, end: int) -> None:
        if self.active is not None:
            pending = self.active.pending
            below = []
            for offset in pending:  # they ascend
                if offset >= end:
                    break
                below.append(offset)
            for offset in below:
                del pending[offset]

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None) -> None:
        """One message alone would come out of order: everything not acknowledged is delivered again."""
        if consumer is self.active and self._settling is None:
            consumer.messages_redelivered += sum(count for count, _ in consumer.pending.values())
            self.restart()

    def give_back(self, offsets: Sequence[int]) -> None:
        """As with a redelivery: in order, or not at all."""
        if self.active is not None:
            self.redeliver(self.active, offsets)

    def restart(self) -> None:
        for consumer in self.consumers:
            consumer.pending.clear()
        self._reading.rewind()

    def close(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
