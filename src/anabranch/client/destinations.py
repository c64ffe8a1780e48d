"""Destinations of requests: a broker, a partition's leader, a coordinator, the controller, any.

`routing` finds the address that one of them has now.
"""

from typing import NamedTuple

from anabranch.base.errors import Invalid

GROUPS, TRANSACTIONS, SHARES = 0, 1, 2
"""Kinds of coordinators, as FindCoordinator has them."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Broker(NamedTuple):
    """The broker of that id."""

    id: int

    def __str__(self) -> str:
        return f"broker {self.id}"


class Leader(NamedTuple):
    """The leader of a partition."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"the leader of {self.partition}"


class Coordinator(NamedTuple):
    """The coordinator of a group, a transactional id or a share partition."""

    kind: int
    key: str

    def __str__(self) -> str:
        return f"the coordinator of {self.key!r}"


class Controller(NamedTuple):
    def __str__(self) -> str:
        return "the controller"


class AnyBroker(NamedTuple):
    def __str__(self) -> str:
        return "any broker"


ANY, CONTROLLER = AnyBroker(), Controller()

To = Address | Broker | Leader | Coordinator | Controller | AnyBroker


def addresses(bootstrap: str) -> list[Address]:
    """The brokers that `host:port,host:port` names."""
    found = []
    for text in bootstrap.split(","):
        host, _, port = text.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise Invalid(f"kafka.bootstrap.servers: {text.strip()!r} is not HOST:PORT")
        found.append(Address(host.strip("[]"), int(port)))
    return found
