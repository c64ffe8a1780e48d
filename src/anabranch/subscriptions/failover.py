"""Failover: one consumer is active, the others stand by.

Only those of the highest priority (the smallest number) can be.  They are sorted by name, and partition i of
a partitioned topic takes the i-th of them, round and round, so that partitions spread evenly.  A topic
without partitions takes whoever comes first on a ring of hashed names after the hash of its own name, so that
topics spread too.

    consumers a, b, c of priority 0, d of priority 1:   partition 4 -> b;   a topic -> a, b or c
"""

from bisect import bisect_left
from collections.abc import Sequence

from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.key_hash import murmur3

_POINTS = 100  # of a consumer on the ring, as Pulsar has it


class Failover:
    """Who is active, as `single_active` asks."""

    is_told = True

    def __init__(self, topic: str, partition_index: int) -> None:
        """`topic` is the full name; the index is -1 if it has no partitions."""
        self._hash = murmur3(topic.encode())
        self._partition_index = partition_index

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
        ring: dict[int, int] = {}
        for index, consumer in enumerate(consumers):
            for point in range(_POINTS):
                ring[murmur3(f"{consumer.name}{point}".encode())] = index
        points = sorted(ring)
        return ring[points[bisect_left(points, self._hash) % len(points)]]
