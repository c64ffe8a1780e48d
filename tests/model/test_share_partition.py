"""A share partition against a dictionary of single records, whatever members, clocks and disks do."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.base.errors import Invalid, InvalidRecordState
from anabranch.groups.share_state import DeliveryState, StateBatch
from anabranch.subscriptions.share_partition import (
    Ack,
    AckKind,
    Batch,
    Change,
    SharePartition,
    ShareRules,
)
from anabranch.subscriptions.share_taking import Asked
from tests.unit.records.strategies import seeded

MEMBERS = ("a", "b", "c")
FREE, TAKEN = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
DONE, GONE = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
LOCK_MS = 100


class One:
    """A record as the group sees it."""

    def __init__(self, state: DeliveryState, count: int) -> None:
        self.state = state
        self.count = count
        self.owner = ""
        self.deadline_ms = 0
        self.change: Change | None = None
        self.target = state


class Model(RuleBasedStateMachine):
    @initialize(
        sizes=st.lists(
            st.tuples(st.integers(1, 6), st.integers(0, 2), st.sampled_from("....v")), max_size=30
        ),
        limit=st.integers(2, 6),
        locks=st.integers(3, 40),
    )
    def begin(self, sizes: list[tuple[int, int, str]], limit: int, locks: int) -> None:
        """A log of batches, some of them markers, with holes that compaction left."""
        self.log: list[Batch] = []
        at = 10
        for size, hole, kind in sizes:
            self.log.append(Batch(at + hole, at + hole + size, kind == "v"))
            at += hole + size
        self.rules = ShareRules(locks, limit, LOCK_MS)
        self.share = SharePartition(10, self.rules)
        self.records: dict[int, One] = {}
        self.start = self.end = 10
        self.now_ms = 0
        self.pending: list[Change] = []
        self.kept_start = 10
        self.kept: dict[int, tuple[DeliveryState, int]] = {}

    # --- taking

    @rule(
        member=st.sampled_from(MEMBERS), most=st.integers(1, 12), size=st.integers(1, 8), strict=st.booleans()
    )
    def fetch(self, member: str, most: int, size: int, strict: bool) -> None:
        offset = self.share.next_offset()
        free = [at for at, one in sorted(self.records.items()) if one.state is FREE and one.change is None]
        room = self.rules.max_locks > self.end - self.start
        assert offset == (free[0] if free else self.end if room else None)
        if offset is None:
            return
        batches = [batch for batch in self.log if batch.end > offset]
        got = self.share.acquire(member, offset, batches, Asked(most, size, strict), self.now_ms)
        offsets = [at for first, last, _ in got for at in range(first, last + 1)]
        assert offsets == sorted(set(offsets)), "a record was given out twice"
        voids = self.voids()
        for first, last, count in got:
            for at in range(first, last + 1):
                one = self.records.setdefault(at, One(FREE, 0))
                assert at not in voids, "somebody has what nobody is to have"
                assert one.state is FREE, "it was somebody's, or done with"
                assert one.change is None
                one.state, one.owner, one.deadline_ms = TAKEN, member, self.now_ms + LOCK_MS
                one.count += 1
                assert one.count == count
        if strict:
            assert len(offsets) <= most
        elif offsets:
            last_batch = max(batch.end - batch.first for batch in batches)
            assert len(offsets) < most + max(last_batch, 1) + self.rules.max_locks
        self.check_portions(got)
        # What is no record is archived on the way, as far as was looked.
        self.end = self.share.end
        for at in range(self.start, self.end):
            if at in voids and (at not in self.records or self.is_free(at)) and self.was_passed(at):
                self.records[at] = One(GONE, 0)
        for at in range(self.start, self.end):
            self.records.setdefault(at, One(GONE, 0) if at in voids else One(FREE, 0))
        self.advance()

    def is_free(self, at: int) -> bool:
        one = self.records[at]
        return one.state is FREE and one.change is None

    def was_passed(self, at: int) -> bool:
        """Whether the share partition has found out that there is no record at `at`."""
        return all(not (span.first <= at < span.end and span.is_free) for span in self.share._spans)

    def check_portions(self, got: list[Any]) -> None:
        """Records that have failed often go out alone."""
        limit = self.rules.max_deliveries
        if limit > 2 and any(count == limit for _, _, count in got):
            assert len(got) == 1
            assert got[0].first == got[0].last

    def voids(self) -> set[int]:
        there = {at for batch in self.log if not batch.is_void for at in range(batch.first, batch.end)}
        end = self.log[-1].end if self.log else 10
        return {at for at in range(10, end) if at not in there}

    # --- what becomes of it

    @rule(
        data=st.data(),
        member=st.sampled_from(MEMBERS),
        kinds=st.lists(st.sampled_from(list(AckKind)), min_size=1, max_size=6),
    )
    def acknowledge(self, data: st.DataObject, member: str, kinds: list[AckKind]) -> None:
        held = [at for at, one in sorted(self.records.items()) if one.owner == member and one.state is TAKEN]
        if not held or data.draw(st.integers(0, 9)) == 0:
            first = data.draw(st.integers(8, self.end + 2))
        else:
            first = data.draw(st.sampled_from(held))
        acks = [Ack(first + n, first + n + 1, kind) for n, kind in enumerate(kinds)]
        wrong: set[type[Exception]] = set()
        for ack in acks:
            if ack.end <= self.start:
                continue
            one = self.records.get(ack.first)
            if self.end > self.start and ack.end > self.end:
                wrong.add(Invalid)
            elif one is None or one.state is not TAKEN or one.change is not None or one.owner != member:
                wrong.add(InvalidRecordState)
        if wrong:
            with pytest.raises(Invalid) as refused:
                self.share.acknowledge(member, acks, self.now_ms)
            assert refused.type in wrong
            return
        change = self.share.acknowledge(member, acks, self.now_ms)
        for at, _, kind in acks:
            if at >= self.start:
                self.settle(self.records[at], kind, change)
        self.began(change)

    def settle(self, one: One, kind: AckKind, change: Change) -> None:
        if kind is AckKind.RENEW:
            one.deadline_ms = self.now_ms + LOCK_MS
            return
        one.change = change
        if kind is AckKind.ACCEPT:
            one.target = DONE
        elif kind is AckKind.RELEASE and one.count < self.rules.max_deliveries:
            one.target = FREE
        else:
            one.target = GONE

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        change = self.share.release(member)
        for one in self.records.values():
            if one.owner == member and one.state is TAKEN and one.change is None:
                self.settle(one, AckKind.RELEASE, change)
        self.began(change)

    @rule(ms=st.sampled_from((1, 50, LOCK_MS)))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        taken = [one for one in self.records.values() if one.state is TAKEN and one.change is None]
        assert self.share.next_deadline_ms == min((one.deadline_ms for one in taken), default=None)
        change = self.share.expire(self.now_ms)
        for one in taken:
            if one.deadline_ms <= self.now_ms:
                self.settle(one, AckKind.RELEASE, change)
        self.began(change)

    def began(self, change: Change) -> None:
        changed = {at: one for at, one in self.records.items() if one.change is change}
        written = {at: state for first, last, state, _ in change.batches for at in range(first, last + 1)}
        assert written == {at: one.target for at, one in changed.items()}
        if change:
            self.pending.append(change)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), works=st.booleans())
    def written(self, data: st.DataObject, works: bool) -> None:
        change = self.pending.pop(0)
        changed = [one for one in self.records.values() if one.change is change]
        if not works:
            self.share.roll_back(change)
            for one in changed:
                one.change = None
            return
        start, done = self.share.after(change)
        self.share.commit(change)
        for first, last, state, count in change.batches:
            self.kept.update((at, (state, count)) for at in range(first, last + 1))
        for one in changed:
            one.state, one.change, one.owner = one.target, None, ""
        self.advance()
        assert start == self.start
        assert done == sum(one.state in (DONE, GONE) for one in self.records.values())
        self.kept_start = start

    @precondition(lambda self: not self.pending)
    @rule()
    def restart(self) -> None:
        """Another leader reads what was kept: nothing that was done with comes again."""
        kept = [
            StateBatch(at, at, state, count)
            for at, (state, count) in sorted(self.kept.items())
            if at >= self.kept_start
        ]
        self.share = SharePartition(self.kept_start, self.rules, kept)
        self.start = self.kept_start
        self.records = {}
        self.end = max([self.start, *(batch.last_offset + 1 for batch in kept)])
        for at in range(self.start, self.end):
            state, count = self.kept.get(at, (FREE, 0))
            self.records[at] = One(state, count)
        self.advance()

    @rule(by=st.integers(0, 12))
    def retention(self, by: int) -> None:
        self.start_log_at(self.start + by)

    def start_log_at(self, offset: int) -> None:
        end = self.log[-1].end if self.log else 10
        offset = min(offset, end)
        self.share.begin_at(offset)
        if offset > self.start:
            self.start = offset
            self.end = max(self.end, offset)
            self.records = {at: one for at, one in self.records.items() if at >= offset}
            self.advance()

    def advance(self) -> None:
        while self.start in self.records and self.records[self.start].state in (DONE, GONE):
            del self.records[self.start]
            self.start += 1

    @invariant()
    def is_the_same(self) -> None:
        if not hasattr(self, "share"):
            return
        assert (self.share.start, self.share.end) == (self.start, self.end)
        spans = list(self.share._spans)
        assert [span.first for span in spans[1:]] == [span.end for span in spans[:-1]], "there is a hole"
        for span in spans:
            for at in range(span.first, span.end):
                one = self.records[at]
                assert span.is_done == (one.state in (DONE, GONE))
                assert span.change is one.change
                if not span.is_done:
                    assert (span.state, span.count) == (one.state, one.count)
                    assert span.owner == one.owner
        for left, right in pairwise(spans):
            assert not right.continues(left), "neighbours that are alike are one"


TestSharePartition = Model.TestCase
TestSharePartition.settings = seeded(60)
