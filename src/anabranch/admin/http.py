"""HTTP/1.1 over the application: uvicorn's protocol, without uvicorn's server.

The node's loop, listener and signals are the node's own, so only what reads requests and writes answers is
taken.  Imported when the first request comes (`admin/listener.py`).
"""

import asyncio
import logging
from collections.abc import Callable

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from anabranch.admin.app import App
from anabranch.admin.services import AdminServices

MakeProtocol = Callable[[asyncio.AbstractEventLoop, float], H11Protocol]


class HttpProtocol(H11Protocol):
    """One that does not wait forever for the rest of a request's head."""

    head_s: float
    when_lost: Callable[[], None]
    _deadline: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_between = self.cycle is None or self.cycle.response_complete
        if not is_between:
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.head_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)
        self.when_lost()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def http_protocols(services: AdminServices, keep_alive_s: int, head_bytes: int) -> MakeProtocol:
    """Makes the protocol of one connection after another, over one application."""
    config = Config(
        App(services),
        http=HttpProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=keep_alive_s,
        h11_max_incomplete_event_size=head_bytes,
    )
    config.load()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # or anybody's nonsense would fill the log
    state = ServerState()

    def make(loop: asyncio.AbstractEventLoop, head_s: float) -> H11Protocol:
        protocol = HttpProtocol(config, state, {}, loop)
        protocol.head_s = head_s
        return protocol

    return make
