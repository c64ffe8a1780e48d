"""The listener for Pulsar clients.

Every connection is asked for a sign of life each `keepAliveIntervalSeconds`, and closed if none came by the
next time; so is one that has not said CONNECT by the first.
"""

import logging

from anabranch.base.seldom import Seldom
from anabranch.server.client_listener import ClientListener
from anabranch.server.framing import Frames
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import Command
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.reception import Reception
from anabranch.wire.pulsar.frames import FRAME_OVERHEAD_BYTES

_trouble = Seldom(logging.getLogger(__name__), 1.0)


class PulsarListener(ClientListener[PulsarConnection]):
    def __init__(self, commands: dict[int, Command], services: PulsarServices, reception: Reception) -> None:
        super().__init__(services.clock, services.config.current.sockets, reception)
        self.commands = commands
        self.services = services

    @property
    def _interval_s(self) -> int:
        return self.services.config.current.pulsar.keep_alive_interval_s

    def _connection(self, id: int) -> PulsarConnection:
        return PulsarConnection(self, id)

    def admit(self, connection: PulsarConnection) -> Frames | None:
        connection.signs.next_ping = self.services.clock.monotonic() + self._interval_s
        max_message_bytes = self.services.config.current.policies.max_message_bytes
        return self._take_in(connection, max_message_bytes + FRAME_OVERHEAD_BYTES)

    def _rest_s(self) -> float:
        return min(super()._rest_s(), self._interval_s / 2)

    def _look_at(self, connection: PulsarConnection, now: float) -> None:
        if now < connection.signs.next_ping:
            return
        connection.signs.next_ping = now + self._interval_s
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
