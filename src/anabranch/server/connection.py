"""A Kafka connection: frames in, answers out, in the order of the requests.

    frame ─> header ─> Api ─┬─ answer at once ───────────────────┐
                            └─ future ─> slot in `_slots` ─ later ┴─> link, in order

A handler runs when its frame arrives, so requests start in order; a fetch that waits keeps its slot
while those after it are worked on.  Handlers that change the cluster hold the connection until they
are done, as Kafka does for every request, so that what a client sends next sees their effect.

A connection has limits: once `_MAX_SLOTS` answers wait or `_MAX_UNSENT` bytes have not been taken by
the client, no further frame is handled and the socket is not read.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, cast

from anabranch.base.errors import AnabranchError, Corrupt
from anabranch.base.network import Chunk, FileRange, Link
from anabranch.server.framing import Frames
from anabranch.server.kafka.api_versions import unsupported_answer
from anabranch.server.kafka.registry import Api, Deferred, Reply, RequestContext
from anabranch.server.peer import Peer
from anabranch.server.services import Services
from anabranch.wire.kafka.decoder import Cursor, decode, skip_tags
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import answers_flexibly, is_flexible

log = logging.getLogger(__name__)

_MAX_SLOTS = 128
_MAX_UNSENT = 1 << 20
_HEAD = struct.Struct(">hhih")
_PREFIX = struct.Struct(">ii")
_API_VERSIONS = 18


class Slot:
    """An answer's place in the order, and what will bring it."""

    __slots__ = ("chunks", "done", "future")

    def __init__(self, future: "Deferred | None" = None) -> None:
        self.chunks: Sequence[Chunk] = ()
        self.done = False
        self.future = future


class Home(Protocol):
    """Where connections live: what they share, and who must know that they end."""

    apis: dict[int, Api]
    services: Services

    def admit(self, connection: "Connection") -> Frames | None:
        """The connection's frames, None if there are too many connections."""

    def dismiss(self, connection: "Connection") -> None: ...

    def track(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background, to its end before the node stops."""


class Connection:
    __slots__ = (
        "_collected",
        "_frames",
        "_held",
        "_home",
        "_slots",
        "connection_id",
        "last_active",
        "link",
        "peer",
    )

    def __init__(self, home: Home, connection_id: int) -> None:
        self._home = home
        self.connection_id = connection_id
        self.last_active = 0.0
        self._slots: deque[Slot] = deque()
        self._collected: list[Chunk] = []
        self._held = False
        self._frames: Frames | None = None

    # --- the link's side

    def opened(self, link: Link) -> None:
        self.link = link
        address, _, port = link.remote.rpartition(":")
        self.peer = Peer(address, int(port)) if address else Peer()
        self._frames = self._home.admit(self)
        if self._frames is None:
            link.abort()

    def buffer(self) -> memoryview:
        assert self._frames is not None
        return self._frames.buffer()

    def received(self, size: int) -> None:
        assert self._frames is not None
        self.last_active = self._home.services.clock.monotonic()
        try:
            self._frames.received(size)
        except Exception as error:  # noqa: BLE001  the last line of defence: one client, not the node
            self._refuse(error)
            return
        self._flush()

    def drained(self) -> None:
        self._maybe_go()

    def closed(self) -> None:
        if self._frames is not None:
            self._frames.close()
            self._frames = None
            self._home.dismiss(self)
        for slot in self._slots:
            if slot.future is not None:
                slot.future.cancel()
        self._slots.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client."""
        return not self._slots and not self.link.unsent

    @property
    def is_open(self) -> bool:
        return self._frames is not None

    @property
    def is_holding(self) -> bool:
        return self._frames is not None and self._frames.is_holding

    def quiesce(self) -> None:
        """The node stops: take no further request, and end the waits of those under way."""
        self._held = True
        if self._frames is not None:
            self._frames.stop()
        for slot in list(self._slots):
            if slot.future is not None and not slot.done:
                slot.future.cancel()
                self._slots.remove(slot)

    def relax(self) -> None:
        if self._frames is not None:
            self._frames.relax()

    # --- requests

    def handle(self, frame: memoryview) -> None:
        """Start one request.  Raises if it is not one, and the connection is closed."""
        if len(frame) < _HEAD.size:
            raise Corrupt(f"a request of {len(frame)} bytes has no header")
        key, version, correlation_id, name_size = _HEAD.unpack_from(frame)
        api = self._home.apis.get(key)
        if api is None:
            raise Corrupt(f"API {key} is unknown")
        if not api.min_version <= version <= api.max_version:
            if key != _API_VERSIONS:
                raise Corrupt(f"{api.name} has no version {version}")
            self._answer(correlation_id, False, (unsupported_answer(self._home.apis),))
            return
        at = _HEAD.size
        client_id = None
        if name_size >= 0:
            client_id = str(frame[at : at + name_size], "utf-8", "replace")
            at += name_size
        if is_flexible(key, version):
            if at < len(frame) and frame[at] == 0:
                at += 1
            else:
                cursor = Cursor(frame, at)
                skip_tags(cursor)
                at = cursor.at
        context = RequestContext(
            version, correlation_id, client_id, self.connection_id, self._home.services, self.peer
        )
        if api.raw:
            self._take_raw(api.handler(frame, at, context), context)
        elif api.waits:
            copied = memoryview(bytes(frame))  # the buffer is used again before the handler ends
            self._hold(self._run(api, decode(key, version, copied, at), context))
        else:
            answer = api.handler(decode(key, version, frame, at), context)
            body = bytearray()
            encoder(key, version)(body, answer)
            self._answer(correlation_id, answers_flexibly(key, version), (body,))

    def _take_raw(self, reply: "Reply | Deferred | Coroutine[Any, Any, Reply]", ctx: RequestContext) -> None:
        if reply is None:
            return
        if asyncio.isfuture(reply):
            slot = Slot(reply)
            self._slots.append(slot)
            reply.add_done_callback(lambda done: self._resolve(slot, ctx.correlation_id, done))
            if len(self._slots) >= _MAX_SLOTS and self._frames is not None:
                self._frames.stop()
        elif asyncio.iscoroutine(reply):
            self._hold(self._run_raw(reply, ctx))
        else:
            self._answer(ctx.correlation_id, None, cast(Sequence[Chunk], reply))

    # --- answers

    def _answer(self, correlation_id: int, flexible: bool | None, chunks: Sequence[Chunk]) -> None:
        """Put an answer that is known at once in its place."""
        whole = _with_header(correlation_id, flexible, chunks)
        if self._slots:
            slot = Slot()
            slot.chunks, slot.done = whole, True
            self._slots.append(slot)
        else:
            self._collected.extend(whole)
            if self.link.unsent > _MAX_UNSENT or len(self._collected) > _MAX_SLOTS:
                self._flush()

    def _resolve(self, slot: Slot, correlation_id: int, done: "asyncio.Future[Reply]") -> None:
        """A deferred answer is known."""
        if not self.is_open or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._refuse(error)
            return
        slot.chunks = _with_header(correlation_id, None, done.result() or ())
        slot.done = True
        self._release()
        self._flush()

    def _release(self) -> None:
        """Move answers that are known and next in order to the way out."""
        slots = self._slots
        while slots and slots[0].done:
            self._collected.extend(slots.popleft().chunks)

    def _flush(self) -> None:
        if self._collected:
            chunks, self._collected = self._collected, []
            self.link.send(chunks)
        if self._frames is not None and self.link.unsent > _MAX_UNSENT:
            self._frames.stop()
        else:
            self._maybe_go()

    def _maybe_go(self) -> None:
        """Go on reading if nothing speaks against it."""
        frames = self._frames
        if frames is None or self._held or len(self._slots) >= _MAX_SLOTS or self.link.unsent > _MAX_UNSENT:
            return
        try:
            frames.go()
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        if self._collected:
            chunks, self._collected = self._collected, []
            self.link.send(chunks)

    # --- requests that hold the connection

    def _hold(self, work: Coroutine[Any, Any, None]) -> None:
        self._held = True
        if self._frames is not None:
            self._frames.stop()
        self._home.track(work)

    async def _run(self, api: Api, request: Any, ctx: RequestContext) -> None:
        slot = Slot()
        self._slots.append(slot)
        try:
            answer = await api.handler(request, ctx)
            body = bytearray()
            encoder(api.key, ctx.version)(body, answer)
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        flexible = answers_flexibly(api.key, ctx.version)
        self._finish(slot, _with_header(ctx.correlation_id, flexible, (body,)))

    async def _run_raw(self, work: Coroutine[Any, Any, Reply], ctx: RequestContext) -> None:
        slot = Slot()
        self._slots.append(slot)
        try:
            reply = await work
        except Exception as error:  # noqa: BLE001  as above
            self._refuse(error)
            return
        self._finish(slot, [] if reply is None else _with_header(ctx.correlation_id, None, reply))

    def _finish(self, slot: Slot, chunks: Sequence[Chunk]) -> None:
        slot.chunks, slot.done = chunks, True
        self._held = False
        if self.is_open:
            self._release()
            self._flush()

    def _refuse(self, error: BaseException) -> None:
        """Close the connection over something that has no answer of its own."""
        if isinstance(error, AnabranchError):
            log.info("%s: closed: %s", self.link.remote, error)
        else:
            log.error("%s: closed, a request failed", self.link.remote, exc_info=error)
        if self._collected:
            chunks, self._collected = self._collected, []
            self.link.send(chunks)
        self.link.close()


def _with_header(correlation_id: int, flexible: bool | None, chunks: Sequence[Chunk]) -> list[Chunk]:
    """`chunks` as a frame.  `flexible` None: the chunks carry the header's tags themselves."""
    head = b"\0" if flexible else b""
    size = 4 + len(head)
    for chunk in chunks:
        size += chunk.size if type(chunk) is FileRange else len(cast(bytes, chunk))
    prefix = _PREFIX.pack(size, correlation_id) + head
    if chunks and type(chunks[0]) is bytes:
        return [prefix + chunks[0], *chunks[1:]]
    return [prefix, *chunks]
