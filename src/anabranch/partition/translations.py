"""Batches in the other protocol's form: made once, kept for a while, for as many readers as come.

    reader ─ find ──┬─ kept               at once
                    └─ not there ─ begin ─> a future: look again when it is done

Work is done in the event loop, in turns of some hundred microseconds between which everybody else has theirs.
(A thread would be no better: what it does in Python keeps the loop from the interpreter after every call that
lets go of it, so that a loop with many sockets stands nearly still.  Unpacking does let go, and is done
there.) One batch is worked on at a time, which bounds what batches can ask for by being larger inside: a
payload of 64 MiB, and what it becomes.  What is kept is bounded, too; the oldest goes first.

A batch is known by its partition, its place and its checksum, so that compaction may rewrite files as it
likes.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from anabranch.base.errors import AnabranchError, NotOwner
from anabranch.base.seldom import Seldom
from anabranch.records.batch import BatchHeader

KEPT_BYTES = 32 << 20
FITS_BYTES = 5 << 20  # maxMessageSize, unless told otherwise
LARGE_BYTES = 16 << 10
"""What is larger, or has more messages than the loop should give a moment for, is not made at once."""
MANY_MESSAGES = 128

_ROOM_BYTES = 200  # that one takes beside its bytes, about
_passed_over = Seldom(logging.getLogger(__name__), 10.0)
_Result = TypeVar("_Result")


class Key(NamedTuple):
    """Which batch."""

    partition: object
    offset: int
    leader_epoch: int
    crc: int
    size_bytes: int


class Translated(NamedTuple):
    """What a batch has become."""

    data: bytes
    """Empty if it is nothing that the other protocol's clients can read."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Offsets in it that have no message."""
    messages: tuple[tuple[int, bytes], ...] = ()
    """Each message for itself, by its offset, where that is wanted and not `data`."""

    @property
    def size_bytes(self) -> int:
        return (
            len(self.data) + sum([len(message) + _ROOM_BYTES for _, message in self.messages]) + _ROOM_BYTES
        )


NOTHING = Translated(b"")
Work = Callable[[], Awaitable[Translated]]


def key_of(partition: object, header: BatchHeader) -> Key:
    return Key(partition, header.base_offset, header.leader_epoch, header.crc, header.length)


class Translations:
    def __init__(self, thread: Executor, kept_bytes: int = KEPT_BYTES) -> None:
        """`thread` is what unpacks, one at a time."""
        self._thread = thread
        self._limit = kept_bytes
        self._kept: OrderedDict[Key, Translated] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[Key, asyncio.Future[None]] = {}
        self._queue: deque[tuple[Key, Work]] = deque()
        self._runner: asyncio.Task[None] | None = None
        self.fits_bytes: Callable[[], int] = lambda: FITS_BYTES
        """How large an entry Pulsar's clients take."""

    def find(self, key: Key) -> Translated | None:
        """What the batch has become, if that is known."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def keep(self, key: Key, made: Translated) -> None:
        if key in self._kept:
            return
        self._kept[key] = made
        self._kept_bytes += made.size_bytes
        while self._kept_bytes > self._limit and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].size_bytes

    def begin(self, key: Key, work: Work) -> "asyncio.Future[None]":
        """Have `work` make it, unless somebody did so already; done when it is kept."""
        waiting = self._under_way.get(key)
        if waiting is None:
            waiting = self._under_way[key] = asyncio.get_running_loop().create_future()
            self._queue.append((key, work))
            if self._runner is None:
                self._runner = asyncio.ensure_future(self._run())
        return waiting

    async def _run(self) -> None:
        try:
            while self._queue:
                key, work = self._queue.popleft()
                failure: BaseException | None = None
                try:
                    self.keep(key, await work())
                except NotOwner as error:  # what another leader has is not known here, and no gap
                    failure = error
                except BaseException as error:  # a mistake of ours, or the end: nobody may wait forever
                    failure = error
                    raise
                finally:
                    _tell(self._under_way.pop(key), failure)
        finally:
            self._runner = None
            if self._queue:  # after a mistake of ours; others are not to suffer from it
                self._runner = asyncio.ensure_future(self._run())

    async def aside(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        """What `function` gives, in the thread that unpacks."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def stop(self) -> None:
        """The node stops: nobody waits any more."""
        self._queue.clear()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        for waiting in self._under_way.values():
            waiting.cancel()
        self._under_way.clear()


async def in_turns(pieces: Iterable[_Result]) -> list[_Result]:
    """All of `pieces`, between each of which others have a turn."""
    made = []
    for piece in pieces:
        made.append(piece)
        await asyncio.sleep(0)
    return made


def passed_over(partition: object, header: BatchHeader, readers: str, error: AnabranchError) -> None:
    """Say that readers will not see a batch: or nobody would ever get past it."""
    _passed_over.warning(
        "%s: offset %d is passed over, %s cannot have it: %s", partition, header.base_offset, readers, error
    )


def _tell(waiting: "asyncio.Future[None]", failure: BaseException | None) -> None:
    if waiting.done():
        return
    if failure is None:
        waiting.set_result(None)
    elif isinstance(failure, asyncio.CancelledError):
        waiting.cancel()
    else:
        waiting.set_exception(failure)
        waiting.exception()  # whoever waited may have gone
