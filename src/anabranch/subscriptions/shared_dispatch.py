"""Dispatch of shared subscriptions: what waits for another try first, then the log, to whoever can take it.

    replay ─┐
            ├─> entries ─> put off what is delayed ─> round robin ─> deliver
    log   ──┘

Entries that come back (a negative acknowledgement, a consumer that goes, a delay that is over) are kept as
offsets in a bitmap and read from the log again.  Metadata is parsed only of entries with one message: clients
neither delay nor cut into chunks what they batch.
"""

from collections.abc import Sequence
from itertools import islice

from pyroaring import BitMap64

from anabranch.base.errors import Corrupt
from anabranch.records.entries import Entry, read_metadata
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from anabranch.subscriptions.chunks import Chunks
from anabranch.subscriptions.consumer import NO_HASH, Consumer
from anabranch.subscriptions.delay import DelayView
from anabranch.subscriptions.dispatcher import Budget, Outcome
from anabranch.subscriptions.outgoing import Outgoing
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.redelivery import Redeliveries
from anabranch.subscriptions.shared import RoundRobin
from anabranch.subscriptions.surroundings import Surroundings
from anabranch.subscriptions.unacked import Unacked

_REPLAYED = 256  # entries that are looked for again in a turn
_ONE = (1, NO_HASH)


class SharedDispatch:
    def __init__(
        self,
        reading: Reading,
        surroundings: Surroundings,
        unacked: Unacked,
        delay: DelayView | None,
        turn_messages: int,
    ) -> None:
        self._round_robin = RoundRobin()
        self.consumers = self._round_robin.consumers
        self._reading = reading
        self._surroundings = surroundings
        self._unacked = unacked
        self._delay = delay
        self._turn_messages = turn_messages
        self._replay = BitMap64()
        self._redeliveries = Redeliveries()
        self._chunks = Chunks()
        self._bytes_per_message = 1024.0

    def attach(self, consumer: Consumer) -> None:
        self._round_robin.add(consumer)

    def detach(self, consumer: Consumer) -> None:
        self._round_robin.remove(consumer)
        self._chunks.forget(consumer)
        self._replay.update(self._chunks.awaited(consumer))
        self._replay.update(consumer.pending)
        consumer.pending.clear()
        self._unacked.removed(consumer, consumer.unacked)
        if not self.consumers:
            self._redeliveries.clear()  # Pulsar counts anew when nobody is left who could remember

    def took_more(self, consumer: Consumer) -> None:
        self._replay.update(self._chunks.awaited(consumer))

    # --- delivering

    def turn(self, budget: Budget) -> Outcome:
        permits = sum(consumer.permits for consumer in self.consumers if consumer.can_take())
        if not permits or self._unacked.is_blocked:
            return Outcome.NOBODY
        now_ms = self._surroundings.clock.now_ms()
        if self._delay is not None:
            self._replay.update(self._delay.due(now_ms, _REPLAYED))
        reading = self._reading
        room = min(permits, budget.messages)
        max_bytes = min(budget.size_bytes, int(room * self._bytes_per_message) + 1)
        is_replay = bool(self._replay)
        if is_replay:
            offsets = list(islice(self._replay, min(room, _REPLAYED)))
            entries, settled = reading.again(offsets, max_bytes)
            self._replay.difference_update(BitMap64(offsets[:settled]))
        else:
            entries = reading.fresh(max_bytes)
        if not entries:
            if reading.disk is not None:
                return Outcome.DISK
            return Outcome.END if reading.is_at_end and not self._replay else Outcome.MORE
        out = Outgoing(reading, self._redeliveries.counts, self._unacked)
        handed_out = self._hand_out(entries, out, room, now_ms, is_fresh=not is_replay)
        if is_replay:
            self._replay.update(entry.offset for entry in entries[handed_out:])
        elif handed_out < len(entries):
            reading.offset = entries[handed_out].offset
        if self._delay is not None:
            self._delay.passed(reading.offset)
        out.send(now_ms)
        if out.messages:
            self._bytes_per_message = (self._bytes_per_message + out.size_bytes / out.messages) / 2
        budget.messages -= out.messages
        budget.size_bytes -= out.size_bytes
        return Outcome.END if reading.is_at_end and not self._replay else Outcome.MORE

    def _hand_out(
        self, entries: list[Entry], out: Outgoing, room: int, now_ms: int, *, is_fresh: bool
    ) -> int:
        """How many of the entries were handed out, or put aside until somebody can take them."""
        at = 0
        while at < len(entries) and room > 0 and not self._unacked.is_blocked:
            consumer = self._round_robin.next()
            if consumer is None:
                break
            left = min(self._turn_messages, consumer.permits, room, self._unacked.room(consumer))
            room -= left
            while at < len(entries) and left > 0:
                entry = entries[at]
                at += 1
                if entry.count > 1:
                    out.add(consumer, entry, (entry.count, NO_HASH))
                    left -= entry.count
                    continue
                metadata = _metadata_of(entry)
                if metadata is None:
                    out.add(consumer, entry, _ONE)
                    left -= 1
                elif metadata.deliver_at_time and self._is_put_off(entry, metadata, now_ms, is_fresh):
                    pass
                elif not metadata.uuid:
                    out.add(consumer, entry, _ONE)
                    left -= 1
                elif self._hand_out_chunk(entry, metadata, consumer, out):
                    left -= 1
            room += left
        return at

    def _hand_out_chunk(
        self, entry: Entry, metadata: MessageMetadata, consumer: Consumer, out: Outgoing
    ) -> bool:
        """Whether it went to `consumer`; it may belong to another, or have to wait for that one."""
        owner = self._chunks.owner(metadata.uuid, consumer)
        if owner.permits <= 0 or owner.is_blocked:
            self._chunks.wait(owner, entry.offset)
            return False
        out.add(owner, entry, _ONE)
        if metadata.chunk_id >= metadata.num_chunks_from_msg - 1:
            self._chunks.ended(metadata.uuid)
        return owner is consumer

    def _is_put_off(self, entry: Entry, metadata: MessageMetadata, now_ms: int, is_fresh: bool) -> bool:
        delay = self._delay
        if delay is None:
            return False
        if is_fresh and delay.holds(entry.offset):
            return True
        if metadata.deliver_at_time <= now_ms:
            return False
        delay.add(entry.offset, metadata.deliver_at_time)
        return True

    # --- what became of it

    def acked(self, owner: Consumer, messages: int, done: Sequence[tuple[int, int]]) -> bool:
        self._redeliveries.acked(done)
        unblocked = self._unacked.removed(owner, messages)
        if unblocked:
            self.took_more(owner)
        return unblocked

    def passing(self, end: int) -> None:
        self._replay.remove_range(0, end)
        self._redeliveries.forget_below(end)
        for consumer in self.consumers:
            for offset, (count, _) in list(consumer.pending.items()):
                if offset < end:
                    self._unacked.removed(consumer, self._reading.unacked(offset, min(count, end - offset)))
                    if offset + count <= end:
                        del consumer.pending[offset]

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None) -> None:
        pending = consumer.pending
        wanted = list(pending) if offsets is None else [offset for offset in offsets if offset in pending]
        messages = 0
        for offset in wanted:
            messages += self._reading.unacked(offset, pending.pop(offset)[0])
        consumer.messages_redelivered += messages
        self._redeliveries.count(wanted)
        self._replay.update(wanted)
        self._unacked.removed(consumer, messages)

    def restart(self) -> None:
        self._replay.clear()
        self._redeliveries.clear()
        self._chunks.clear()
        if self._delay is not None:
            self._delay.rewound()
        for consumer in self.consumers:
            consumer.pending.clear()
            self._unacked.removed(consumer, consumer.unacked)
        self._reading.rewind()

    def close(self) -> None:
        """There are no timers."""


def _metadata_of(entry: Entry) -> MessageMetadata | None:
    """None if it cannot be read: the client that gets the entry will say so."""
    try:
        return read_metadata(entry.payload)
    except Corrupt:
        return None
