"""A listener for Pulsar clients and the connections that came in through it.

Connections share buffers, a budget for large frames, and the table of commands.  As Kafka's, there may be at
most `max.connections` of them, `max.connections.per.ip` from one address.

Every connection is asked for a sign of life each `keepAliveIntervalSeconds`, and closed if none came by the
next time; so is one that has not said CONNECT by the first.  One that sits on a half-sent frame while others
wait for the memory is closed, too.
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
from anabranch.server.framing import Buffers, Frames
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import Command
from anabranch.server.pulsar.services import PulsarServices
from anabranch.wire.pulsar.frames import FRAME_OVERHEAD_BYTES

log = logging.getLogger(__name__)
_trouble = Seldom(log, 1.0)

_SWEEP_S = 5.0
_SWEEP_CONTENDED_S = 0.5


class PulsarListener:
    def __init__(self, commands: dict[int, Command], services: PulsarServices, room: int) -> None:
        """`room` is the number of connections that the process has descriptors for."""
        self.commands = commands
        self.services = services
        self._room = room
        self._buffers = Buffers()
        self._budget = ByteBudget(services.config.current.sockets.queued_max_request_bytes)
        self._connections: set[PulsarConnection] = set()
        self._by_address: Counter[str] = Counter()
        self._ids = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None

    async def open(self, network: Network, host: str, port: int) -> tuple[str, int]:
        """Start to listen; the address taken."""
        told = self.services.config.current.sockets
        options = SocketOptions(told.listen_backlog_size, told.send_buffer_bytes, told.receive_buffer_bytes)
        self._listener = await network.listen(
            host, port, lambda: PulsarConnection(self, next(self._ids)), options
        )
        return self._listener.host, self._listener.port

    # --- what connections ask of their home

    def admit(self, connection: PulsarConnection) -> Frames | None:
        current = self.services.config.current
        sockets = current.sockets
        address = connection.link.remote.rpartition(":")[0]
        if (
            len(self._connections) >= min(sockets.max_connections, self._room)
            or self._by_address[address] >= sockets.max_connections_per_ip
        ):
            _trouble.warning("%s: refused, there are too many connections", connection.link.remote)
            return None
        self._connections.add(connection)
        self._by_address[address] += 1
        clock = self.services.clock
        connection.signs.next_ping = clock.monotonic() + current.pulsar.keep_alive_interval_s
        return Frames(
            self._buffers,
            self._budget,
            current.policies.max_message_bytes + FRAME_OVERHEAD_BYTES,
            connection.link,
            connection,
            clock,
        )

    def dismiss(self, connection: PulsarConnection) -> None:
        self._connections.discard(connection)
        address = connection.link.remote.rpartition(":")[0]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

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
        """Ask connections for signs of life and close those that are dead, for as long as the node runs."""
        while True:
            interval_s = self.services.config.current.pulsar.keep_alive_interval_s
            rest_s = _SWEEP_CONTENDED_S if self._budget.is_contended else min(_SWEEP_S, interval_s / 2)
            await asyncio.sleep(rest_s)
            self._buffers.relax()
            now = self.services.clock.monotonic()
            for connection in list(self._connections):
                if self._budget.is_contended and connection.is_late:
                    _trouble.warning("%s: closed, it stalled inside a frame", connection.link.remote)
                    connection.link.abort()
                elif now >= connection.signs.next_ping:
                    connection.signs.next_ping = now + interval_s
                    self._keep_alive(connection)

    def _keep_alive(self, connection: PulsarConnection) -> None:
        remote = connection.link.remote
        if connection.is_over:
            connection.link.abort()  # it had its time to take what was said
        elif not connection.is_connected:
            _trouble.warning("%s: closed, it did not say who it is", remote)
            connection.link.abort()
        elif connection.signs.is_owed and connection.is_read:
            _trouble.warning("%s: closed, it gave no sign of life", remote)
            connection.link.abort()
        elif connection.protocol_version >= 1:  # before, there was no PING
            connection.signs.ping()

    # --- the end

    async def close(self, grace_s: float) -> None:
        """Take no new connections or commands, let what is under way be answered, then close."""
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
