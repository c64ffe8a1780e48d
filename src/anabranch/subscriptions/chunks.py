"""Chunks of one large message: all of them go to one consumer, which puts them together.

The first chunk that is handed out decides who that is.  While that consumer can take no more, its chunks wait
for it; when it goes, whoever gets the first of them next takes its place.
"""

from anabranch.subscriptions.consumer import Consumer

MAX_BEGUN = 10_000  # messages whose last chunk never comes must not pile up


class Chunks:
    __slots__ = ("_owners", "_waiting")

    def __init__(self) -> None:
        self._owners: dict[str, Consumer] = {}
        self._waiting: dict[Consumer, list[int]] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def owner(self, uuid: str, proposed: Consumer) -> Consumer:
        """Who gets the chunks of `uuid`."""
        owner = self._owners.setdefault(uuid, proposed)
        if len(self._owners) > MAX_BEGUN:
            del self._owners[next(iter(self._owners))]
        return owner

    def ended(self, uuid: str) -> None:
        """The last chunk was handed out."""
        self._owners.pop(uuid, None)

    def wait(self, owner: Consumer, offset: int) -> None:
        self._waiting.setdefault(owner, []).append(offset)

    def awaited(self, owner: Consumer) -> list[int]:
        """What waited for a consumer that can take more now, or has gone."""
        return self._waiting.pop(owner, [])

    def forget(self, owner: Consumer) -> None:
        for uuid in [uuid for uuid, other in self._owners.items() if other is owner]:
            del self._owners[uuid]

    def clear(self) -> None:
        self._owners.clear()
        self._waiting.clear()
