"""When members of a Kafka group go on where Pulsar's consumers stopped: what these had acknowledged ahead.

The group begins at the subscription's position.  Of what was acknowledged beyond it Kafka's protocol knows
nothing, and a fetch does not say which group it is for.  But whoever reads for a group has asked for its
position before:

    OffsetFetch  orders-0 of g?    7             and 9-11, 15 are acknowledged ahead
    Fetch        orders-0 from 7   7, 8, 12, 13, 14, 16 ...

A reader is taken for the group's if the group has members that read the topic, the same client (its address
and client.id) has asked for the partition's position within a minute, and begins to fetch just there.  It
stays so, over new connections too, until it fetches from further back, since then it wants to read again;
until all that was acknowledged ahead lies behind it; or until the position is asked for again.

Whoever is not recognised gets everything: rather twice than never.
"""

from collections.abc import Callable
from typing import Protocol

from anabranch.base.clock import Clock
from anabranch.partition.partition import Partition
from anabranch.subscriptions.cursor import Cursor

_FRESH_MS = 60_000
_MOST_READERS = 10_000


class Client(Protocol):
    """The other end of a connection."""

    address: str | None
    is_gone: bool


Ahead = Callable[[str, str, int], Cursor | None]
"""What a group that has members has acknowledged of a partition, by group, topic and index."""


class _Reader:
    __slots__ = ("asked_ms", "client", "cursor", "offset")

    def __init__(self, cursor: Cursor, offset: int, asked_ms: int) -> None:
        self.cursor = cursor
        self.offset = offset
        self.asked_ms = asked_ms
        self.client: Client | None = None

    def is_it(self, client: Client, offset: int, now_ms: int) -> bool:
        """Whether `client`, which fetches from `offset`, is the one."""
        if self.client is None:
            if offset != self.offset or now_ms - self.asked_ms > _FRESH_MS:
                return False
        elif offset < self.offset or (client is not self.client and not self.client.is_gone):
            return False
        self.client = client
        self.offset = offset
        return True


class Handovers:
    def __init__(self, ahead: Ahead, partition: Callable[[str, int], Partition], clock: Clock) -> None:
        self._ahead = ahead
        self._partition = partition
        self._clock = clock
        self._readers: dict[tuple[Partition, str | None, str | None], _Reader] = {}

    @property
    def are_none(self) -> bool:
        """Nobody has to be looked for."""
        return not self._readers

    def asked(
        self, client: Client, client_id: str | None, group_id: str, place: tuple[str, int], position: int
    ) -> None:
        """A client was told that the group's position on a partition, topic and index, is `position`."""
        cursor = self._ahead(group_id, *place)
        if cursor is None and not self._readers:
            return
        partition = self._partition(*place)
        key = (partition, client.address, client_id)
        self._readers.pop(key, None)
        if cursor is None:
            return
        cursor.cut(partition.log_end)  # a log that lost its end
        if cursor.acked_end() > position:
            if len(self._readers) >= _MOST_READERS:
                del self._readers[next(iter(self._readers))]
            self._readers[key] = _Reader(cursor, position, self._clock.now_ms())

    def ahead_of(
        self, client: Client, client_id: str | None, partition: Partition, offset: int
    ) -> Cursor | None:
        """What a client that fetches from `offset` is not to get again; None if it gets everything."""
        key = (partition, client.address, client_id)
        reader = self._readers.get(key)
        if reader is None:
            return None
        if reader.is_it(client, offset, self._clock.now_ms()):
            if offset < reader.cursor.acked_end():
                return reader.cursor
            del self._readers[key]
        elif reader.client is client:
            del self._readers[key]
        return None
