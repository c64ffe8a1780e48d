"""Record acquisition by one share fetch: how much it wants, how much it has, when that is enough.

A fetch takes what is free, batch by batch of the log, until it has as many records as it asked for; the last
batch is taken as a whole, unless the fetch is strict.  Of records that have failed often it takes a portion
and nothing else.  It reads over what others have, if that is not too much, for more.
"""

from typing import NamedTuple

_MOST_PASSED = 64  # batches in a row that a fetch reads over for more, once it has something


class Asked(NamedTuple):
    """How much a fetch wants."""

    max_records: int
    batch_size: int = 1
    """How many records one `Acquired` should have at least, if there are as many in a row."""
    is_strict: bool = False


class Taking:
    """What a fetch has taken so far; of records that have failed often, a portion and nothing else."""

    __slots__ = (
        "_failed",
        "_is_closed",
        "_most",
        "_passed",
        "_seen",
        "asked",
        "deadline_ms",
        "is_over",
        "member",
        "records",
        "taken",
    )

    def __init__(self, asked: Asked, member: str, deadline_ms: int) -> None:
        self.asked = asked
        self.member = member
        self.deadline_ms = deadline_ms
        self.records = 0
        self.taken: list[tuple[int, int, int]] = []
        self.is_over = asked.max_records <= 0
        self._is_closed = True
        self._passed = 0
        self._seen = 0
        self._most: int | None = None
        self._failed = 0

    @property
    def room(self) -> int | None:
        """How many more records it may have of a batch; None: the batch as a whole."""
        if self._most is not None:
            return self._most - self.records
        return self.asked.max_records - self.records if self.asked.is_strict else None

    def may_have(self, count: int, portion: int | None) -> bool:
        """Whether records that were delivered `count` times, of which only a portion may go, can go too."""
        if self.records == 0 and portion is not None:
            asked = self.asked
            self._most = min(portion, asked.max_records) if asked.is_strict else portion
            self._failed = count
        elif (self._most is not None and count != self._failed) or (
            self._most is None and portion is not None
        ):
            self.is_over = True
        return not self.is_over

    def took(self, first: int, end: int, count: int) -> None:
        self.records += end - first
        self.is_over = self.records >= (self._most or self.asked.max_records)
        last = self.taken[-1] if not self._is_closed else None
        if last is not None and last[1] == first and last[2] == count:
            self.taken[-1] = (last[0], end, count)
        else:
            self.taken.append((first, end, count))
        self._is_closed = False

    def end_of_batch(self) -> None:
        if self.records == self._seen:
            self._passed += 1
            self.is_over |= self.records > 0 and self._passed > _MOST_PASSED
            return
        self._seen, self._passed = self.records, 0
        first, end, _ = self.taken[-1]
        self._is_closed = end - first >= self.asked.batch_size
