"""A Kafka connection: frames in, answers out, in the order of the requests.

    frame ─> header ─> Api ─┬─ answer at once ─────────────────────────┐
                            ├─ Waiting ─> slot in `Slots` ─ later ──────┤
                            └─ coroutine: holds the connection          ├─> link, in order
                                  └─ appended: the slot is what waits ──┘

Requests begin in order and are answered in order; their waits overlap.  A handler runs when its frame
arrives.  What it has appended, and answers when that is acknowledged, keeps a slot while the requests after
it are worked on.  A coroutine holds the connection until it returns or says `ctx.begun`: so that what a
client sends next sees the effect of what it sent before, as with Kafka, which has one request of a
connection in hand at a time.

An answer that waits for news (`Held`) is given as soon as the client asks something else.

A connection has limits: once too many answers wait for their turn, or too many bytes of them or of what
requests that wait keep (`Slots.is_full`), or the client has not taken `_MAX_UNSENT` bytes, no further frame
is handled and the socket is not read.  And it has turns: after `_TURN_S` it lets other connections go on
before it handles what it has read already.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, cast

from anabranch.base.errors import AnabranchError, Corrupt
from anabranch.base.network import Chunk, Link
from anabranch.base.seldom import Seldom
from anabranch.server.framing import Frames
from anabranch.server.kafka.api_versions import unsupported_answer
from anabranch.server.kafka.held import Held
from anabranch.server.kafka.registry import Api, Reply, Waiting
from anabranch.server.peer import Peer
from anabranch.server.request_times import NOT_KEPT, QUICK_S, RequestTimes
from anabranch.server.routes import LEAST_HEADER_BYTES, NAME_AT, Route, Routes
from anabranch.server.services import Services
from anabranch.server.slots import MAX_SLOTS, PREFIX, Slot, Slots, with_header
from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import answers_flexibly

log = logging.getLogger(__name__)
_trouble = Seldom(log, 1.0)

_MAX_UNSENT = 1 << 20
_MAX_COLLECTED = 1 << 18
_TURN_S = 0.02
_HEAD = struct.Struct(">ii")  # API and version as one number, correlation id


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
        "_begin_s",
        "_collected",
        "_collected_bytes",
        "_flushing",
        "_frames",
        "_held",
        "_held_back",
        "_home",
        "_known_routes",
        "_monotonic",
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
        self._begin_s = 0.0  # when the request in hand was begun, or the next one may be
        self._slots = Slots()
        self._collected: list[Chunk] = []
        self._collected_bytes = 0
        self._flushing = False  # soon
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
        self.last_active = self._turn_began = self._begin_s = self._monotonic()
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
        self._slots.abandon()

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
        self._slots.expire()

    # --- the frames' side

    def between(self) -> None:
        if self._begin_s - self._turn_began > _TURN_S and self._frames is not None:
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
                self._answer(correlation_id, False, (unsupported_answer(self._home.apis),), NOT_KEPT)
                return
        api, _, body_at, context = route
        if api.raw:
            reply = api.handler(frame, body_at, context)
            if type(reply) is tuple and len(reply) == 1 and not self._slots:
                (body,) = reply
                self._collect((PREFIX.pack(4 + len(body), correlation_id) + body,), len(body))
                received_s, begun_s, times = self.last_active, self._begin_s, context.times
                now_s = self._begin_s = self._monotonic()
                if now_s - received_s < QUICK_S:
                    times.quick += 1
                    times.quick_s += now_s - received_s
                    times.quick_queue_s += begun_s - received_s
                else:
                    times.observe(received_s, begun_s, now_s, now_s, now_s)
            else:
                self._take_raw(reply, route, correlation_id, len(frame))
        elif api.waits:
            copied = memoryview(bytes(frame))  # the buffer is used again before the handler ends
            slot = self._hold(context.times, len(frame))
            request = decode(api.key, context.version, copied, body_at)
            self._home.track(self._run(slot, route, request, correlation_id), len(frame))
        else:
            answer = api.handler(decode(api.key, context.version, frame, body_at), context)
            body = bytearray()
            encoder(api.key, context.version)(body, answer)
            self._answer(correlation_id, answers_flexibly(api.key, context.version), (body,), context.times)

    def forget(self) -> None:
        """Give up what only saves time: the connection rests."""
        self._routes.forget()
        self.peer.lanes.forget()

    def _take_raw(self, reply: Any, route: Route, correlation_id: int, size: int) -> None:
        times = route.context.times
        if reply is None:
            begun_s, self._begin_s = self._begin_s, self._monotonic()
            self._count_at_once(times, begun_s)
        elif type(reply) is tuple or type(reply) is list:
            self._answer(correlation_id, None, reply, times)
        elif asyncio.iscoroutine(reply):
            self._home.track(self._run_raw(self._hold(times, 0), reply, correlation_id), size)
        else:
            slot = self._slots.open(times, self.last_active, self._begin_s)
            if type(reply) is Held:
                self._held_back = reply
            self._wait(slot, reply, correlation_id)
            if self._is_blocked and self._frames is not None:
                self._frames.stop()

    def _wait(self, slot: Slot, waiting: Waiting, correlation_id: int) -> None:
        """Fill the slot when there is an answer."""
        self._begin_s = self._monotonic()
        self._slots.wait(slot, waiting, self._begin_s)
        waiting.then(lambda done: self._resolve(slot, correlation_id, done))

    # --- answers

    def _answer(
        self, correlation_id: int, flexible: bool | None, chunks: Sequence[Chunk], times: RequestTimes
    ) -> None:
        """Put an answer that is known at once in its place."""
        whole, size = with_header(correlation_id, flexible, chunks)
        begun_s, self._begin_s = self._begin_s, self._monotonic()
        if self._slots:
            slot = self._slots.open(times, self.last_active, begun_s)
            self._slots.park(slot, whole, size, self._begin_s)
            if self._is_blocked and self._frames is not None:
                self._frames.stop()
        else:
            self._collect(whole, size)
            self._count_at_once(times, begun_s)

    def _count_at_once(self, times: RequestTimes, begun_s: float) -> None:
        """A request that waited for nothing once it was begun has been answered now."""
        now_s = self._begin_s
        times.observe(self.last_active, begun_s, now_s, now_s, now_s)

    def _collect(self, chunks: Sequence[Chunk], size: int) -> None:
        """Send an answer that is next in order, soon."""
        self._collected += chunks
        self._collected_bytes += size
        if self._collected_bytes > _MAX_COLLECTED or len(self._collected) > MAX_SLOTS:
            self._flush()

    def _resolve(self, slot: Slot, correlation_id: int, done: "asyncio.Future[Reply]") -> None:
        """An answer that was waited for is known."""
        if not self.is_open or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._refuse(error)
            return
        chunks, now_s = done.result(), self._monotonic()
        if chunks is None:
            self._slots.park(slot, (), 0, now_s)
        else:
            self._slots.park(slot, *with_header(correlation_id, None, chunks), now_s)
        self._slots.release(self._collected, now_s)
        if not self._slots:
            self._flush()
        elif not self._flushing:  # others may be known in this turn of the loop, too
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flushing = False
        if self.is_open:
            self._flush()

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
        return self._held or self._resting or self._slots.is_full or self.link.unsent > _MAX_UNSENT

    def _maybe_go(self) -> None:
        """Go on reading if nothing speaks against it."""
        frames = self._frames
        if frames is not None and frames.stopped and not self._is_blocked:
            self._proceed(frames.go)

    def _proceed(self, step: Callable[[], None]) -> None:
        self._turn_began = self._begin_s = self._monotonic()
        try:
            step()
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        self._send_collected()

    # --- requests that hold the connection

    def _hold(self, times: RequestTimes, size: int) -> Slot:
        """A slot for a request of `size` bytes that nothing overtakes."""
        slot = self._slots.open(times, self.last_active, self._begin_s, size)
        self._held = True
        if self._frames is not None:
            self._frames.stop()
        return slot

    def _begun(self, slot: Slot) -> None:
        """Nothing but waiting is left of the request in hand: the next ones may begin."""
        slot.task = asyncio.current_task()
        slot.handled_s = self._monotonic()
        if self.is_open:
            self._held = False
            self._maybe_go()
        elif slot.task is not None:
            slot.task.cancel()

    async def _run(self, slot: Slot, route: Route, request: Any, correlation_id: int) -> None:
        key, version = route.api.key, route.context.version
        context = route.context.of_one(partial(self._begun, slot))
        try:
            answer = await route.api.handler(request, context)
            body = bytearray()
            encoder(key, version)(body, answer)
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        self._finish(slot, *with_header(correlation_id, answers_flexibly(key, version), (body,)))

    async def _run_raw(
        self, slot: Slot, work: Coroutine[Any, Any, Reply | Waiting], correlation_id: int
    ) -> None:
        try:
            reply = await work
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        if reply is None:
            self._finish(slot, (), 0)
        elif type(reply) is tuple or type(reply) is list:
            self._finish(slot, *with_header(correlation_id, None, reply))
        else:
            self._go_on_waiting(slot, cast(Waiting, reply), correlation_id)

    def _go_on_waiting(self, slot: Slot, waiting: Waiting, correlation_id: int) -> None:
        if self.is_open:
            self._held = False
            self._wait(slot, waiting, correlation_id)
            self._maybe_go()
        else:
            waiting.answered.cancel()

    def _finish(self, slot: Slot, chunks: Sequence[Chunk], size: int) -> None:
        if slot.task is None:
            self._held = False
        now_s = self._monotonic()
        self._slots.park(slot, chunks, size, now_s)
        if self.is_open:
            self._slots.release(self._collected, now_s)
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
