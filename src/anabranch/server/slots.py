"""Slots: the answers that a connection owes, in the order of its requests.

    Slots   │ known │ waits │ known │ known │
            └─ leaves with the next answer   └ cannot leave before the one that waits

An answer that is known waits for those before it, and a request whose answer is not known keeps something in
memory.  Both are counted, so that the connection can stop reading in time.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from anabranch.base.network import Chunk, FileRange
from anabranch.server.kafka.registry import Waiting
from anabranch.server.request_times import RequestTimes

MAX_SLOTS = 128
MAX_BYTES = 1 << 20  # of answers that are known, and of requests that wait
PREFIX = struct.Struct(">ii")  # the size of what follows, correlation id


class Slot:
    """An answer's place in the order, and what will bring it."""

    __slots__ = (
        "answered_s",
        "begun_s",
        "chunks",
        "done",
        "handled_s",
        "kept_bytes",
        "received_s",
        "size",
        "task",
        "times",
        "waiting",
    )

    def __init__(self, times: RequestTimes, received_s: float, begun_s: float, kept_bytes: int = 0) -> None:
        self.chunks: Sequence[Chunk] = ()
        self.size = 0
        self.done = False
        self.waiting: Waiting | None = None
        self.task: asyncio.Task[Any] | None = None
        """The handler, once it does nothing but wait."""
        self.kept_bytes = kept_bytes
        """What the request has in memory while it waits."""
        self.times = times
        self.received_s = received_s
        self.begun_s = begun_s
        self.handled_s = 0.0
        """When nothing but waiting was left, or the answer was there."""
        self.answered_s = 0.0


class Slots(deque[Slot]):
    __slots__ = ("_kept_bytes", "_parked_bytes")

    def __init__(self) -> None:
        super().__init__()
        self._parked_bytes = 0
        self._kept_bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self) >= MAX_SLOTS or self._parked_bytes > MAX_BYTES or self._kept_bytes > MAX_BYTES

    def open(self, times: RequestTimes, received_s: float, begun_s: float, kept_bytes: int = 0) -> Slot:
        """The slot of a request that keeps so much in memory."""
        slot = Slot(times, received_s, begun_s, kept_bytes)
        self._kept_bytes += kept_bytes
        self.append(slot)
        return slot

    def wait(self, slot: Slot, waiting: Waiting, now_s: float) -> None:
        """`waiting` has the answer of `slot`, when there is one."""
        slot.handled_s = now_s
        slot.waiting = waiting
        slot.kept_bytes += waiting.kept_bytes
        self._kept_bytes += waiting.kept_bytes

    def park(self, slot: Slot, chunks: Sequence[Chunk], size: int, now_s: float) -> None:
        """The answer is known."""
        slot.answered_s = now_s
        slot.handled_s = slot.handled_s or now_s
        slot.chunks, slot.size, slot.done = chunks, size, True
        slot.waiting = slot.task = None
        self._parked_bytes += size
        self._kept_bytes -= slot.kept_bytes

    def release(self, into: list[Chunk], now_s: float) -> None:
        """Move answers that are known and next in order."""
        while self and self[0].done:
            slot = self.popleft()
            self._parked_bytes -= slot.size
            into.extend(slot.chunks)
            slot.times.observe(slot.received_s, slot.begun_s, slot.handled_s, slot.answered_s, now_s)

    def expire(self) -> None:
        """The node stops: what waits is to answer with what there is."""
        for slot in list(self):
            if slot.waiting is not None:
                slot.waiting.expire()

    def abandon(self) -> None:
        """The client is gone: nobody waits any more."""
        for slot in self:
            if slot.waiting is not None:
                slot.waiting.answered.cancel()
            elif slot.task is not None:
                slot.task.cancel()
        self.clear()


def with_header(
    correlation_id: int, flexible: bool | None, chunks: Sequence[Chunk]
) -> tuple[list[Chunk], int]:
    """`chunks` as a frame, and its size.  `flexible` None: they carry the header's tags themselves."""
    head = b"\0" if flexible else b""
    size = 4 + len(head)
    for chunk in chunks:
        size += chunk.size if type(chunk) is FileRange else len(cast(bytes, chunk))
    prefix = PREFIX.pack(size, correlation_id) + head
    if chunks and type(chunks[0]) is bytes:  # one write less for nearly every answer
        return [prefix + chunks[0], *chunks[1:]], size
    return [prefix, *chunks], size
