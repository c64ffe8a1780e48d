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

`joining` are replicas that are not in sync yet as far as the controller has confirmed it: those it has been
asked to add, and those that keep up and are about to be.  They do not count for `min_insync`, but the
watermark waits for them: waiting for one more replica is always safe, forgetting one is not.
"""

from anabranch.base.ids import BrokerId

_NOT_HEARD_FROM = -1


class HighWatermark:
    __slots__ = ("_alone", "_counted", "_ends", "lacks_replicas", "offset")

    def __init__(self, offset: int, in_sync: frozenset[BrokerId], min_insync: int) -> None:
        self.offset = offset
        self._ends: dict[BrokerId, int] = {}
        self._alone: BrokerId | None = None  # the only replica that counts, and enough
        self._count(in_sync, min_insync, frozenset())

    def replica_reached(self, replica: BrokerId, end: int) -> bool:
        """`replica` holds every record below `end`.  True if the watermark moved."""
        self._ends[replica] = end
        if replica != self._alone:
            return self._advance()
        if end <= self.offset:
            return False
        self.offset = end
        return True

    def in_sync_changed(
        self, in_sync: frozenset[BrokerId], min_insync: int, joining: frozenset[BrokerId] = frozenset()
    ) -> bool:
        """The in-sync set is now `in_sync`.  True if the watermark moved."""
        self._count(in_sync, min_insync, joining)
        return self._advance()

    def _count(self, in_sync: frozenset[BrokerId], min_insync: int, joining: frozenset[BrokerId]) -> None:
        self._counted = in_sync | joining
        self.lacks_replicas = len(in_sync) < min_insync
        self._alone = next(iter(in_sync)) if len(self._counted) == 1 and not self.lacks_replicas else None

    def _advance(self) -> bool:
        if self.lacks_replicas:
            return False
        ends = self._ends
        safe = min([ends.get(replica, _NOT_HEARD_FROM) for replica in self._counted])
        if safe <= self.offset:
            return False
        self.offset = safe
        return True
