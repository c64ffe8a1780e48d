"""A listener and the connections that came in through it.

Connections share buffers, a budget for large frames, and the table of APIs.  There may be at most
`max.connections` of them, `max.connections.per.ip` from one address; one that has neither sent nor
taken anything for `connections.max.idle.ms` is closed, and so is one that sits on a half-sent frame
while others wait for the memory.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from anabranch.base.budget import ByteBudget
from anabranch.base.network import Listener, Network, SocketOptions
from anabranch.base.seldom import Seldom
from anabranch.server.connection import Connection
from anabranch.server.framing import Buffers, Frames
from anabranch.server.kafka.registry import Api
from anabranch.server.services import Services

log = logging.getLogger(__name__)
_trouble = Seldom(log, 1.0)

_SWEEP_S = 5.0
_SWEEP_CONTENDED_S = 0.5
_RELAX_AFTER_S = 10.0


class KafkaListener:
    def __init__(self, apis: dict[int, Api], services: Services, room: int) -> None:
        """`room` is the number of connections that the process has descriptors for."""
        self.apis = apis
        self.services = services
        self._room = room
        self._buffers = Buffers()
        self._budget = ByteBudget(services.config.current.sockets.queued_max_request_bytes)
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._ids = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None

    async def open(self, network: Network, host: str, port: int) -> tuple[str, int]:
        """Start to listen; the address taken."""
        told = self.services.config.current.sockets
        options = SocketOptions(told.listen_backlog_size, told.send_buffer_bytes, told.receive_buffer_bytes)
        self._listener = await network.listen(host, port, lambda: Connection(self, next(self._ids)), options)
        return self._listener.host, self._listener.port

    # --- what connections ask of their home

    def admit(self, connection: Connection) -> Frames | None:
        sockets = self.services.config.current.sockets
        address = connection.link.remote.rpartition(":")[0]
        if (
            len(self._connections) >= min(sockets.max_connections, self._room)
            or self._by_address[address] >= sockets.max_connections_per_ip
        ):
            _trouble.warning("%s: refused, there are too many connections", connection.link.remote)
            return None
        self._connections.add(connection)
        self._by_address[address] += 1
        connection.last_active = self.services.clock.monotonic()
        return Frames(
            self._buffers,
            self._budget,
            sockets.request_max_bytes,
            connection.link,
            connection,
            self.services.clock,
        )

    def dismiss(self, connection: Connection) -> None:
        self._connections.discard(connection)
        address = connection.link.remote.rpartition(":")[0]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def track(self, work: Coroutine[Any, Any, None], size: int) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        self._budget.charge(size)

        def ended(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            self._budget.give(size)

        task.add_done_callback(ended)

    # --- upkeep

    async def sweep(self) -> None:
        """Close connections that are idle or stalled, for as long as the node runs."""
        while True:
            await asyncio.sleep(_SWEEP_CONTENDED_S if self._budget.is_contended else _SWEEP_S)
            self._buffers.relax()
            max_idle_ms = self.services.config.current.sockets.connections_max_idle_ms
            now = self.services.clock.monotonic()
            for connection in list(self._connections):
                self._look_at(connection, now, max_idle_ms)

    def _look_at(self, connection: Connection, now: float, max_idle_ms: int) -> None:
        link = connection.link
        if link.unsent != connection.unsent_seen:  # the client takes what it asked for
            connection.unsent_seen = link.unsent
            connection.last_active = now
        silent_s = now - connection.last_active
        if silent_s > _RELAX_AFTER_S:
            connection.forget()
        if self._budget.is_contended and connection.is_late:
            _trouble.warning("%s: closed, it stalled inside a request", link.remote)
            link.abort()
        elif 0 <= max_idle_ms < silent_s * 1000 and not connection.is_waiting:
            log.info("%s: closed after %d s of silence", link.remote, silent_s)
            link.abort()

    async def close(self, grace_s: float) -> None:
        """Take no new connections or requests, let what is under way be answered, then close."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.quiesce()
        deadline = self.services.clock.monotonic() + grace_s
        while self.services.clock.monotonic() < deadline:
            if not self._tasks and all(connection.is_idle for connection in self._connections):
                break
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.link.abort()
