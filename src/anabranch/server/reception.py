"""Connection limits: counted over all listeners of the node, in all and per address.

There may be `max.connections` of them, `max.connections.per.ip` from one address, and no more than the
process has descriptors for.
"""

from collections import Counter

from anabranch.server.config import DynamicConfig


class Reception:
    __slots__ = ("_by_address", "_config", "_count", "_room")

    def __init__(self, config: DynamicConfig, room: int) -> None:
        """`room` is the number of connections that the process has descriptors for."""
        self._config = config
        self._room = room
        self._count = 0
        self._by_address: Counter[str] = Counter()

    def enter(self, remote: str) -> bool:
        """Whether a connection from `remote` may stay; if so it must `leave`."""
        sockets = self._config.current.sockets
        address = _address(remote)
        if (
            self._count >= min(sockets.max_connections, self._room)
            or self._by_address[address] >= sockets.max_connections_per_ip
        ):
            return False
        self._count += 1
        self._by_address[address] += 1
        return True

    def leave(self, remote: str) -> None:
        address = _address(remote)
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    @property
    def is_empty(self) -> bool:
        return not self._count and not self._by_address


def _address(remote: str) -> str:
    return remote.rpartition(":")[0]
