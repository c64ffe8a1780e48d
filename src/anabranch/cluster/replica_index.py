"""Replica index: which partitions a broker has, and which have no leader, kept in step with the image.

A broker that goes concerns the partitions that it has; one that comes, those without a leader.  With the
index an election costs what it changes, whatever else there is.  Each step costs what changed of the image.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from anabranch.base.ids import BrokerId, TopicId
from anabranch.meta.image import NO_BROKER, ImageChange, PartitionImage


class Place(NamedTuple):
    topic: TopicId
    partition: int


class ReplicaIndex:
    def __init__(self) -> None:
        self._held: dict[BrokerId, dict[TopicId, set[int]]] = {}
        self.leaderless: set[Place] = set()

    def of(self, broker: BrokerId) -> Iterator[Place]:
        """The partitions that `broker` has a replica of."""
        for topic, indexes in self._held.get(broker, {}).items():
            for index in indexes:
                yield Place(topic, index)

    def count(self, broker: BrokerId) -> int:
        return sum(map(len, self._held.get(broker, {}).values()))

    def apply(self, change: ImageChange) -> None:
        """Take the step."""
        for before, after in change.topics:
            old = () if before is None else before.partitions
            new = () if after is None else after.partitions
            topic = after or before
            assert topic is not None
            for index in range(max(len(old), len(new))):
                was = old[index] if index < len(old) else None
                now = new[index] if index < len(new) else None
                if was is not now:
                    self._place(Place(topic.id, index), was, now)

    def _place(self, place: Place, was: PartitionImage | None, now: PartitionImage | None) -> None:
        before = () if was is None else was.replicas
        after = () if now is None else now.replicas
        if before != after:
            self._drop(place, (broker for broker in before if broker not in after))
            for broker in after:
                self._held.setdefault(broker, {}).setdefault(place.topic, set()).add(place.partition)
        if now is not None and now.leader == NO_BROKER:
            self.leaderless.add(place)
        else:
            self.leaderless.discard(place)

    def _drop(self, place: Place, brokers: Iterable[BrokerId]) -> None:
        for broker in brokers:
            topics = self._held[broker]
            indexes = topics[place.topic]
            indexes.discard(place.partition)
            if not indexes:
                del topics[place.topic]
            if not topics:
                del self._held[broker]
