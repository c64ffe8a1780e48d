"""A partition as one share group reads it: which records are free, out with whom, or done with.  Pure.

           acquire                    accept                     once durable
    free ───────────> with a member ─────────> (acknowledged) ──────────────> acknowledged
     ^                  │   │ ^  │              reject, gap
     │   release,       │   └─┘  └───────────> (archived) ──────────────────> archived
     └── lock timed out ┘   renew               or delivered as often as allowed

     start ─> done with below                                end ─> never given out from here on

A record is delivered to one member at a time, which has it until the lock's deadline.  An acknowledgement
changes nothing at once: it makes a `Change`, whose records nobody else is given, until the caller has made
it durable (`commit`) or has not (`roll_back`: they are with the member again, until the deadline).

At most `max_locks` offsets lie between start and end.  A fetch takes whole batches of the log and may end
beyond, unless it is `strict`.

A record that fails again and again should not take its neighbours with it: from half the deliveries that
are allowed on, a delivery has half the records of the one before, and the last one is of a record alone.

What has no record (batches of markers, aborted transactions, what compaction took) is archived on the way.

The dispatcher of Pulsar's shared subscriptions has no part in this, though both let consumers share a topic:
that one pushes entries to whoever has permits and counts what came back in memory; this one is asked, knows
deadlines, and must keep the counts.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from anabranch.base.errors import Invalid, InvalidRecordState
from anabranch.groups.share_state import DeliveryState, StateBatch
from anabranch.subscriptions.share_spans import NOBODY, Span, Spans
from anabranch.subscriptions.share_taking import Asked, Taking

_FREE = DeliveryState.AVAILABLE
_TAKEN = DeliveryState.ACQUIRED
_ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
_ARCHIVED = DeliveryState.ARCHIVED


class AckKind(IntEnum):
    """Numbered as on the wire."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Cause(IntEnum):
    """Why a record is given up."""

    REJECTED = 1
    DELIVERED_TOO_OFTEN = 2


class ShareRules(NamedTuple):
    """What the group is told; may change at any time."""

    max_locks: int
    max_deliveries: int
    lock_ms: int


class Batch(NamedTuple):
    """A batch of the log, offsets `first` to `end`; one that `is_void` has no record for anybody."""

    first: int
    end: int
    is_void: bool


class Acquired(NamedTuple):
    first: int
    last: int
    """Inclusive, as on the wire."""
    deliveries: int


class Ack(NamedTuple):
    first: int
    end: int
    kind: AckKind


class GivenUp(NamedTuple):
    first: int
    end: int
    deliveries: int
    cause: Cause


class Change:
    """What an acknowledgement, a timeout or a release does, once it is durable."""

    __slots__ = ("batches", "given_up")

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []
        self.given_up: list[GivenUp] = []

    def __bool__(self) -> bool:
        return bool(self.batches)

    def give_up(self, new: GivenUp) -> None:
        last = self.given_up[-1] if self.given_up else None
        if last is not None and last.end == new.first and last[2:] == new[2:]:
            self.given_up[-1] = last._replace(end=new.end)
        else:
            self.given_up.append(new)


class SharePartition:
    __slots__ = ("_done", "_free_from", "_spans", "end", "rules", "start")

    def __init__(self, start: int, rules: ShareRules, batches: Sequence[StateBatch] = ()) -> None:
        """`batches` are what is kept of it, in order; what they do not name above `start` is free."""
        self.start = start
        self.end = start
        self.rules = rules
        self._spans = Spans()
        self._done = 0
        self._free_from = start  # nothing below is free
        for first, last, state, count in batches:
            first = max(first, self.end)
            if last < first:
                continue
            if first > self.end:
                self._spans.add(Span(self.end, first, _FREE, 0))
            self._spans.add(Span(first, last + 1, _FREE if state == _TAKEN else state, count))
            self.end = last + 1
        self._done = sum(span.end - span.first for span in self._spans if span.is_done)
        self._advance()

    # --- taking

    @property
    def room(self) -> int:
        """How many more records may be given out that never were."""
        return max(self.rules.max_locks - (self.end - self.start), 0)

    def next_offset(self) -> int | None:
        """Where to read: the first record that can be taken; None while there is none."""
        for span in self._spans.from_offset(self._free_from):
            if span.is_free:
                self._free_from = span.first
                return span.first
        self._free_from = self.end
        return self.end if self.room else None

    def acquire(
        self, member: str, offset: int, batches: Iterable[Batch], asked: Asked, now_ms: int
    ) -> list[Acquired]:
        """Give `member` what can be taken of `batches`, which were read from `offset` on.

        Takes no more of them than it needs, so that they can be read on the way.
        """
        taking = Taking(asked, member, now_ms + self.rules.lock_ms)
        at = offset
        for batch in batches:
            self._void(at, batch.first)
            at = batch.end
            if batch.is_void:
                self._void(batch.first, batch.end)
                continue
            first = max(batch.first, self.start)
            if first < self.end:
                self._take_again(taking, first, batch)
            if batch.end > self.end and not taking.is_over:
                self._take_fresh(taking, batch.end)
            taking.end_of_batch()
            if taking.is_over:
                break
        self._advance()
        return [Acquired(first, end - 1, count) for first, end, count in taking.taken]

    def _take_again(self, taking: Taking, first: int, batch: Batch) -> None:
        """What is free of `batch` from `first` on and was delivered before, or passed over."""
        for span in self._spans.overlapping(first, min(batch.end, self.end)):
            if not span.is_free:
                continue
            portion = self._portion(span.count, max(span.end - span.first, batch.end - batch.first))
            if not taking.may_have(span.count, portion):
                return
            at, stop = max(span.first, first), min(span.end, batch.end)
            if taking.room is not None:
                stop = min(stop, at + taking.room)
            for part in self._spans.cut(at, stop):
                part.state, part.owner = _TAKEN, taking.member
                part.count += 1
                part.deadline_ms = taking.deadline_ms
                taking.took(part.first, part.end, part.count)
            self._spans.join(at, stop)
            if taking.is_over:
                return

    def _take_fresh(self, taking: Taking, end: int) -> None:
        first, room = self.end, self.room
        if not room or not taking.may_have(0, None):
            taking.is_over = True
            return
        stop = end if taking.room is None else min(end, first + min(taking.room, room))
        self._spans.add(Span(first, stop, _TAKEN, 1, taking.member, taking.deadline_ms))
        self.end = stop
        taking.took(first, stop, 1)
        taking.is_over |= stop < end  # what follows would be behind a hole

    def _portion(self, count: int, together: int) -> int | None:
        """How many records that were delivered so often, `together`, may go out now; None: any number."""
        most = self.rules.max_deliveries
        halved_from = max(2, (most + 1) // 2)
        if most <= 2 or count < halved_from:
            return None
        if count + 1 >= most:
            return 1
        return max(together >> (count - halved_from + 1), 1)

    def _void(self, first: int, end: int) -> None:
        """There are no records here, and none will come."""
        first = max(first, self.start)
        if first >= end:
            return
        for span in self._spans.overlapping(first, min(end, self.end)):
            if span.is_free:
                for part in self._spans.cut(max(span.first, first), min(span.end, end)):
                    part.state = _ARCHIVED
                    self._done += part.end - part.first
        if end > self.end:
            self._spans.add(Span(self.end, end, _ARCHIVED, 0))
            self._done += end - self.end
            self.end = end
        self._spans.join(first, end)

    # --- what becomes of it

    def acknowledge(self, member: str, acks: Sequence[Ack], now_ms: int) -> Change:
        """All of `acks`, which are in order, or InvalidRecordState and none; below start all is settled."""
        for first, end, _ in acks:
            self._check(member, max(first, self.start), end)
        change = Change()
        for first, end, kind in acks:
            first = max(first, self.start)
            if first >= end:
                continue
            for span in self._spans.cut(first, end):
                if kind is AckKind.RENEW:
                    span.deadline_ms = now_ms + self.rules.lock_ms
                else:
                    self._settle(change, span, kind)
            self._spans.join(first, end)
        return change

    def _check(self, member: str, first: int, end: int) -> None:
        if first >= end:
            return
        if self.start == self.end:  # as it is when another leader has given them out
            raise InvalidRecordState(f"offset {first} is not acquired")
        if end > self.end:
            raise Invalid(f"offset {end - 1} was not given to anybody")
        for span in self._spans.overlapping(first, end):
            if span.state is not _TAKEN or span.change is not None:
                raise InvalidRecordState(f"offset {max(span.first, first)} is not acquired")
            if span.owner != member:
                raise InvalidRecordState(f"offset {max(span.first, first)} is another member's")

    def release(self, member: str) -> Change:
        """The member goes, and has what it has no more."""
        change = Change()
        for span in self._spans:
            if span.owner == member and span.change is None:
                self._settle(change, span, AckKind.RELEASE)
        return change

    def expire(self, now_ms: int) -> Change:
        """Take back what is not acknowledged in time."""
        change = Change()
        for span in self._spans:
            if span.state is _TAKEN and span.change is None and span.deadline_ms <= now_ms:
                self._settle(change, span, AckKind.RELEASE)
        return change

    @property
    def next_deadline_ms(self) -> int | None:
        """When something is to be taken back."""
        deadlines = [span.deadline_ms for span in self._spans if span.state is _TAKEN and span.change is None]
        return min(deadlines, default=None)

    def _settle(self, change: Change, span: Span, kind: AckKind) -> None:
        if kind is AckKind.ACCEPT:
            self._to(change, span, _ACKNOWLEDGED)
        elif kind is AckKind.RELEASE and span.count < self.rules.max_deliveries:
            self._to(change, span, _FREE)
        else:
            self._to(change, span, _ARCHIVED)
            if kind is not AckKind.GAP:
                cause = Cause.REJECTED if kind is AckKind.REJECT else Cause.DELIVERED_TOO_OFTEN
                change.give_up(GivenUp(span.first, span.end, span.count, cause))

    def _to(self, change: Change, span: Span, target: DeliveryState) -> None:
        span.change, span.target = change, target
        batches = change.batches
        new = StateBatch(span.first, span.end - 1, target, span.count)
        if batches and batches[-1].last_offset + 1 == new.first_offset and batches[-1][2:] == new[2:]:
            batches[-1] = batches[-1]._replace(last_offset=new.last_offset)
        else:
            batches.append(new)

    # --- making it durable

    def after(self, change: Change) -> tuple[int, int]:
        """The start that holds once `change` is durable, and how many records above it are done with then."""
        start, done = self.start, self._done
        for first, last, state, _ in change.batches:
            if state is not _FREE:
                changing = [
                    span for span in self._spans.overlapping(first, last + 1) if span.change is change
                ]
                done += sum(span.end - span.first for span in changing)
        for span in self._spans:
            if not span.is_done and (span.change is not change or span.target is _FREE):
                break
            start = span.end
            done -= span.end - span.first
        return start, done

    def commit(self, change: Change) -> None:
        for first, last, state, _ in change.batches:
            for span in self._spans.overlapping(first, last + 1):
                if span.change is change:
                    span.state, span.change, span.target = state, None, None
                    span.owner, span.deadline_ms = NOBODY, 0
                    if span.is_done:
                        self._done += span.end - span.first
                    else:
                        self._free_from = min(self._free_from, span.first)
            self._spans.join(first, last + 1)
        self._advance()

    def roll_back(self, change: Change) -> None:
        for first, last, _, _ in change.batches:
            for span in self._spans.overlapping(first, last + 1):
                if span.change is change:
                    span.change, span.target = None, None
            self._spans.join(first, last + 1)

    def begin_at(self, log_start: int) -> None:
        """The log has nothing below `log_start` any more: whoever has records of there may keep them."""
        if log_start <= self.start:
            return
        self._spans.drop_below(log_start)
        self._done = sum(span.end - span.first for span in self._spans if span.is_done)
        self.start = log_start
        self.end = max(self.end, log_start)
        self._advance()

    def _advance(self) -> None:
        """Forget what is done with at the beginning."""
        head = self._spans.head
        if head is not None and head.is_done:
            self._done -= head.end - head.first
            self.start = head.end
            self._spans.drop_below(head.end)
        self._free_from = max(self._free_from, self.start)
