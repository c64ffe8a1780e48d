"""Acknowledgements: appends that wait for the high watermark, answered in the order of their ends.

    append, end 5 ──┐
    append, end 9 ──┤  high watermark 7:  5 is acknowledged, 9 and 12 wait on
    append, end 12 ─┘  the leader resigns: 9 and 12 are refused, whether they are safe is not known here

An append that holds at once never comes here.  A client's may be `given_up` before: it is told that the
records are stored and not safe, and asks again.  Nobody gives up what a coordinator has written.
"""

import asyncio
from collections import deque

from anabranch.partition.certainty import Certainty


class Acknowledgements:
    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, asyncio.Future[None], bool]] = deque()

    def wait(self, end: int, *, is_clients: bool = False) -> "asyncio.Future[None]":
        """Done once the high watermark has reached `end`."""
        if self.waiting:  # one that repeats an earlier append waits with the last one, to stay in order
            end = max(end, self.waiting[-1][0])
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((end, acknowledged, is_clients))
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

    def give_up(self, reason: Exception) -> None:
        """It may take long until they are safe: clients are told so, the others wait on."""
        waiting, self.waiting = self.waiting, deque()
        for one in waiting:
            if one[2]:
                _refuse(one[1], reason)
            else:
                self.waiting.append(one)


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
