"""Failover: one consumer is active, the others stand by.

Only those of the highest priority (the smallest number) can be.  They are sorted by name, and partition i of
a partitioned topic takes the i-th of them, round and round, so that partitions spread evenly.  A topic
without partitions takes whoever comes first on a ring of hashed names after the hash of its own name, so that
topics spread too.

    consumers a, b, c of priority 0, d of priority 1:   partition 4 -> b;   a topic -> a, b or c
"""

from collections.abc import Sequence

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.key_hash import murmur3

_POINTS = 100  # of a consumer on the ring, as Pulsar has it
_RING = 1 << 31


class Failover:
    """Who is active, as `single_active` asks."""

    is_told = True

    def __init__(self, topic: str, partition_index: int) -> None:
        """`topic` is the full name; the index is -1 if it has no partitions."""
        self._hash = murmur3(topic.encode())
        self._partition_index = partition_index
        self._distances: dict[str, int] = {}  # of those attached, since hashes are slow

    def check(self, attached: Sequence[Consumer]) -> None:
        """There is place for everybody."""

    def choose(self, attached: Sequence[Consumer]) -> Consumer | None:
        if not attached:
            return None
        priority = min(consumer.priority for consumer in attached)
        first = sorted((c for c in attached if c.priority == priority), key=lambda c: c.name)
        if self._partition_index >= 0:
            return first[self._partition_index % len(first)]
        return first[0] if len(first) == 1 else first[self._from_ring(first)]

    def _from_ring(self, consumers: Sequence[Consumer]) -> int:
        """Whose point is the next on the ring; of two at one place the later name's."""
        known = self._distances
        self._distances = {c.name: known.get(c.name, -1) for c in consumers}
        for name, distance in self._distances.items():
            if distance < 0:
                self._distances[name] = self._distance(name)
        return min(range(len(consumers)), key=lambda i: (self._distances[consumers[i].name], -i))

    def _distance(self, name: str) -> int:
        """From the topic to the nearest of a consumer's points, once round the ring at most."""
        points = (murmur3(f"{name}{point}".encode()) for point in range(_POINTS))
        return min((point - self._hash) % _RING for point in points)
