"""Acknowledgements: appends that wait for the high watermark, answered in the order of their ends.

    append, end 5 ──┐
    append, end 9 ──┤  high watermark 7:  5 is acknowledged, 9 and 12 wait on
    append, end 12 ─┘  the leader resigns: 9 and 12 are refused, whether they are safe is not known here

An append that holds at once never comes here.
"""

import asyncio
from collections import deque


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
            acknowledged = self.waiting.popleft()[1]
            if not acknowledged.done():
                acknowledged.set_exception(reason)
                acknowledged.exception()  # who asked may be gone


async def both(flushed: "asyncio.Future[None]", replicated: "asyncio.Future[None]") -> None:
    """The lesser of two places is reached."""
    await flushed
    await replicated
