"""Doubted brokers: those that may be dead, for the moment that it takes to find out.

    its connection closed ─> doubted ─┬─> it is connected again: it lives
                                      ├─> it is removed, and others are elected to lead what it led
                                      └─> a second is over

Clients of a leader that died are told by their sockets as soon as its peers are, and ask at once who leads
now.  An answer from before the election would send them back to the dead one, and librdkafka asks again a
second later.  So who asks for what a doubted broker leads waits for the election.

A broker that went, however it did, is named to clients for some seconds more, as Kafka names one that died
until its session is over.  librdkafka (2.16) that learns from one answer that a partition has moved and that
the broker where it was is gone drops the partition for a second with the broker; told of the move first, it
does not.  And if a broker that it forgot is back as a coordinator, it may wait for it forever.
"""

import asyncio
from collections.abc import Callable, Iterator, Set

from anabranch.base.ids import BrokerId
from anabranch.meta.image import BrokerImage, ImageChange

_DOUBTED_S = 1.0
_NAMED_S = 10.0


class DoubtedBrokers:
    def __init__(self) -> None:
        self._until: dict[BrokerId, float] = {}
        self._removed: dict[BrokerId, tuple[BrokerImage, float]] = {}
        self._moved: asyncio.Future[None] | None = None

    def doubt(self, broker: BrokerId) -> None:
        """It has closed its connection."""
        self._until[broker] = asyncio.get_running_loop().time() + _DOUBTED_S

    def trust(self, broker: BrokerId) -> None:
        """It lives."""
        if self._until.pop(broker, None) is not None:
            self._wake()

    def image_changed(self, change: ImageChange) -> None:
        old, new = change.old.brokers, change.new.brokers
        if old is not new:
            for id in old.keys() - new.keys():
                self._removed[id] = old[id], asyncio.get_running_loop().time() + _NAMED_S
            for id in self._removed.keys() & new.keys():
                del self._removed[id]
        self._wake()

    @property
    def removed(self) -> Iterator[BrokerImage]:
        """Those that went a moment ago, and are named still."""
        if self._removed:
            now = asyncio.get_running_loop().time()
            for id, (broker, until) in list(self._removed.items()):
                if until > now:
                    yield broker
                else:
                    del self._removed[id]

    def are_among(self, leaders: Callable[[Set[BrokerId]], bool]) -> bool:
        """Whether `leaders`, asked for it, has a broker that is doubted."""
        return bool(self._until) and bool(self._doubted()) and leaders(self._until.keys())

    async def settled(self, leaders: Callable[[Set[BrokerId]], bool]) -> None:
        """Return when they are not `are_among` the leaders any more."""
        loop = asyncio.get_running_loop()
        while self.are_among(leaders):
            if self._moved is None:
                self._moved = loop.create_future()
            await asyncio.wait([self._moved], timeout=max(0.0, min(self._until.values()) - loop.time()))

    def _doubted(self) -> dict[BrokerId, float]:
        now = asyncio.get_running_loop().time()
        for id in [id for id, until in self._until.items() if until <= now]:
            del self._until[id]
        return self._until

    def _wake(self) -> None:
        if self._moved is not None:
            self._moved.set_result(None)
            self._moved = None
