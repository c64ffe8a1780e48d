"""The high watermark: the offset below which a partition's records are safe to show.

A record is safe once every in-sync replica holds it.  The leader learns how far a follower has got
from the follower's own fetches, so there is no I/O and no clock here.

    ends  a=9 b=7 c=4    in sync {a, b, c}   ->  4
                         c leaves the set    ->  7
                         b leaves too        ->  7 while min_insync is 2, else 9

Invariants, checked by tests/model/test_watermark.py:
  * it never moves back while this replica leads, whatever a follower reports;
  * it stands still while fewer than `min_insync` replicas are in sync, so a set that shrank to the
    leader alone cannot commit what acks=all promised;
  * an in-sync replica not heard from since the election holds it where it was.

`in_sync` includes replicas the controller has been asked to add but has not confirmed: waiting for
one more replica is always safe, forgetting one is not.
"""

from anabranch.base.ids import BrokerId

_NOT_HEARD_FROM = -1


class HighWatermark:
    __slots__ = ("_alone", "_ends", "_in_sync", "_min_insync", "lacks_replicas", "offset")

    def __init__(self, offset: int, in_sync: frozenset[BrokerId], min_insync: int) -> None:
        self.offset = offset
        self._ends: dict[BrokerId, int] = {}
        self._in_sync = in_sync
        self._min_insync = min_insync
        self._alone: BrokerId | None = None  # the only replica there is, whose end is what counts
        self._find_alone()

    def replica_reached(self, replica: BrokerId, end: int) -> bool:
        """`replica` holds every record below `end`.  True if the watermark moved."""
        self._ends[replica] = end
        if replica != self._alone:
            return self._advance()
        if end <= self.offset:
            return False
        self.offset = end
        return True

    def in_sync_changed(self, in_sync: frozenset[BrokerId], min_insync: int) -> bool:
        """The in-sync set is now `in_sync`.  True if the watermark moved."""
        self._in_sync = in_sync
        self._min_insync = min_insync
        self._find_alone()
        return self._advance()

    def _find_alone(self) -> None:
        self.lacks_replicas = len(self._in_sync) < self._min_insync
        alone = len(self._in_sync) == 1 and self._min_insync <= 1
        self._alone = next(iter(self._in_sync)) if alone else None

    def _advance(self) -> bool:
        if self.lacks_replicas:
            return False
        ends = self._ends
        safe = min([ends.get(replica, _NOT_HEARD_FROM) for replica in self._in_sync])
        if safe <= self.offset:
            return False
        self.offset = safe
        return True
