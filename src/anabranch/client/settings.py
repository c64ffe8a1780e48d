"""Settings of a client: where the cluster is, and how long to try."""

from typing import NamedTuple

CONNECT_S = 10.0  # as Kafka's socket.connection.setup.timeout.ms
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


class Settings(NamedTuple):
    """Small and plain: they travel to executors."""

    bootstrap: str
    client_id: str = "anabranch"
    timeout_s: float = 30.0
    """For a request with all its tries, unless the caller says otherwise."""
    topics_come_s: float = 0.0
    """How long a topic that brokers do not know may be on its way to them."""
