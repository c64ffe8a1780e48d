"""The topics that somebody is using: opened when first asked for, unloaded when told to.

    topic = await topics.open("persistent://public/default/orders-partition-3")

What a topic needs of the cluster comes through narrow functions; the cluster stands above.
"""

from collections.abc import Iterator
from typing import Protocol

from anabranch.topics.topic import Topic


class Topics(Protocol):
    async def open(self, name: str) -> Topic:
        """The topic of that full name.  UnknownTopic if the cluster has none: creating it is the caller's."""

    def find(self, name: str) -> Topic | None:
        """The topic, if it is open."""

    async def unload(self, name: str) -> None:
        """Close a topic; its producers and consumers are told to look it up again."""

    def __iter__(self) -> Iterator[Topic]:
        """Those that are open."""

    def new_producer_name(self) -> str:
        """A name nobody has: <cluster>-<start>-<n>."""
