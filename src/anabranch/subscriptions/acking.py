"""Acknowledgements, from message ids to the cursor.

    individual   the entry as a whole, or those of its messages whose bits an ack_set has cleared
    cumulative   everything up to and with the entry

How many messages an entry has is remembered of those that were delivered, and looked up in the log for
others: a client may acknowledge after it has come back what it was sent before.  An id that is no entry's is
ignored, except one beyond the end of the log, which no client can have.

Neighbours that are acknowledged together go to the cursor as one run.  What is acknowledged within a
transaction is held until that ends (`pending_acks`); whoever has it is done with it all the same.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from anabranch.base.errors import OffsetOutOfRange
from anabranch.groups.transaction_ids import TxnId
from anabranch.subscriptions.ack_sets import acked_ranges
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.dispatcher import Dispatcher
from anabranch.subscriptions.errors import InvalidAck
from anabranch.subscriptions.pending_acks import EntryAck, PendingAck
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.surroundings import EntrySource

_MOST_RANGES = 20_000  # of an entry in a transaction, whose record must be written


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
        named = self._named(consumer, ack)
        if named is None:
            return
        end, ranges = named
        self.up_to(end)
        for start, stop in ranges:
            self._ack(start, stop)

    def _named(self, consumer: Consumer, ack: Ack) -> tuple[int, Iterable[tuple[int, int]]] | None:
        """Where a cumulative acknowledgement ends, and what of the entry there it acknowledges as well."""
        offset = ack.offset
        held = consumer.pending.get(offset)
        bounds = self._bounds(offset) if held is None else (offset, offset + held[0])
        if bounds is None:
            return None
        first, end = bounds
        if ack.ack_set and offset == first:
            return first, acked_ranges(first, end - first, ack.ack_set)
        return (first if ack.ack_set or (offset != first and offset != end - 1) else end), ()

    def up_to(self, end: int) -> None:
        """Everything below `end` is acknowledged."""
        self._dispatcher.passing(end)
        self._reading.acked(end)
        self._reading.cursor.ack_up_to(end)

    def _other(self, consumer: Consumer, offset: int, ack_set: Sequence[int] | None) -> bool:
        """Acknowledge in part, or what somebody else holds, or nobody."""
        found = self._find(consumer, offset)
        if found is None:
            return False
        count, owner = found
        messages = sum(self._ack(start, end) for start, end in _ranges(offset, count, ack_set))
        return self._settle(consumer, owner, offset, count, messages)

    def _find(self, consumer: Consumer, offset: int) -> tuple[int, Consumer | None] | None:
        """How many messages the entry at `offset` has, and who holds it; None if there is no such entry."""
        for owner in (consumer, *self._dispatcher.consumers):
            held = owner.pending.get(offset)
            if held is not None:
                return held[0], owner
        bounds = self._bounds(offset)
        return None if bounds is None or bounds[0] != offset else (bounds[1] - offset, None)

    def _settle(
        self, consumer: Consumer, owner: Consumer | None, offset: int, count: int, messages: int
    ) -> bool:
        """So many messages of an entry that `owner` holds, if anybody does, were acknowledged."""
        consumer.messages_acked += messages
        if owner is None:
            return False
        held = owner.pending.get(offset)
        if held is None or not self._reading.is_settled(offset, offset + count):
            return self._dispatcher.acked(owner, messages, ())
        del owner.pending[offset]
        return self._dispatcher.acked(owner, messages, ((offset, held[1]),))

    # --- within transactions

    def individual_within(self, txn: TxnId, consumer: Consumer, acks: Sequence[Ack]) -> PendingAck:
        """Hold what `acks` name until `txn` ends.  TransactionConflict, InvalidAck; then nothing is held."""
        entries: list[EntryAck] = []
        owners: list[tuple[int, int, int, Consumer | None]] = []
        for offset, ack_set in acks:
            found = self._find(consumer, offset)
            if found is None:
                continue
            count, owner = found
            ranges = list(islice(_ranges(offset, count, ack_set), _MOST_RANGES + 1))
            if len(ranges) > _MOST_RANGES:
                raise InvalidAck(f"more than {_MOST_RANGES} ranges of one batch are acknowledged at once")
            entries.append(EntryAck(offset, ranges))
            owners.append((offset, count, sum(end - start for start, end in ranges), owner))
            self._reading.acked(offset + count)
        self._reading.pending.individual(txn, entries)
        for offset, count, messages, owner in owners:
            self._settle(consumer, owner, offset, count, messages)
        return PendingAck([(entry, list(ranges)) for entry, ranges in entries])

    def cumulative_within(self, txn: TxnId, consumer: Consumer, ack: Ack) -> PendingAck:
        """The same for everything up to where `ack` ends."""
        named = self._named(consumer, ack)
        end = 0 if named is None else named[0]
        for start, stop in () if named is None else named[1]:
            end = stop if start <= end else end
        self._reading.pending.cumulative(txn, end)
        return PendingAck([], end)

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
        """How many were not acknowledged before, by an open transaction or for good."""
        if end <= start:
            return 0
        reading = self._reading
        reading.acked(end)
        if not reading.pending:
            return reading.cursor.ack(start, end)
        newly = reading.unacked(start, end - start)
        reading.cursor.ack(start, end)
        return newly


def _ranges(offset: int, count: int, ack_set: Sequence[int] | None) -> Iterable[tuple[int, int]]:
    return acked_ranges(offset, count, ack_set) if ack_set else ((offset, offset + count),)
