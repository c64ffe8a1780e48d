"""Dispatch of shared subscriptions: what waits for another try first, then the log, to whoever can take it.

    replay ─┐
            ├─> entries ─> put off what is delayed ─> round robin ─> deliver
    log   ──┘

Entries that come back (a negative acknowledgement, a consumer that goes, a delay that is over) are kept as
offsets in a bitmap and read from the log again.  Metadata is parsed only of entries with one message: clients
neither delay nor cut into chunks what they batch.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from pyroaring import BitMap64

from anabranch.records.batch import HEADER_SIZE
from anabranch.records.entries import Entry
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from anabranch.subscriptions.chunks import Chunks
from anabranch.subscriptions.consumer import NO_HASH, Consumer
from anabranch.subscriptions.delaying import Delaying, metadata_of
from anabranch.subscriptions.dispatcher import Budget, Outcome
from anabranch.subscriptions.outgoing import Outgoing
from anabranch.subscriptions.outstanding import OffsetAndHash, Outstanding
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.shared import RoundRobin
from anabranch.subscriptions.surroundings import Surroundings

_REPLAYED = 256  # entries that are looked for again in a turn
_ONE = (1, NO_HASH)


class SharedDispatch:
    def __init__(
        self,
        reading: Reading,
        surroundings: Surroundings,
        outstanding: Outstanding,
        delaying: Delaying,
        settings: SubscriptionSettings,
    ) -> None:
        self.settings = settings
        self._round_robin = RoundRobin()
        self.consumers = self._round_robin.consumers
        self._reading = reading
        self._surroundings = surroundings
        self._outstanding = outstanding
        self._unacked = outstanding.unacked
        self._delaying = delaying
        self._replay = BitMap64()
        self._chunks = Chunks()
        self._bytes_per_message = 1024.0

    def suits(self, consumer: Consumer) -> bool:
        return True

    def attach(self, consumer: Consumer) -> None:
        self._round_robin.add(consumer)

    def detach(self, consumer: Consumer) -> None:
        self._round_robin.remove(consumer)
        self._chunks.forget(consumer)
        self._replay.update(self._chunks.awaited(consumer))
        self._again(self._outstanding.left(consumer))

    def took_more(self, consumer: Consumer) -> None:
        self._replay.update(self._chunks.awaited(consumer))

    def _again(self, back: Iterable[OffsetAndHash]) -> None:
        self._replay.update([offset for offset, _ in back])

    # --- delivering

    def turn(self, budget: Budget) -> Outcome:
        able = [consumer for consumer in self.consumers if consumer.can_take()]
        if not able or self._unacked.is_blocked:
            return Outcome.NOBODY
        if self._chunks.is_waiting:
            for consumer in able:
                self.took_more(consumer)
        now_ms = self._surroundings.clock.now_ms()
        self._replay.update(self._delaying.due(now_ms))
        reading = self._reading
        room = min(sum([consumer.permits for consumer in able]), budget.messages)
        max_bytes = min(budget.size_bytes, int(room * (self._bytes_per_message + HEADER_SIZE)))
        is_fresh = not self._replay
        if is_fresh:
            entries = reading.fresh(max_bytes)
        else:
            offsets = list(islice(self._replay, min(room, _REPLAYED)))
            entries, settled = reading.again(offsets, max_bytes)
            self._replay.difference_update(BitMap64(offsets[:settled]))
        if not entries and reading.disk is not None:
            return Outcome.DISK
        out = Outgoing(reading, self._outstanding.redeliveries.counts, self._unacked)
        handed_out = self._hand_out(entries, out, room, now_ms, is_fresh=is_fresh)
        if handed_out < len(entries):
            if is_fresh:
                reading.offset = entries[handed_out].offset
            else:
                self._replay.update([entry.offset for entry in entries[handed_out:]])
        self._delaying.passed(reading.offset)
        out.send(now_ms)
        if out.messages:
            self._bytes_per_message = (self._bytes_per_message + out.size_bytes / out.messages) / 2
        budget.messages -= out.messages
        budget.size_bytes -= out.size_bytes
        return Outcome.END if reading.is_at_end and not self._replay else Outcome.MORE

    def _hand_out(
        self, entries: Sequence[Entry], out: Outgoing, room: int, now_ms: int, *, is_fresh: bool
    ) -> int:
        """How many of the entries were handed out, or put aside until somebody can take them."""
        at = 0
        while at < len(entries) and room > 0 and not self._unacked.is_blocked:
            consumer = self._round_robin.next()
            if consumer is None:
                break
            left = min(
                self.settings.round_robin_messages, consumer.permits, room, self._unacked.room(consumer)
            )
            room -= left
            while at < len(entries) and left > 0 and not self._unacked.is_blocked:
                entry = entries[at]
                at += 1
                if entry.count > 1:
                    out.add(consumer, entry, (entry.count, NO_HASH))
                    left -= entry.count
                    continue
                metadata = metadata_of(entry)
                if metadata.deliver_at_time and self._is_put_off(
                    entry, metadata.deliver_at_time, now_ms, is_fresh
                ):
                    continue
                if not metadata.uuid:
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

    def _is_put_off(self, entry: Entry, deliver_at_ms: int, now_ms: int, is_fresh: bool) -> bool:
        if not self.settings.delays_delivery:
            deliver_at_ms = 0  # but what was put aside before is the index's
        return self._delaying.is_put_off(entry.offset, deliver_at_ms, now_ms, is_fresh=is_fresh)

    # --- what became of it

    def acked(self, owner: Consumer, messages: int, done: Sequence[OffsetAndHash]) -> bool:
        unblocked = self._outstanding.acked(owner, messages, done)
        if unblocked:
            self.took_more(owner)
        return unblocked

    def passing(self, end: int) -> None:
        self._replay.remove_range(0, end)
        self._outstanding.passed(self.consumers, end)

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None) -> None:
        self._again(self._outstanding.given_back(consumer, offsets))
        self.took_more(consumer)

    def give_back(self, offsets: Sequence[int]) -> None:
        self._again(self._outstanding.taken_back(self.consumers, offsets))
        self._replay.update([offset for offset in offsets if not self._is_ahead(offset)])

    def _is_ahead(self, offset: int) -> bool:
        """Whether reading comes to an entry by itself: it went back since that was delivered."""
        return offset >= self._reading.offset and not self._delaying.has_given(offset)

    def restart(self) -> None:
        self._replay.clear()
        self._chunks.clear()
        self._delaying.rewound()
        self._outstanding.clear(self.consumers)
        self._reading.rewind()

    def close(self) -> None:
        """There are no timers."""
