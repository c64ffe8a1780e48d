"""Outstanding entries of shared and key_shared consumers: delivered, not yet acknowledged as a whole.

Entries leave a consumer because they are acknowledged, given back (and then count as delivered in vain),
passed by the mark-delete position, or because the consumer goes.  Whichever it is, their messages no longer
count as unacked; what becomes of the entries themselves is up to the dispatcher.
"""

from collections.abc import Iterable, Sequence

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.redelivery import Redeliveries
from anabranch.subscriptions.unacked import Unacked

OffsetAndHash = tuple[int, int]


class Outstanding:
    __slots__ = ("_reading", "redeliveries", "unacked")

    def __init__(self, reading: Reading, unacked: Unacked) -> None:
        self._reading = reading
        self.unacked = unacked
        self.redeliveries = Redeliveries()

    def acked(self, owner: Consumer, messages: int, done: Sequence[OffsetAndHash]) -> bool:
        """True if somebody was blocked and is not any more."""
        self.redeliveries.acked(done)
        return self.unacked.removed(owner, messages)

    def given_back(self, consumer: Consumer, offsets: Sequence[int] | None) -> list[OffsetAndHash]:
        """Entries, or all of them, come back from a consumer that holds them."""
        pending = consumer.pending
        back: list[OffsetAndHash] = []
        messages = 0
        for offset in list(pending) if offsets is None else offsets:
            held = pending.pop(offset, None)
            if held is not None:
                messages += self._reading.unacked(offset, held[0])
                back.append((offset, held[1]))
        self.redeliveries.count(back)
        consumer.messages_redelivered += messages
        self.unacked.removed(consumer, messages)
        return back

    def taken_back(self, consumers: Iterable[Consumer], offsets: Sequence[int]) -> list[OffsetAndHash]:
        """Entries are to be delivered again, whoever holds them: those that somebody did."""
        back = [given for consumer in consumers for given in self.given_back(consumer, offsets)]
        held = {offset for offset, _ in back}
        self.redeliveries.count((offset, 0) for offset in offsets if offset not in held)
        return back

    def passed(self, consumers: Iterable[Consumer], end: int) -> list[OffsetAndHash]:
        """Everything below `end` is about to be acknowledged: the entries that are with it as a whole."""
        self.redeliveries.forget_below(end)
        gone: list[OffsetAndHash] = []
        for consumer in consumers:
            for offset, (count, hash) in list(consumer.pending.items()):
                if offset < end:
                    self.unacked.removed(consumer, self._reading.unacked(offset, min(count, end - offset)))
                    if offset + count <= end:
                        del consumer.pending[offset]
                        gone.append((offset, hash))
        return gone

    def left(self, consumer: Consumer) -> list[OffsetAndHash]:
        """A consumer goes: what it held."""
        held = [(offset, hash) for offset, (_, hash) in consumer.pending.items()]
        consumer.pending.clear()
        self.unacked.removed(consumer, consumer.unacked)
        return held

    def clear(self, consumers: Iterable[Consumer]) -> None:
        self.redeliveries.clear()
        for consumer in consumers:
            self.left(consumer)
