"""Hash ranges: which consumer of a key_shared subscription has which keys, by ranges of 2^16 hashes.

    HashRing       each consumer has points on a ring, by hashes of its name; a key belongs to the next point.
                   Who joins takes a little from everybody, who leaves gives its own back
    StickyRanges   each consumer says which ranges it wants; they must not overlap, and may leave keys out

Hashes are 1..65535 on the ring and 0..65535 in ranges, where 0 stands aside for 1: Pulsar has no key of hash
0.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Protocol

from anabranch.subscriptions.consumer import Consumer, HashRange
from anabranch.subscriptions.errors import ConsumerAssignError
from anabranch.subscriptions.key_hash import HASHES, murmur3


class KeyOwners(Protocol):
    def add(self, consumer: Consumer) -> None:
        """ConsumerAssignError if what it wants cannot be."""

    def remove(self, consumer: Consumer) -> None: ...

    def hash_of(self, key: bytes) -> int: ...

    def owner(self, hash: int) -> Consumer | None: ...

    def ranges(self) -> dict[Consumer, list[HashRange]]: ...


class HashRing:
    """AUTO_SPLIT."""

    __slots__ = ("_names", "_points", "_points_each", "_ring")

    def __init__(self, points_each: int) -> None:
        self._points_each = points_each
        self._points: list[int] = []
        self._ring: dict[
            int, list[Consumer]
        ] = {}  # who came first has the point, the others are next in line
        self._names: dict[Consumer, tuple[str, int]] = {}  # and which of those with this name it is

    def add(self, consumer: Consumer) -> None:
        taken = {index for name, index in self._names.values() if name == consumer.name}
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        self._names[consumer] = (consumer.name, index)
        for point in self._points_of(consumer):
            at = self._ring.get(point)
            if at is None:
                self._ring[point] = [consumer]
                insort(self._points, point)
            else:
                at.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        for point in self._points_of(consumer):
            at = self._ring[point]
            at.remove(consumer)
            if not at:
                del self._ring[point]
                del self._points[bisect_left(self._points, point)]
        del self._names[consumer]

    def hash_of(self, key: bytes) -> int:
        return murmur3(key) % (HASHES - 1) + 1

    def owner(self, hash: int) -> Consumer | None:
        points = self._points
        if not points:
            return None
        at = bisect_left(points, hash)
        return self._ring[points[at if at < len(points) else 0]][0]

    def ranges(self) -> dict[Consumer, list[HashRange]]:
        ranges: dict[Consumer, list[HashRange]] = {}
        start = 1
        for point in [*self._points, HASHES - 1]:
            owner = self.owner(point)
            if owner is None or point < start:
                continue
            own = ranges.setdefault(owner, [])
            if own and own[-1].last == start - 1:
                own[-1] = HashRange(own[-1].start, point)
            else:
                own.append(HashRange(start, point))
            start = point + 1
        return ranges

    def _points_of(self, consumer: Consumer) -> list[int]:
        name, index = self._names[consumer]
        return [self.hash_of(f"{name}\0{index}\0{point}".encode()) for point in range(self._points_each)]


class StickyRanges:
    """STICKY."""

    __slots__ = ("_ranges", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[HashRange, Consumer]] = {}  # by start

    def add(self, consumer: Consumer) -> None:
        wanted = sorted(consumer.key_sharing.ranges or ())
        if not wanted:
            raise ConsumerAssignError("Ranges for KeyShared policy must not be empty.")
        end = 0
        for start, last in wanted:
            if not 0 <= start <= last < HASHES:
                raise ConsumerAssignError(f"Fixed hash range [{start},{last}] is no range of 0..{HASHES - 1}")
            if start < end:
                raise ConsumerAssignError(
                    f"Consumer's own ranges conflict: [{start},{last}] overlaps another"
                )
            end = last + 1
            other = self._overlapping(start, last)
            if other is not None:
                raise ConsumerAssignError(f"Range conflict with consumer {other.name}")
        for each in wanted:
            self._ranges[each.start] = (each, consumer)
        self._starts = sorted(self._ranges)

    def remove(self, consumer: Consumer) -> None:
        self._ranges = {start: held for start, held in self._ranges.items() if held[1] is not consumer}
        self._starts = sorted(self._ranges)

    def hash_of(self, key: bytes) -> int:
        return murmur3(key) % HASHES or 1

    def owner(self, hash: int) -> Consumer | None:
        return self._overlapping(hash, hash)

    def ranges(self) -> dict[Consumer, list[HashRange]]:
        ranges: dict[Consumer, list[HashRange]] = {}
        for start in self._starts:
            each, consumer = self._ranges[start]
            ranges.setdefault(consumer, []).append(each)
        return ranges

    def _overlapping(self, start: int, last: int) -> Consumer | None:
        """Whose range has something of `start`..`last`."""
        at = bisect_right(self._starts, last) - 1
        if at < 0:
            return None
        held, consumer = self._ranges[self._starts[at]]
        return consumer if held.last >= start else None
