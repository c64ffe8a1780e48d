"""Acknowledgements, from message ids to the cursor.

    individual   the entry as a whole, or those of its messages whose bits an ack_set has cleared
    cumulative   everything up to and with the entry

How many messages an entry has is remembered of those that were delivered, and looked up in the log for
others: a client may acknowledge after it has come back what it was sent before.  An id that is no entry's is
ignored, except one beyond the end of the log, which no client can have.

Neighbours that are acknowledged together go to the cursor as one run.
"""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.base.errors import OffsetOutOfRange
from anabranch.subscriptions.ack_sets import acked_ranges
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.dispatcher import Dispatcher
from anabranch.subscriptions.errors import InvalidAck
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.surroundings import EntrySource


class Ack(NamedTuple):
    """One message id of an ACK."""

    offset: int
    """The entry id."""
    ack_set: Sequence[int] | None = None
    """Words of 64 bits, signed or not, a bit set for each message of the entry *not* acknowledged."""


class Acking:
    __slots__ = ("_dispatcher", "_reading", "_source")

    def __init__(self, dispatcher: Dispatcher, reading: Reading, source: EntrySource) -> None:
        self._dispatcher = dispatcher
        self._reading = reading
        self._source = source

    def individual(self, consumer: Consumer, acks: Sequence[Ack]) -> bool:
        """True if that allows something to be delivered that waited.  InvalidAck once the others are done."""
        pending = consumer.pending
        done: list[tuple[int, int]] = []
        messages = 0
        start = end = -1
        unblocked = False
        refused: InvalidAck | None = None
        for offset, ack_set in acks:
            held = None if ack_set else pending.pop(offset, None)
            if held is not None:
                if offset != end:
                    messages += self._ack(start, end)
                    start = offset
                end = offset + held[0]
                done.append((offset, held[1]))
                continue
            messages += self._ack(start, end)  # the same id may come twice
            start = end = -1
            try:
                unblocked |= self._other(consumer, offset, ack_set)
            except InvalidAck as error:
                refused = error
        messages += self._ack(start, end)
        consumer.messages_acked += messages
        if done:
            unblocked |= self._dispatcher.acked(consumer, messages, done)
        if refused is not None:
            raise refused
        return unblocked

    def cumulative(self, consumer: Consumer, ack: Ack) -> None:
        """Up to the end of the entry that holds the id.

        A client that acknowledges up to the middle of a batch names the id before the batch's, which need not
        be where an entry begins.
        """
        offset = ack.offset
        held = consumer.pending.get(offset)
        bounds = self._bounds(offset) if held is None else (offset, offset + held[0])
        if bounds is None:
            return
        first, end = bounds
        if ack.ack_set or (offset != first and offset != end - 1):
            end = first
        self.up_to(end)
        if ack.ack_set and offset == first:
            for start, stop in acked_ranges(first, bounds[1] - first, ack.ack_set):
                self._ack(start, stop)

    def up_to(self, end: int) -> None:
        """Everything below `end` is acknowledged."""
        self._dispatcher.passing(end)
        self._reading.acked(end)
        self._reading.cursor.ack_up_to(end)

    def _other(self, consumer: Consumer, offset: int, ack_set: Sequence[int] | None) -> bool:
        """Acknowledge in part, or what somebody else holds, or nobody."""
        owner = consumer
        held = consumer.pending.get(offset)
        if held is None:
            for other in self._dispatcher.consumers:
                held = other.pending.get(offset)
                if held is not None:
                    owner = other
                    break
        if held is not None:
            count = held[0]
        else:
            bounds = self._bounds(offset)
            if bounds is None or bounds[0] != offset:
                return False
            count = bounds[1] - offset
        ranges = acked_ranges(offset, count, ack_set) if ack_set else ((offset, offset + count),)
        messages = sum(self._ack(start, end) for start, end in ranges)
        consumer.messages_acked += messages
        if held is None:
            return False
        if not self._reading.cursor.all_acked(offset, offset + count):
            return self._dispatcher.acked(owner, messages, ())
        del owner.pending[offset]
        return self._dispatcher.acked(owner, messages, ((offset, held[1]),))

    def _bounds(self, offset: int) -> tuple[int, int] | None:
        if offset >= self._source.end:
            raise InvalidAck(f"message {offset} is not there: the log ends at {self._source.end}")
        if offset < self._source.start:
            return None
        try:
            return self._source.bounds(offset)
        except OffsetOutOfRange:
            return None

    def _ack(self, start: int, end: int) -> int:
        if end <= start:
            return 0
        self._reading.acked(end)
        return self._reading.cursor.ack(start, end)
