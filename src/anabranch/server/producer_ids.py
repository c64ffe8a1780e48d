"""Producer ids, each given out once in the life of a cluster.

The cluster hands out blocks and writes down, before it answers, that they are gone.  So an id may be
lost with a process, but never comes up twice, whatever is killed.

    block   0 ........ 899 | 900 ... 999         asked for early, at the mark, so that
                           ^ the next block      nobody waits for the disk
"""

import asyncio

from anabranch.base.ids import ProducerId
from anabranch.cluster.cluster import Cluster

_FETCH_AT_LEFT = 100  # of a thousand


class ProducerIds:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._block = range(0)
        self._next_block = range(0)
        self._fetching: asyncio.Task[None] | None = None

    async def next(self) -> ProducerId:
        """An id that nobody has.  Unavailable if there is none to be had now."""
        while not self._block:
            if self._next_block:
                self._block, self._next_block = self._next_block, range(0)
            else:
                # Shielded: whoever waits beside us needs the block even if we are cancelled.
                await asyncio.shield(self._fetch())
        first, self._block = self._block[0], self._block[1:]
        if len(self._block) <= _FETCH_AT_LEFT and not self._next_block:
            self._fetch()
        return ProducerId(first)

    async def close(self) -> None:
        """Ask for no more."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))

    def _fetch(self) -> "asyncio.Task[None]":
        """The one request for a block that is under way."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._take_block(), name="producer ids")
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    async def _take_block(self) -> None:
        self._next_block = await self._cluster.allocate_producer_ids()

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # seen: whoever waits is told, and the next who needs a block asks again
