"""Runs of offsets that are in the same state, in order and without holes: what a share partition is made of.

    first   0        5          500        1000
            │ done   │ with A   │ free, 1  │            four numbers say it of a thousand records
            └────────┴──────────┴──────────┘

A span is cut where something happens to a part of it and joined with its neighbours when they are alike
again, so that the cost is that of the batches which consumers were given, and of single records only where
they acknowledge singly.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from anabranch.groups.share_state import DeliveryState

NOBODY = ""

_first_of = attrgetter("first")


class Span:
    """Offsets `first` to `end`, exclusive, delivered `count` times.

    Of those that are ACQUIRED somebody is the owner, until the deadline.  While a `change` is being made
    durable they keep their state, and `target` is what follows.
    """

    __slots__ = ("change", "count", "deadline_ms", "end", "first", "owner", "state", "target")

    def __init__(
        self,
        first: int,
        end: int,
        state: DeliveryState,
        count: int,
        owner: str = NOBODY,
        deadline_ms: int = 0,
        change: object | None = None,
        target: DeliveryState | None = None,
    ) -> None:
        self.first = first
        self.end = end
        self.state = state
        self.count = count
        self.owner = owner
        self.deadline_ms = deadline_ms
        self.change = change
        self.target = target

    @property
    def is_free(self) -> bool:
        return self.state is DeliveryState.AVAILABLE and self.change is None

    @property
    def is_done(self) -> bool:
        return self.state is DeliveryState.ACKNOWLEDGED or self.state is DeliveryState.ARCHIVED

    def continues(self, before: "Span") -> bool:
        """Whether it is as the span before it, and could be one with it."""
        if self.is_done:
            return before.is_done  # however it came to be
        return (
            self.state is before.state
            and self.change is before.change
            and self.count == before.count
            and self.owner == before.owner
            and self.deadline_ms == before.deadline_ms
            and self.target is before.target
        )


class Spans:
    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    @property
    def head(self) -> Span | None:
        return self._spans[0] if self._spans else None

    def overlapping(self, first: int, end: int) -> list[Span]:
        """The spans that have offsets of `first` to `end`, whole."""
        spans = self._spans
        at = max(bisect_right(spans, first, key=_first_of) - 1, 0)
        stop = bisect_right(spans, end - 1, lo=at, key=_first_of)
        return [span for span in spans[at:stop] if span.end > first]

    def from_offset(self, offset: int) -> Iterator[Span]:
        """The span that holds `offset` and those after it; not to be changed meanwhile."""
        spans = self._spans
        for at in range(max(bisect_right(spans, offset, key=_first_of) - 1, 0), len(spans)):
            yield spans[at]

    def add(self, span: Span) -> None:
        """Put one behind the last."""
        last = self._spans[-1] if self._spans else None
        if last is not None and span.continues(last):
            last.end = span.end
        else:
            self._spans.append(span)

    def cut(self, first: int, end: int) -> list[Span]:
        """The spans that are exactly `first` to `end`, which are known."""
        self._split(first)
        self._split(end)
        return self.overlapping(first, end)

    def _split(self, offset: int) -> None:
        spans = self._spans
        at = bisect_right(spans, offset, key=_first_of) - 1
        if at < 0 or spans[at].first == offset or spans[at].end <= offset:
            return
        left = spans[at]
        right = Span(
            offset,
            left.end,
            left.state,
            left.count,
            left.owner,
            left.deadline_ms,
            left.change,
            left.target,
        )
        left.end = offset
        spans.insert(at + 1, right)

    def join(self, first: int, end: int) -> None:
        """Make one of neighbours that are alike, from the one before `first` to the one after `end`."""
        spans = self._spans
        at = max(bisect_right(spans, first, key=_first_of) - 2, 0)
        stop = min(bisect_right(spans, end, lo=at, key=_first_of) + 1, len(spans))
        joined: list[Span] = []
        for span in spans[at:stop]:
            if joined and span.continues(joined[-1]):
                joined[-1].end = span.end
            else:
                joined.append(span)
        if len(joined) < stop - at:
            spans[at:stop] = joined

    def drop_below(self, offset: int) -> None:
        self._split(offset)
        spans = self._spans
        stop = bisect_right(spans, offset - 1, key=_first_of)
        del spans[:stop]
