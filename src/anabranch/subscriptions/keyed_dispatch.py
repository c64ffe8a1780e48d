"""Dispatch of key_shared subscriptions: each message to the consumer that has its key.

    waited ─┐
    due    ─┼─> entries ─> hash of the key ─> KeyRouter ─> deliver, or wait
    log   ──┘

What waits for its consumer or its turn does not keep messages of other keys: reading goes on ahead of it, up
to a bound on how many wait.  Then nothing is read until some of them could be handed out.

`waited` are entries whose hash is known, `due` are those that come back from a delay, whose hash is not.
"""

from collections.abc import Sequence
from itertools import islice

from pyroaring import BitMap64

from anabranch.records.batch import HEADER_SIZE
from anabranch.records.entries import Entry
from anabranch.subscriptions.consumer import Consumer, KeySharing
from anabranch.subscriptions.delaying import Delaying, metadata_of
from anabranch.subscriptions.dispatcher import Budget, Outcome
from anabranch.subscriptions.hash_ranges import HashRing, StickyRanges
from anabranch.subscriptions.key_hash import key_of
from anabranch.subscriptions.key_shared import KeyRouter
from anabranch.subscriptions.outgoing import Outgoing
from anabranch.subscriptions.outstanding import OffsetAndHash, Outstanding
from anabranch.subscriptions.reading import Reading
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.surroundings import Surroundings

_AGAIN = 256  # entries that are looked for again in a turn
_LOOK_AHEAD = 200_000  # entries that may wait where no setting bounds them


class KeyedDispatch:
    def __init__(
        self,
        sharing: KeySharing,
        reading: Reading,
        surroundings: Surroundings,
        outstanding: Outstanding,
        delaying: Delaying,
        settings: SubscriptionSettings,
    ) -> None:
        """`sharing` is how the first consumer wants it; others must want the same."""
        self.consumers: list[Consumer] = []
        self.settings = settings
        owners = HashRing(settings.hash_points) if sharing.ranges is None else StickyRanges()
        self.router = KeyRouter(owners, keeps_order=not sharing.allows_out_of_order)
        self._is_sticky = sharing.ranges is not None
        self._reading = reading
        self._surroundings = surroundings
        self._outstanding = outstanding
        self._unacked = outstanding.unacked
        self._delaying = delaying
        self._due = BitMap64()
        self._bytes_per_message = 1024.0

    def suits(self, consumer: Consumer) -> bool:
        sharing = consumer.key_sharing
        is_sticky, keeps_order = sharing.ranges is not None, not sharing.allows_out_of_order
        return is_sticky == self._is_sticky and keeps_order == self.router.keeps_order

    def attach(self, consumer: Consumer) -> None:
        self.router.add(consumer)
        self.consumers.append(consumer)

    def detach(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self.router.remove(consumer, self._outstanding.left(consumer))

    def took_more(self, consumer: Consumer) -> None:
        """The next turn looks for itself."""

    # --- delivering

    def turn(self, budget: Budget) -> Outcome:
        able = [consumer for consumer in self.consumers if consumer.can_take()]
        if not able or self._unacked.is_blocked:
            return Outcome.NOBODY
        now_ms = self._surroundings.clock.now_ms()
        self._due.update(self._delaying.due(now_ms))
        reading = self._reading
        room = min(sum([consumer.permits for consumer in able]), budget.messages)
        max_bytes = min(budget.size_bytes, int(room * (self._bytes_per_message + HEADER_SIZE)))
        out = Outgoing(reading, self._outstanding.redeliveries.counts, self._unacked)
        if self._has_ready(able):
            self._hand_out_waited(able, out, room, max_bytes)
        elif self._due:
            offsets = list(islice(self._due, min(room, _AGAIN)))
            entries, settled = reading.again(offsets, max_bytes)
            self._due.difference_update(BitMap64(offsets[:settled]))
            handed_out = self._hand_out(able, entries, out, room, now_ms, is_fresh=False)
            self._due.update([entry.offset for entry in entries[handed_out:]])
        elif len(self.router) < self._look_ahead():
            entries = reading.fresh(max_bytes)
            handed_out = self._hand_out(able, entries, out, room, now_ms, is_fresh=True)
            if handed_out < len(entries):
                reading.offset = entries[handed_out].offset
            self._delaying.passed(reading.offset)
        else:
            return Outcome.FULL
        out.send(now_ms)
        if out.messages:
            self._bytes_per_message = (self._bytes_per_message + out.size_bytes / out.messages) / 2
        budget.messages -= out.messages
        budget.size_bytes -= out.size_bytes
        if reading.disk is not None:
            return Outcome.DISK
        return Outcome.MORE if self._due or not reading.is_at_end or self._has_ready(able) else Outcome.END

    def _has_ready(self, consumers: Sequence[Consumer]) -> bool:
        return len(self.router) > 0 and any(self.router.has_ready(consumer) for consumer in consumers)

    def _look_ahead(self) -> int:
        """How many entries may wait: 0 is no bound, as in Pulsar."""
        each, together = self.settings.look_ahead_per_consumer, self.settings.look_ahead_per_subscription
        bounds = [bound for bound in (each * len(self.consumers), together) if bound > 0]
        return min(bounds, default=self.settings.max_unacked_per_subscription or _LOOK_AHEAD)

    def _hand_out_waited(self, able: Sequence[Consumer], out: Outgoing, room: int, max_bytes: int) -> None:
        """What waited for one of those who can take something now."""
        router = self.router
        takers: dict[int, tuple[Consumer, int]] = {}
        for consumer in able:
            limit = min(consumer.permits, _AGAIN - len(takers))
            takers.update((offset, (consumer, hash)) for offset, hash in router.take_ready(consumer, limit))
        offsets = sorted(takers)
        entries, settled = self._reading.again(offsets, max_bytes)
        for offset in offsets[settled:]:
            router.wait(offset, takers[offset][1])
        for entry in entries:
            consumer, hash = takers[entry.offset]
            if consumer.permits <= 0 or consumer.is_blocked or room <= 0 or self._unacked.is_blocked:
                router.wait(entry.offset, hash)
                continue
            room -= entry.count
            router.hold(consumer, hash)
            out.add(consumer, entry, (entry.count, hash))

    def _hand_out(
        self,
        able: Sequence[Consumer],
        entries: Sequence[Entry],
        out: Outgoing,
        room: int,
        now_ms: int,
        *,
        is_fresh: bool,
    ) -> int:
        """How many of the entries were handed out, or wait now."""
        router = self.router
        writable = set(able)
        for index, entry in enumerate(entries):
            if room <= 0 or self._unacked.is_blocked:
                return index
            metadata = metadata_of(entry)
            if metadata.deliver_at_time and self._is_put_off(
                entry, metadata.deliver_at_time, now_ms, is_fresh
            ):
                continue
            hash = router.owners.hash_of(key_of(metadata))
            owner = router.owner_now(hash)
            if owner is None or owner.permits <= 0 or owner.is_blocked or owner not in writable:
                router.wait(entry.offset, hash)
                continue
            room -= entry.count
            router.hold(owner, hash)
            out.add(owner, entry, (entry.count, hash))
        return len(entries)

    def _is_put_off(self, entry: Entry, deliver_at_ms: int, now_ms: int, is_fresh: bool) -> bool:
        if not self.settings.delays_delivery:
            deliver_at_ms = 0  # but what was put aside before is the index's
        return self._delaying.is_put_off(entry.offset, deliver_at_ms, now_ms, is_fresh=is_fresh)

    # --- what became of it

    def acked(self, owner: Consumer, messages: int, done: Sequence[OffsetAndHash]) -> bool:
        unblocked = self._outstanding.acked(owner, messages, done)
        for _, hash in done:
            unblocked |= self.router.release(hash)
        return unblocked

    def passing(self, end: int) -> None:
        for _, hash in self._outstanding.passed(self.consumers, end):
            self.router.release(hash)

    def redeliver(self, consumer: Consumer, offsets: Sequence[int] | None) -> None:
        for offset, hash in self._outstanding.given_back(consumer, offsets):
            self.router.release(hash)
            self.router.wait(offset, hash)

    def give_back(self, offsets: Sequence[int]) -> None:
        back = dict(self._outstanding.taken_back(self.consumers, offsets))
        for offset, hash in back.items():
            self.router.release(hash)
            self.router.wait(offset, hash)
        self._due.update([offset for offset in offsets if offset not in back and not self._is_ahead(offset)])

    def _is_ahead(self, offset: int) -> bool:
        """Whether reading comes to an entry by itself: it went back since that was delivered."""
        return offset >= self._reading.offset and not self._delaying.has_given(offset)

    def restart(self) -> None:
        self.router.clear()
        self._due.clear()
        self._delaying.rewound()
        self._outstanding.clear(self.consumers)
        self._reading.rewind()

    def close(self) -> None:
        """There are no timers."""
