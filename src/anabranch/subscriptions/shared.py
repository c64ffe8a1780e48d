"""Shared: each message to any consumer, in turn.

Consumers of the highest priority (the smallest number) come first; those of a lower one get something only
when none of the higher can take more.  Within a priority it goes round:

    priority 0: a (2 permits), b (1), c (1)   priority 1: d (2), e (1)      ->   a b c a d e d

with one message at a time.  A turn gives a consumer up to `round_robin_messages`, so that neighbours in the
log travel together.
"""

from bisect import bisect_right

from anabranch.subscriptions.consumer import Consumer


class RoundRobin:
    __slots__ = ("_last", "consumers")

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []  # by priority; equals in the order they came
        self._last: dict[int, int] = {}  # of each priority, the index of whom it was last, among its equals

    def add(self, consumer: Consumer) -> None:
        self.consumers.insert(bisect_right(self.consumers, consumer.priority, key=_priority), consumer)

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if all(other.priority != consumer.priority for other in self.consumers):
            self._last.pop(consumer.priority, None)

    def next(self) -> Consumer | None:
        """Whose turn it is, None if nobody can take anything."""
        consumers = self.consumers
        start = 0
        while start < len(consumers):
            priority = consumers[start].priority
            end = bisect_right(consumers, priority, lo=start, key=_priority)
            size = end - start
            last = self._last.get(priority, -1)
            for step in range(1, size + 1):
                index = (last + step) % size
                consumer = consumers[start + index]
                if consumer.can_take():
                    self._last[priority] = index
                    return consumer
            start = end
        return None


def _priority(consumer: Consumer) -> int:
    return consumer.priority
