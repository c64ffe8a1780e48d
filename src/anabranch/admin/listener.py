"""The HTTP port: open from the start, while what answers is loaded when somebody first calls.

    client ──> Door ── the first bytes ──> loads the application, once ──> HTTP's own protocol takes over

So a broker that nobody administers has neither the memory nor the start-up time of a web framework.  It is
loaded by a thread, and the loop goes on meanwhile.

Connections are few and may be anybody's: there are at most `_MOST` of them, a request's head has to come
within `_HEAD_S`, and its body within the application's own bound.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from anabranch.admin.services import AdminServices
from anabranch.base.network import open_server

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

_MOST = 256
_HEAD_S = 30.0
_KEEP_ALIVE_S = 60
_HEAD_BYTES = 64 << 10


class HttpListener:
    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._server: asyncio.Server | None = None
        self._loading: asyncio.Future[Any] | None = None
        self.transports: set[asyncio.Transport] = set()

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Start to listen; the address taken."""
        self._server = await open_server(lambda: Door(self), host, port, backlog=128)
        taken = self._server.sockets[0].getsockname()
        return taken[0], taken[1]

    async def protocol(self) -> "H11Protocol":
        """What takes over from a door."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(
                self._services.threads, _load, self._services
            )
        make = await asyncio.shield(self._loading)
        return cast("H11Protocol", make(asyncio.get_running_loop(), _HEAD_S))

    def is_full(self) -> bool:
        return len(self.transports) >= _MOST

    async def close(self, grace_s: float = 0.0) -> None:
        """Take no new connections; end those there are, after a while if they are at work."""
        if self._server is not None:
            self._server.close()
        if self.transports and grace_s:
            await asyncio.sleep(min(grace_s, 0.1))
        for transport in list(self.transports):
            transport.abort()
        await asyncio.sleep(0)  # so that they have heard of it


def _load(services: AdminServices) -> Any:
    from anabranch.admin.http import http_protocols  # the web framework, at last

    return http_protocols(services, _KEEP_ALIVE_S, _HEAD_BYTES)


class Door(asyncio.Protocol):
    """A connection whose first bytes have not come, or have come too early for anybody to read them."""

    def __init__(self, home: HttpListener) -> None:
        self._home = home
        self._early = b""
        self._next: H11Protocol | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._home.is_full():
            log.warning("HTTP: a connection is refused, there are %d", _MOST)
            self._transport.abort()
            return
        self._home.transports.add(self._transport)
        self._timer = asyncio.get_running_loop().call_later(_HEAD_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._early += data
        self._transport.pause_reading()
        self._timer.cancel()
        if self._task is None:
            self._task = asyncio.ensure_future(self._hand_over())

    async def _hand_over(self) -> None:
        try:
            protocol = await self._home.protocol()
        except Exception:
            log.exception("HTTP: its server could not be loaded, a connection is closed")
            self._transport.abort()
            return
        if self._transport.is_closing():
            return
        protocol.when_lost = lambda: self._home.transports.discard(self._transport)  # type: ignore[attr-defined]
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        self._transport.resume_reading()
        protocol.data_received(self._early)

    def connection_lost(self, error: Exception | None) -> None:
        self._home.transports.discard(self._transport)
        if hasattr(self, "_timer"):
            self._timer.cancel()
