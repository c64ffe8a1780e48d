"""Offsets that count only when their transaction commits, by the producer whose transaction it is.

A producer has one transaction at a time, so its id stands for it.  A group may have offsets in the
transactions of several producers, even of the same partition.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar
from uuid import UUID

from anabranch.groups.records import CommittedOffset, OffsetKey

K = TypeVar("K")


class Numbered(NamedTuple):
    """The fields of a CommittedOffset, and the number of its record in the order of the log.

    One flat tuple, since a broker keeps many and every commit makes new ones.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int
    topic_id: UUID | None
    number: int

    @property
    def value(self) -> CommittedOffset:
        return CommittedOffset(*self[:-1])


class PendingOffsets:
    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, Numbered]] = {}
        self._producers: dict[OffsetKey, set[int]] = {}
        self._open: dict[str, set[int]] = {}  # group id -> producers

    def put(self, producer_id: int, key: OffsetKey, offset: Numbered) -> None:
        self._by_producer.setdefault(producer_id, {})[key] = offset
        self._producers.setdefault(key, set()).add(producer_id)
        self._open.setdefault(key.group_id, set()).add(producer_id)

    def __contains__(self, key: OffsetKey) -> bool:
        return key in self._producers

    def is_open(self, group_id: str) -> bool:
        """A transaction that began to commit offsets of the group has not ended."""
        return group_id in self._open

    def of_group(self, group_id: str) -> Iterator[OffsetKey]:
        for producer_id in self._open.get(group_id, ()):
            yield from (key for key in self._by_producer[producer_id] if key.group_id == group_id)

    def of_topic(self, topic: str) -> list[OffsetKey]:
        return [key for key in self._producers if key.topic == topic]

    def forget(self, key: OffsetKey) -> None:
        """The partition's offset is deleted, whoever was about to commit one.  Transactions stay open."""
        for producer_id in self._producers.pop(key, ()):
            self._by_producer[producer_id].pop(key, None)

    def end(self, producer_id: int) -> dict[OffsetKey, Numbered]:
        """The producer's transaction is over.  What it would have committed."""
        ended = self._by_producer.pop(producer_id, {})
        for key in ended:
            _discard(self._producers, key, producer_id)
        for group_id in [group_id for group_id, open_in in self._open.items() if producer_id in open_in]:
            _discard(self._open, group_id, producer_id)
        return ended


def _discard(sets: dict[K, set[int]], key: K, producer_id: int) -> None:
    members = sets.get(key, set())
    members.discard(producer_id)
    if not members:
        sets.pop(key, None)
