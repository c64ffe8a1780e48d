"""A Kafka connection: frames in, answers out, in the order of the requests.

    frame ─> header ─> Api ─┬─ answer at once ────────────────────┐
                            └─ Waiting ─> slot in `_slots` ─ later ┴─> link, in order

A handler runs when its frame arrives, so requests start in order; a fetch that waits keeps its slot
while those after it are worked on.  Handlers that change the cluster hold the connection until they
are done, as Kafka does for every request, so that what a client sends next sees their effect.

An answer that waits for news (`Held`) is given as soon as the client asks something else.

A connection has limits: once `_MAX_SLOTS` answers wait for their turn, or `_MAX_UNSENT` bytes of them,
or the client has not taken as many, no further frame is handled and the socket is not read.  And it has
turns: after `_TURN_S` it lets other connections go on before it handles what it has read already.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, cast

from anabranch.base.errors import AnabranchError, Corrupt
from anabranch.base.network import Chunk, FileRange, Link
from anabranch.base.seldom import Seldom
from anabranch.server.framing import Frames
from anabranch.server.kafka.api_versions import unsupported_answer
from anabranch.server.kafka.held import Held
from anabranch.server.kafka.registry import Api, Reply, Waiting
from anabranch.server.peer import Peer
from anabranch.server.routes import LEAST_HEADER_BYTES, NAME_AT, Route, Routes
from anabranch.server.services import Services
from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import answers_flexibly

log = logging.getLogger(__name__)
_trouble = Seldom(log, 1.0)

_MAX_SLOTS = 128
_MAX_UNSENT = 1 << 20
_MAX_COLLECTED = 1 << 18
_TURN_S = 0.02
_HEAD = _PREFIX = struct.Struct(">ii")  # API and version as one number, or the size; correlation id


class Slot:
    """An answer's place in the order, and what will bring it."""

    __slots__ = ("chunks", "done", "size", "waiting")

    def __init__(self, waiting: Waiting | None = None) -> None:
        self.chunks: Sequence[Chunk] = ()
        self.size = 0
        self.done = False
        self.waiting = waiting


class Home(Protocol):
    """Where connections live: what they share, and who must know that they end."""

    apis: dict[int, Api]
    services: Services

    def admit(self, connection: "Connection") -> Frames | None:
        """The connection's frames, None if there are too many connections."""

    def dismiss(self, connection: "Connection") -> None: ...

    def track(self, work: Coroutine[Any, Any, None], size: int) -> object:
        """Run `work`, which has a request of `size` bytes in memory, to its end before the node stops."""


class Connection:
    __slots__ = (
        "_collected",
        "_collected_bytes",
        "_frames",
        "_held",
        "_held_back",
        "_home",
        "_known_routes",
        "_monotonic",
        "_parked_bytes",
        "_resting",
        "_routes",
        "_slots",
        "_turn_began",
        "connection_id",
        "last_active",
        "link",
        "peer",
        "unsent_seen",
    )

    def __init__(self, home: Home, connection_id: int) -> None:
        self._home = home
        self._monotonic = home.services.clock.monotonic
        self.connection_id = connection_id
        self.last_active = 0.0
        self.unsent_seen = 0
        self._turn_began = 0.0
        self._slots: deque[Slot] = deque()
        self._parked_bytes = 0  # of answers that are known and wait for those before them
        self._collected: list[Chunk] = []
        self._collected_bytes = 0
        self._held = False  # by a request that must be done before the next one begins
        self._held_back: Held | None = None  # an answer that waits for news
        self._resting = False  # its turn is over
        self._frames: Frames | None = None

    # --- the link's side

    def opened(self, link: Link) -> None:
        self.link = link
        address, _, port = link.remote.rpartition(":")
        self.peer = Peer(address, int(port)) if address else Peer()
        self._routes = Routes(self._home.apis, self._home.services, self.connection_id, self.peer)
        self._known_routes = self._routes.known
        self._frames = self._home.admit(self)
        if self._frames is None:
            link.abort()

    def buffer(self) -> memoryview:
        assert self._frames is not None
        return self._frames.buffer()

    def received(self, size: int) -> None:
        assert self._frames is not None
        self.last_active = self._turn_began = self._monotonic()
        try:
            self._frames.received(size)
        except Exception as error:  # noqa: BLE001  the last line of defence: one client, not the node
            self._refuse(error)
            return
        if self._collected:
            self._send_collected()
        if self.link.unsent or self._frames is None or self._frames.stopped:
            self._flush()

    def drained(self) -> None:
        self._maybe_go()

    def closed(self) -> None:
        self.peer.is_gone = True
        if self._frames is not None:
            self._frames.close()
            self._frames = None
            self._home.dismiss(self)
        for slot in self._slots:
            if slot.waiting is not None:
                slot.waiting.answered.cancel()
        self._slots.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client."""
        return not self._slots and not self.link.unsent

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for us, rather than we for the client."""
        return bool(self._slots)

    @property
    def is_open(self) -> bool:
        return self._frames is not None

    @property
    def is_late(self) -> bool:
        """Whether it holds memory for a request that does not come."""
        return self._frames is not None and self._frames.is_late()

    def quiesce(self) -> None:
        """The node stops: take no further request, and answer those that wait with what there is."""
        if self._frames is not None:
            self._frames.close()
        for slot in list(self._slots):
            if slot.waiting is not None:
                slot.waiting.expire()

    # --- the frames' side

    def between(self) -> None:
        if self._monotonic() - self._turn_began > _TURN_S and self._frames is not None:
            self._resting = True
            self._frames.stop()
            asyncio.get_running_loop().call_soon(self._rested)

    def fed(self) -> None:
        if self._frames is not None:
            self._proceed(self._frames.proceed)

    def _rested(self) -> None:
        self._resting = False
        self._maybe_go()

    # --- requests

    def handle(self, frame: memoryview) -> None:
        """Start one request.  Raises if it is not one, and the connection is closed."""
        if self._held_back is not None:
            self._held_back.expire()
            self._held_back = None
        if len(frame) < LEAST_HEADER_BYTES:
            raise Corrupt(f"a request of {len(frame)} bytes has no header")
        kind, correlation_id = _HEAD.unpack_from(frame)
        route = self._known_routes.get(kind)
        if route is None or frame[NAME_AT : route[2]] != route[1]:
            route = self._routes.find(frame, kind)
            if route is None:
                self._answer(correlation_id, False, (unsupported_answer(self._home.apis),))
                return
        api, _, body_at, context = route
        if api.raw:
            reply = api.handler(frame, body_at, context)
            if type(reply) is tuple and len(reply) == 1 and not self._slots:
                (body,) = reply
                self._collect((_PREFIX.pack(4 + len(body), correlation_id) + body,), len(body))
            else:
                self._take_raw(reply, correlation_id, len(frame))
        elif api.waits:
            copied = memoryview(bytes(frame))  # the buffer is used again before the handler ends
            slot = self._hold()
            request = decode(api.key, context.version, copied, body_at)
            self._home.track(self._run(slot, route, request, correlation_id), len(frame))
        else:
            answer = api.handler(decode(api.key, context.version, frame, body_at), context)
            body = bytearray()
            encoder(api.key, context.version)(body, answer)
            self._answer(correlation_id, answers_flexibly(api.key, context.version), (body,))

    def forget(self) -> None:
        """Give up what only saves time: the connection rests."""
        self._routes.forget()
        self.peer.lanes.forget()

    def _take_raw(self, reply: Any, correlation_id: int, size: int) -> None:
        if reply is None:
            return
        if type(reply) is tuple or type(reply) is list:
            self._answer(correlation_id, None, reply)
        elif asyncio.iscoroutine(reply):
            self._home.track(self._run_raw(self._hold(), reply, correlation_id), size)
        else:
            slot = Slot(reply)
            self._slots.append(slot)
            if type(reply) is Held:
                self._held_back = reply
            reply.then(lambda done: self._resolve(slot, correlation_id, done))
            if len(self._slots) >= _MAX_SLOTS and self._frames is not None:
                self._frames.stop()

    # --- answers

    def _answer(self, correlation_id: int, flexible: bool | None, chunks: Sequence[Chunk]) -> None:
        """Put an answer that is known at once in its place."""
        whole, size = _with_header(correlation_id, flexible, chunks)
        if self._slots:
            slot = Slot()
            self._slots.append(slot)
            self._park(slot, whole, size)
            if self._is_blocked and self._frames is not None:
                self._frames.stop()
        else:
            self._collect(whole, size)

    def _collect(self, chunks: Sequence[Chunk], size: int) -> None:
        """Send an answer that is next in order, soon."""
        self._collected += chunks
        self._collected_bytes += size
        if self._collected_bytes > _MAX_COLLECTED or len(self._collected) > _MAX_SLOTS:
            self._flush()

    def _park(self, slot: Slot, chunks: Sequence[Chunk], size: int) -> None:
        slot.chunks, slot.size, slot.done = chunks, size, True
        self._parked_bytes += size

    def _resolve(self, slot: Slot, correlation_id: int, done: "asyncio.Future[Reply]") -> None:
        """An answer that was waited for is known."""
        if not self.is_open or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._refuse(error)
            return
        self._park(slot, *_with_header(correlation_id, None, done.result() or ()))
        self._release()
        self._flush()

    def _release(self) -> None:
        """Move answers that are known and next in order to the way out."""
        slots = self._slots
        while slots and slots[0].done:
            slot = slots.popleft()
            self._parked_bytes -= slot.size
            self._collected.extend(slot.chunks)

    def _flush(self) -> None:
        self._send_collected()
        if self._frames is not None and self.link.unsent > _MAX_UNSENT:
            self._frames.stop()
        else:
            self._maybe_go()

    def _send_collected(self) -> None:
        if self._collected:
            chunks, self._collected = self._collected, []
            self._collected_bytes = 0
            self.link.send(chunks)

    @property
    def _is_blocked(self) -> bool:
        return (
            self._held
            or self._resting
            or len(self._slots) >= _MAX_SLOTS
            or self._parked_bytes > _MAX_UNSENT
            or self.link.unsent > _MAX_UNSENT
        )

    def _maybe_go(self) -> None:
        """Go on reading if nothing speaks against it."""
        frames = self._frames
        if frames is not None and frames.stopped and not self._is_blocked:
            self._proceed(frames.go)

    def _proceed(self, step: Callable[[], None]) -> None:
        self._turn_began = self._monotonic()
        try:
            step()
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        self._send_collected()

    # --- requests that hold the connection

    def _hold(self) -> Slot:
        slot = Slot()
        self._slots.append(slot)
        self._held = True
        if self._frames is not None:
            self._frames.stop()
        return slot

    async def _run(self, slot: Slot, route: Route, request: Any, correlation_id: int) -> None:
        key, version = route.api.key, route.context.version
        try:
            answer = await route.api.handler(request, route.context)
            body = bytearray()
            encoder(key, version)(body, answer)
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        self._finish(slot, *_with_header(correlation_id, answers_flexibly(key, version), (body,)))

    async def _run_raw(self, slot: Slot, work: Coroutine[Any, Any, Reply], correlation_id: int) -> None:
        try:
            reply = await work
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        if reply is None:
            self._finish(slot, (), 0)
        else:
            self._finish(slot, *_with_header(correlation_id, None, reply))

    def _finish(self, slot: Slot, chunks: Sequence[Chunk], size: int) -> None:
        self._park(slot, chunks, size)
        self._held = False
        if self.is_open:
            self._release()
            self._flush()

    def _refuse(self, error: BaseException) -> None:
        """Close the connection over something that has no answer of its own."""
        if isinstance(error, AnabranchError):
            _trouble.warning("%s: closed: %s", self.link.remote, error)
        else:
            log.error("%s: closed, a request failed", self.link.remote, exc_info=error)
        if self._frames is not None:
            self._frames.close()  # what the client has sent since is not looked at
            self._send_collected()
            self.link.close()


def _with_header(
    correlation_id: int, flexible: bool | None, chunks: Sequence[Chunk]
) -> tuple[list[Chunk], int]:
    """`chunks` as a frame, and its size.  `flexible` None: they carry the header's tags themselves."""
    head = b"\0" if flexible else b""
    size = 4 + len(head)
    for chunk in chunks:
        size += chunk.size if type(chunk) is FileRange else len(cast(bytes, chunk))
    prefix = _PREFIX.pack(size, correlation_id) + head
    if chunks and type(chunks[0]) is bytes:
        return [prefix + chunks[0], *chunks[1:]], size
    return [prefix, *chunks], size
