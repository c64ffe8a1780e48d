"""Handover: Kafka group members go on where Pulsar's consumers stopped, less what is acknowledged ahead.

The group begins at the subscription's position.  Of what was acknowledged beyond it Kafka's protocol knows
nothing, and a fetch does not say which group it is for.  But whoever reads for a group has asked for its
position before:

    OffsetFetch  orders-0 of g?    7             and 9-11, 15 are acknowledged ahead
    Fetch        orders-0 from 7   7, 8, 12, 13, 14, 16 ...

A reader is taken for the group's if the group has members that read the topic, the same client (its address
and client.id) has just asked for the partition's position, and begins to fetch there.  It stays so until it
fetches from further back, since then it wants to read again; until all that was acknowledged ahead lies
behind it; or until the position is asked for again.  If its connection breaks it may come back on another.

Clients of several groups may look alike.  Where two could be meant neither is, and whoever is not recognised
gets everything: rather twice than never.  The same holds when the group of one of them has no position yet:
it may begin anywhere.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from anabranch.base.clock import Clock
from anabranch.partition.partition import Partition
from anabranch.subscriptions.cursor import Cursor

_FRESH_MS = 10_000
_MOST_READERS = 10_000
_MOST_ALIKE = 16
_MOST_CHARACTERS = 8 << 20  # of names, which clients may make up

Place = tuple[str, int]
"""A partition, by the name of its topic and its index."""


class Client(Protocol):
    """The other end of a connection."""

    address: str | None
    is_gone: bool


Ahead = Callable[[str, str, int], Cursor | None]
"""What a group that has members has acknowledged of a partition, by group, topic and index."""


class _Asked(NamedTuple):
    """A group that stands at `position`, of which somebody was told so."""

    position: int
    asked_ms: int


class _Reader:
    """Whoever asked for a group's position; `cursor` is None if nothing is acknowledged ahead of that."""

    __slots__ = ("client", "cursor", "group_id", "offset", "place", "seen_ms")

    def __init__(self, group_id: str, place: Place, cursor: Cursor | None, offset: int, now_ms: int) -> None:
        self.group_id = group_id
        self.place = place
        self.cursor = cursor
        self.offset = offset
        self.seen_ms = now_ms
        self.client: Client | None = None

    def may_be_at(self, offset: int, now_ms: int) -> bool:
        """Whether a client that was not seen to fetch yet may be this one."""
        if now_ms - self.seen_ms > _FRESH_MS:
            return False
        if self.client is None:
            return offset == self.offset
        return self.client.is_gone and offset >= self.offset


class Handovers:
    def __init__(self, ahead: Ahead, partition: Callable[[str, int], Partition], clock: Clock) -> None:
        self._ahead = ahead
        self._partition = partition
        self._clock = clock
        self._readers: dict[tuple[Partition, str | None, str | None], dict[str, _Reader]] = {}
        self._lately: dict[tuple[Place, str | None, str | None], dict[str, _Asked]] = {}
        self._characters = 0  # of the names in it

    @property
    def are_none(self) -> bool:
        """Nobody has to be looked for."""
        return not self._readers

    def asked(
        self, client: Client, client_id: str | None, group_id: str, place: Place, position: int
    ) -> None:
        """A client was told that the group stands at `position`; -1: nowhere yet."""
        now_ms = self._clock.now_ms()
        lately = self._note((place, client.address, client_id), group_id, _Asked(position, now_ms))
        cursor = self._ahead(group_id, *place)
        if cursor is None and not self._readers:
            return
        partition = self._partition(*place)
        if cursor is not None:
            cursor.cut(partition.log_end)  # a log that lost its end
            if cursor.acked_end() <= position:
                cursor = None
        key = (partition, client.address, client_id)
        readers = self._readers.pop(key, {})
        if any(each.position < 0 for each in lately.values()):
            return
        readers.pop(group_id, None)
        for other, asked in lately.items():
            if other != group_id and other not in readers:
                readers[other] = _Reader(other, place, None, *asked)
        if cursor is not None or readers:
            readers[group_id] = _Reader(group_id, place, cursor, position, now_ms)
        if any(reader.cursor is not None for reader in readers.values()):
            if len(self._readers) >= _MOST_READERS:
                del self._readers[next(iter(self._readers))]
            self._readers[key] = readers

    def _note(
        self, key: tuple[Place, str | None, str | None], group_id: str, asked: _Asked
    ) -> dict[str, _Asked]:
        """The groups whose positions were asked for in the same way and not long ago, with this one."""
        since_ms = asked.asked_ms - _FRESH_MS
        known = self._lately.pop(key, {})
        if known:
            self._characters -= _characters(key, known)
        lately = {other: each for other, each in known.items() if each.asked_ms >= since_ms}
        lately.pop(group_id, None)
        if len(lately) >= _MOST_ALIKE:
            del lately[next(iter(lately))]
        lately[group_id] = asked
        self._lately[key] = lately
        self._characters += _characters(key, lately)
        while len(self._lately) > _MOST_READERS or self._characters > _MOST_CHARACTERS:
            oldest = next(iter(self._lately))
            self._characters -= _characters(oldest, self._lately.pop(oldest))
        return lately

    def ahead_of(
        self, client: Client, client_id: str | None, partition: Partition, offset: int
    ) -> Cursor | None:
        """What a client that fetches from `offset` is not to get again; None if it gets everything."""
        key = (partition, client.address, client_id)
        readers = self._readers.get(key)
        if readers is None:
            return None
        now_ms = self._clock.now_ms()
        reader = next((reader for reader in readers.values() if reader.client is client), None)
        if reader is None:
            reader = self._recognised(readers, offset, now_ms)
        elif offset < reader.offset:
            del readers[reader.group_id]
            reader = None
        if reader is not None:
            reader.client, reader.offset, reader.seen_ms = client, offset, now_ms
            if reader.cursor is not None and reader.cursor.acked_end() <= offset:
                del readers[reader.group_id]
        if not any(each.cursor is not None for each in readers.values()):
            del self._readers[key]
        return None if reader is None or reader.group_id not in readers else reader.cursor

    def _recognised(self, readers: dict[str, _Reader], offset: int, now_ms: int) -> _Reader | None:
        """Who begins to fetch from `offset`, or goes on there; None if it may be two, who are forgotten."""
        found = [reader for reader in readers.values() if reader.may_be_at(offset, now_ms)]
        if len(found) > 1:
            for reader in found:
                del readers[reader.group_id]
        if len(found) != 1:
            return None
        reader = found[0]
        if reader.client is not None and self._ahead(reader.group_id, *reader.place) is None:
            return None  # its group has no members any more
        return reader


def _characters(key: tuple[Place, str | None, str | None], lately: dict[str, _Asked]) -> int:
    (topic, _), _, client_id = key
    return len(topic) + len(client_id or "") + sum(map(len, lately))
