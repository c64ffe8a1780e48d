"""The network in memory: several hosts in one process, joined by a wire that can be slow or cut.

    wire = Wire()
    a, b = wire.host("a"), wire.host("b")          # a Network each, for a node's world
    listener = await b.listen("b", 9092, factory, SocketOptions())
    link = await a.connect("b", 9092, peer, 1.0)
    wire.delay("a", "b", 0.02)                     # each way, in the loop's time
    wire.cut("a", "b")                             # nothing passes and nobody is told, until `mend`
    wire.cut("a", "b", one_way=True)               # nothing passes from a to b
    wire.reset("a", "b")                           # connections break, as when a router forgets them
    wire.down("b")                                 # as when its process is killed

Links do what those over TCP do: tests/conform/test_network.py holds both to it.  Each direction has a window,
as sockets have buffers: what the reader has not taken counts against it, and what does not fit waits at the
sender, by reference.

    send ─> queue ─ window ─> on the way ─ delay, cut ─> arrived ─ paused? ─> Peer.received

Time is the running loop's and there is no chance here, so a loop with virtual time replays a run exactly.
What a host is told it is told by `soon`, and what is on the way is no host's: a simulation, in which hosts
are paused and killed, overrides `soon` and `at`.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import cast

from anabranch.base.disk import Buffer
from anabranch.base.errors import Refused, Unavailable
from anabranch.base.network import Chunk, FileRange, Peer, SocketOptions

WINDOW_BYTES = 128 << 10
_PIECE_BYTES = 64 << 10
_END = b""  # behind the last byte of a direction; no other piece is empty
_NOBODY = cast(Peer, None)  # accepted by the host, and not yet by who listens there
_HERE = ("localhost", "127.0.0.1", "0.0.0.0", "::1", "::")


class Wire:
    """What joins the hosts."""

    def __init__(self, window_bytes: int = WINDOW_BYTES) -> None:
        self.window_bytes = window_bytes
        self.listeners: dict[tuple[str, int], MemoryListener] = {}
        self.links: dict[MemoryLink, None] = {}
        self.ports = count(10_000)
        self._delays: dict[tuple[str, str], float] = {}
        self._cuts: dict[tuple[str, str], asyncio.Event] = {}

    def host(self, name: str) -> "MemoryNetwork":
        return MemoryNetwork(self, name)

    def delay(self, one: str, other: str, delay_s: float) -> None:
        """How long it takes from here to there, and back."""
        self._delays[one, other] = self._delays[other, one] = delay_s

    def delay_s(self, one: str, other: str) -> float:
        """How long what leaves `one` now takes to `other`."""
        return self._delays.get((one, other), 0.0)

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        self._cuts.setdefault((one, other), asyncio.Event())
        if not one_way:
            self._cuts.setdefault((other, one), asyncio.Event())

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing passes from `one` to `other`."""
        return (one, other) in self._cuts

    def mend(self, one: str, other: str) -> None:
        """What was on the way arrives after all, as TCP sends it again."""
        mended = [self._cuts.pop(way) for way in ((one, other), (other, one)) if way in self._cuts]
        for event in mended:
            event.set()
        if mended:
            for link in self._between(one, other):
                link.mended()

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two hosts: what is on the way is lost, and both sides hear of it."""
        for link in self._between(one, other):
            link.lost()

    def down(self, name: str, *, is_killed: bool = False) -> None:
        """A host is gone: nobody listens there any more, and its connections break.

        What a process that `is_killed` has sent still arrives.
        """
        for listener in [listener for listener in self.listeners.values() if listener.host == name]:
            listener.close()
        for link in [link for link in self.links if link.host == name]:
            if is_killed:
                link.abort()
            else:
                link.lost()

    def _between(self, one: str, other: str) -> "list[MemoryLink]":
        return [link for link in self.links if {link.host, link.other_host} == {one, other}]

    async def travel(self, one: str, other: str) -> None:
        """Take the time from one host to the other, for as long as nothing passes."""
        while (cut := self._cuts.get((one, other))) is not None:
            await cut.wait()
        await asyncio.sleep(self.delay_s(one, other))

    def soon(self, host: str, callback: Callable[[], None]) -> asyncio.Handle:
        """Tell somebody on `host` something."""
        return asyncio.get_running_loop().call_soon(callback)

    def at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Do what no host does, by the loop's time."""
        loop = asyncio.get_running_loop()
        return loop.call_at(when, callback) if when > loop.time() else loop.call_soon(callback)


class MemoryListener:
    def __init__(self, wire: Wire, host: str, port: int, factory: Callable[[], Peer]) -> None:
        self.host, self.port = host, port
        self.factory = factory
        self._wire = wire

    def close(self) -> None:
        if self._wire.listeners.get((self.host, self.port)) is self:
            del self._wire.listeners[(self.host, self.port)]


class MemoryNetwork:
    """The network as one host has it.  Whatever address it listens on, others reach it by its name."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self.name = name

    async def listen(
        self, host: str, port: int, factory: Callable[[], Peer], options: SocketOptions
    ) -> MemoryListener:
        listeners = self._wire.listeners
        port = port or next(self._wire.ports)
        if (self.name, port) in listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        made = listeners[(self.name, port)] = MemoryListener(self._wire, self.name, port, factory)
        return made

    async def connect(self, host: str, port: int, peer: Peer, timeout_s: float) -> "MemoryLink":
        wire, there = self._wire, self.name if host in _HERE else host
        place = f"{host}:{port}"
        mine: MemoryLink | None = None
        try:
            async with asyncio.timeout(timeout_s):
                await wire.travel(self.name, there)
                listener = wire.listeners.get((there, port))
                if listener is not None:
                    mine = MemoryLink(wire, peer, self.name, there, place)
                    mine.meet(listener.factory, f"{self.name}:{next(wire.ports)}")
                await wire.travel(there, self.name)
        except BaseException as error:
            if mine is not None:
                mine.lost()
            if isinstance(error, TimeoutError):
                raise Unavailable(f"{place} cannot be reached: no answer in {timeout_s:g} s") from error
            raise
        if mine is None:
            raise Refused(f"{place} cannot be reached: connection refused")
        if not mine.opened():
            raise Unavailable(f"{place} cannot be reached: the connection was closed at once")
        return mine


class MemoryLink:
    """One end of a connection."""

    def __init__(self, wire: Wire, peer: Peer, host: str, other_host: str, remote: str) -> None:
        self.host, self.other_host, self.remote = host, other_host, remote
        self.unsent = 0
        self.other: MemoryLink
        self._wire = wire
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Chunk] = deque()
        self._window = wire.window_bytes  # how much more may leave
        self._on_the_way: deque[tuple[float, bytes]] = deque()  # to the other end, by the time it is there
        self._arriving: asyncio.Handle | None = None
        self._arrived: deque[bytes] = deque()  # from the other end
        self._taking: asyncio.Handle | None = None
        self._blocked = False  # the window is full
        self._reading = False  # a range is being read
        self._warmed = False  # the range at the front has been read
        self._paused = True  # until it is opened
        self._closing = False
        self._gone = False

    # --- the peer's side

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._gone:
            return
        for chunk in chunks:
            size = chunk.size if isinstance(chunk, FileRange) else len(chunk)
            if size:
                self._queue.append(chunk)
                self.unsent += size
        if not self._blocked and not self._reading:
            self._pump()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if not self._closing and not self._gone:
            self._paused = False
            self._take_soon()

    def close(self) -> None:
        self._closing = self._paused = True
        if not self._queue:
            self._end()

    def abort(self) -> None:
        self._closing = self._paused = True
        self._end()

    # --- life

    def meet(self, factory: Callable[[], Peer], remote: str) -> None:
        """Have an other end, which `factory` makes the upper half of and calls this one `remote`."""
        other = self.other = MemoryLink(self._wire, _NOBODY, self.other_host, self.host, remote)
        other.other = self
        self._wire.links[other] = None  # it may break before anybody there has heard of it

        def accept() -> None:
            if not other._gone:
                other._peer = factory()
                other.opened()

        self._wire.soon(self.other_host, accept)

    def opened(self) -> bool:
        """Begin, unless it is over already."""
        if not self._gone:
            self._paused = False
            self._wire.links[self] = None
            self._peer.opened(self)
            self._take_soon()
        return not self._gone

    def _end(self) -> None:
        """Leave once what has left is there."""
        if not self._gone:
            self._travel(_END)
            self._leave()

    def lost(self) -> None:
        """The connection is broken: both ends hear of it, and nothing arrives any more."""
        for end in (self, self.other):
            end._on_the_way.clear()
            end._arrived.clear()
            end._leave()

    def _leave(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._queue.clear()
        self.unsent = 0
        if self in self._wire.links:  # it was opened
            del self._wire.links[self]
            if self._peer is not _NOBODY:
                self._wire.soon(self.host, self._peer.closed)

    # --- sending

    def _pump(self) -> None:
        """Let go of as much as the window takes."""
        try:
            while self._queue and not self._gone:
                head = self._queue[0]
                size = head.size if isinstance(head, FileRange) else len(head)
                if not self._window:
                    self._blocked = True
                    return
                if isinstance(head, FileRange) and not self._warmed and not head.is_cached():
                    self._reading = True
                    head.read_ahead().add_done_callback(self._read)
                    return
                piece = _first(head, min(size, self._window, _PIECE_BYTES))
                self._window -= len(piece)
                self.unsent -= len(piece)
                if len(piece) == size:
                    self._queue.popleft()
                    self._warmed = False
                else:
                    self._queue[0] = _rest(head, len(piece))
                self._travel(piece)
        except OSError:
            self.abort()
            return
        if self._closing:
            self._end()

    def _read(self, done: "asyncio.Future[None]") -> None:
        self._reading = False
        if done.exception() is None:
            self._warmed = True
            self._go_on()
        elif not self._gone:
            self.abort()

    def _go_on(self) -> None:
        """Something that was waited for is there."""
        if self._reading or self._gone:
            return
        self._blocked = False
        self._pump()
        if not self._queue and not self._gone:
            self._peer.drained()

    def _taken(self, size: int) -> None:
        """The other end has taken so much of what was sent."""
        self._window += size
        if self._blocked:
            self._blocked = False
            self._wire.soon(self.host, self._go_on)

    # --- on the way

    def _travel(self, piece: bytes) -> None:
        due = self._loop.time() + self._wire.delay_s(self.host, self.other_host)
        if self._on_the_way:
            due = max(due, self._on_the_way[-1][0])  # nothing overtakes
        self._on_the_way.append((due, piece))
        self._arrive_soon()

    def mended(self) -> None:
        """There is a way again.  (The one at the other end is told, too.)"""
        self._arrive_soon()
        self.other._arrive_soon()

    def _arrive_soon(self) -> None:
        if self._arriving is None and self._on_the_way:
            self._arriving = self._wire.at(self._on_the_way[0][0], self._arrive)

    def _arrive(self) -> None:
        self._arriving = None
        if self._wire.is_cut(self.host, self.other_host):
            return  # `mended` goes on with it
        now = self._loop.time()
        while self._on_the_way and self._on_the_way[0][0] <= now:
            piece = self._on_the_way.popleft()[1]
            if not self.other._gone:
                self.other._arrived.append(piece)
            elif piece:  # nobody is there: a reset comes back
                self._on_the_way.clear()
                self._leave()
        self.other._take_soon()
        self._arrive_soon()

    # --- receiving

    def _take_soon(self) -> None:
        if self._taking is None and self._arrived and not self._paused and not self._gone:
            self._taking = self._wire.soon(self.host, self._take)

    def _take(self) -> None:
        """One buffer's worth; others have their turn in between."""
        self._taking = None
        if self._paused or self._gone or not self._arrived:
            return
        piece = self._arrived.popleft()
        if not piece:
            self._end()
            return
        buffer = self._peer.buffer()
        size = min(len(buffer), len(piece))
        buffer[:size] = piece[:size]
        if size < len(piece):
            self._arrived.appendleft(piece[size:])
        self.other._taken(size)
        self._peer.received(size)
        self._take_soon()


def _first(chunk: Chunk, size: int) -> bytes:
    if not isinstance(chunk, FileRange):
        return bytes(memoryview(cast(Buffer, chunk))[:size])
    read = chunk.file.pread(size, chunk.position)
    if not read:
        raise OSError(f"{chunk.file.path} ends before {chunk.position + size}")
    return read


def _rest(chunk: Chunk, done: int) -> Chunk:
    if isinstance(chunk, FileRange):
        return FileRange(chunk.file, chunk.position + done, chunk.size - done)
    return memoryview(cast(Buffer, chunk))[done:]
