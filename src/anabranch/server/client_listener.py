"""A listener for clients, whatever they speak, and the connections that came in through it.

Connections share buffers, a budget for large frames, and what handles their requests; `reception` decides
how many there may be.  Now and then they are looked at: one that holds a half-sent frame while others wait
for the memory is closed, and each protocol has its own idea of when one is dead.

At the end nothing new is taken, what is under way is answered, and then they are closed.
"""

import asyncio
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

from anabranch.base.budget import ByteBudget
from anabranch.base.clock import Clock
from anabranch.base.network import Link, Listener, Network, Peer, SocketOptions
from anabranch.base.seldom import Seldom
from anabranch.server.config_sections import SocketConfig
from anabranch.server.framing import Buffers, Frames, Owner
from anabranch.server.reception import Reception

log = logging.getLogger(__name__)
_trouble = Seldom(log, 1.0)

_SWEEP_S = 5.0
_SWEEP_CONTENDED_S = 0.5


class ClientConnection(Peer, Owner, Protocol):
    """What a listener knows of a connection."""

    link: Link

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client."""

    @property
    def is_late(self) -> bool:
        """Whether it holds memory for a request that does not come."""

    def quiesce(self) -> None:
        """The node stops: take nothing further."""


C = TypeVar("C", bound=ClientConnection)


class ClientListener(ABC, Generic[C]):
    def __init__(self, clock: Clock, sockets: SocketConfig, reception: Reception) -> None:
        self._clock = clock
        self._reception = reception
        self._options = SocketOptions(
            sockets.listen_backlog_size, sockets.send_buffer_bytes, sockets.receive_buffer_bytes
        )
        self._buffers = Buffers()
        self._budget = ByteBudget(sockets.queued_max_request_bytes)
        self._connections: set[C] = set()
        self._ids = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None
        self.accepted = 0
        """Connections that there ever were."""

    @property
    def connections(self) -> int:
        return len(self._connections)

    @abstractmethod
    def _connection(self, id: int) -> C:
        """A connection for whoever comes next."""

    @abstractmethod
    def _look_at(self, connection: C, now: float) -> None:
        """Close it if it is dead."""

    async def open(self, network: Network, host: str, port: int) -> tuple[str, int]:
        """Start to listen; the address taken."""
        self._listener = await network.listen(
            host, port, lambda: self._connection(next(self._ids)), self._options
        )
        return self._listener.host, self._listener.port

    # --- what connections ask of their home

    def _take_in(self, connection: C, max_frame_bytes: int) -> Frames | None:
        """The connection's frames, None if there are too many connections."""
        if not self._reception.enter(connection.link.remote):
            _trouble.warning("%s: refused, there are too many connections", connection.link.remote)
            return None
        self._connections.add(connection)
        self.accepted += 1
        return Frames(self._buffers, self._budget, max_frame_bytes, connection.link, connection, self._clock)

    def dismiss(self, connection: C) -> None:
        self._connections.discard(connection)
        self._reception.leave(connection.link.remote)

    def track(self, work: Coroutine[Any, Any, None], size: int) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        self._budget.charge(size)

        def ended(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            self._budget.give(size)

        task.add_done_callback(ended)
        return task

    # --- upkeep

    async def sweep(self) -> None:
        """Close connections that are stalled or dead, for as long as the node runs."""
        while True:
            await asyncio.sleep(_SWEEP_CONTENDED_S if self._budget.is_contended else self._rest_s())
            self._buffers.relax()
            now = self._clock.monotonic()
            for connection in list(self._connections):
                if self._budget.is_contended and connection.is_late:
                    _trouble.warning("%s: closed, it stalled inside a request", connection.link.remote)
                    connection.link.abort()
                else:
                    self._look_at(connection, now)

    def _rest_s(self) -> float:
        """Until connections are looked at again."""
        return _SWEEP_S

    async def close(self, grace_s: float) -> None:
        """Take no new connections or requests, let what is under way be answered, then close."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.quiesce()
        deadline = self._clock.monotonic() + grace_s
        while self._clock.monotonic() < deadline:
            if not self._tasks and all(connection.is_idle for connection in self._connections):
                break
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.link.abort()
