"""Outgoing entries of one dispatcher turn: collected for each consumer, delivered at the turn's end.

A delivery takes permits, one per message: an entry counts whole, though some of its messages may be
acknowledged, because clients give back the permits of those that they skip.  Entries are remembered as
pending until they are acknowledged; shared kinds count the messages in them as unacked too.
"""

from anabranch.records.entries import Entry
from anabranch.subscriptions.ack_sets import unacked_in
from anabranch.subscriptions.channel import Delivery
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.unacked import Unacked

MAX_REMEMBERED = 50_000  # entries of a consumer whose unacked messages nothing bounds


class Outgoing:
    __slots__ = ("_deliveries", "_reading", "_redelivered", "_unacked", "messages", "size_bytes")

    def __init__(self, reading: Reading, redelivered: dict[int, int], unacked: Unacked | None) -> None:
        """`redelivered`: how often entries were delivered in vain, by offset."""
        self._reading = reading
        self._redelivered = redelivered
        self._unacked = unacked
        self._deliveries: dict[Consumer, list[Delivery]] = {}
        self.messages = self.size_bytes = 0

    def add(self, consumer: Consumer, entry: Entry, held: tuple[int, int]) -> None:
        """`entry` goes to `consumer`; `held` is what is remembered of it: (messages, hash)."""
        offset = entry.offset
        redelivered = self._redelivered
        ack_set = self._reading.ack_set(entry)
        delivery = Delivery(entry, redelivered.get(offset, 0) if redelivered else 0, ack_set)
        deliveries = self._deliveries.get(consumer)
        if deliveries is None:
            self._deliveries[consumer] = [delivery]
        else:
            deliveries.append(delivery)
        count = held[0]
        consumer.permits -= count
        consumer.pending[offset] = held
        if self._unacked is not None:
            self._unacked.added(consumer, count if ack_set is None else unacked_in(ack_set))

    def send(self, now_ms: int) -> None:
        """Deliver what was added; `messages` and `size_bytes` say how much it was."""
        for consumer, deliveries in self._deliveries.items():
            messages = size_bytes = 0
            for entry, _, _ in deliveries:
                messages += entry.count
                size_bytes += len(entry.payload)
            consumer.messages_out += messages
            consumer.bytes_out += size_bytes
            consumer.last_sent_ms = now_ms
            self.messages += messages
            self.size_bytes += size_bytes
            if self._unacked is None and len(consumer.pending) > MAX_REMEMBERED:
                consumer.pending.clear()
            consumer.channel.deliver(consumer, deliveries)
        self._deliveries.clear()
