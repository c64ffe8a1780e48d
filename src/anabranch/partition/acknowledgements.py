"""Acknowledgements: appends that wait for the high watermark, answered in the order of their ends.

    append, end 5 ──┐
    append, end 9 ──┤  high watermark 7:  5 is acknowledged, 9 and 12 wait on
    append, end 12 ─┘  the leader resigns: 9 and 12 are refused, whether they are safe is not known here

An append that holds at once never comes here.  One that waits waits on, also while too few replicas are in
sync: how long a client does so is its own to say.  A client that is told early and asks again may no longer
be known as the same producer by then, and what is stored would be stored twice.
"""

import asyncio
from collections import deque

from anabranch.partition.certainty import Certainty


class Acknowledgements:
    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def wait(self, end: int) -> "asyncio.Future[None]":
        """Done once the high watermark has reached `end`."""
        if self.waiting:  # one that repeats an earlier append waits with the last one, to stay in order
            end = max(end, self.waiting[-1][0])
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((end, acknowledged))
        return acknowledged

    def reached(self, high_watermark: int) -> None:
        waiting = self.waiting
        while waiting and waiting[0][0] <= high_watermark:
            acknowledged = waiting.popleft()[1]
            if not acknowledged.done():
                acknowledged.set_result(None)

    def refuse(self, reason: Exception) -> None:
        """Nobody will say any more whether they are safe."""
        while self.waiting:
            _refuse(self.waiting.popleft()[1], reason)


def is_safe(acknowledged: "asyncio.Future[None]") -> bool:
    """It came, and said so; one that is done may also say that nobody knows."""
    return acknowledged.done() and not acknowledged.cancelled() and acknowledged.exception() is None


def _refuse(acknowledged: "asyncio.Future[None]", reason: Exception) -> None:
    if not acknowledged.done():
        acknowledged.set_exception(reason)
        acknowledged.exception()  # who asked may be gone


async def both(flushed: "asyncio.Future[None]", replicated: "asyncio.Future[None]") -> None:
    """The lesser of two places is reached."""
    await flushed
    await replicated


async def certainly(flushed: "asyncio.Future[None]", certainty: Certainty) -> None:
    """It is, and the leader has not been deposed for sure."""
    await flushed
    await certainty.wait()
