"""The listener for Kafka clients.

A connection that has neither sent nor taken anything for `connections.max.idle.ms` is closed.  One that
rests for a while gives up what it remembers only to save time.
"""

import logging

from anabranch.server.client_listener import ClientListener
from anabranch.server.connection import Connection
from anabranch.server.framing import Frames
from anabranch.server.kafka.registry import Api
from anabranch.server.reception import Reception
from anabranch.server.services import Services

log = logging.getLogger(__name__)

_RELAX_AFTER_S = 10.0


class KafkaListener(ClientListener[Connection]):
    def __init__(self, apis: dict[int, Api], services: Services, reception: Reception) -> None:
        super().__init__(services.clock, services.config.current.sockets, reception)
        self.apis = apis
        self.services = services

    def _connection(self, id: int) -> Connection:
        return Connection(self, id)

    def admit(self, connection: Connection) -> Frames | None:
        connection.last_active = self.services.clock.monotonic()
        return self._take_in(connection, self.services.config.current.sockets.request_max_bytes)

    def dismiss(self, connection: Connection) -> None:
        super().dismiss(connection)
        self.services.share_sessions.disconnected(connection.connection_id)

    def _look_at(self, connection: Connection, now: float) -> None:
        link = connection.link
        if link.unsent != connection.unsent_seen:  # the client takes what it asked for
            connection.unsent_seen = link.unsent
            connection.last_active = now
        silent_s = now - connection.last_active
        if silent_s > _RELAX_AFTER_S:
            connection.forget()
        max_idle_ms = self.services.config.current.sockets.connections_max_idle_ms
        if 0 <= max_idle_ms < silent_s * 1000 and not connection.is_waiting:
            log.info("%s: closed after %d s of silence", link.remote, silent_s)
            link.abort()
