"""Current leaders: the tagged fields of Produce and Fetch answers that say whom to ask instead (KIP-951)."""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from anabranch.base.ids import BrokerId
from anabranch.wire.kafka.encoder import uvarint

_INT = struct.Struct(">i")
_LEADER = struct.Struct(">iix")  # and no tags
_NONE_TAGGED = b"\0"
_EMPTY = b"\1"


class CurrentLeader(NamedTuple):
    """The leader of a partition, -1 if it has none, and the epoch that says so."""

    id: BrokerId
    epoch: int


class Endpoint(Protocol):
    """Where a broker is."""

    @property
    def id(self) -> BrokerId: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...


Brokers = Mapping[BrokerId, Endpoint]


def leader_field(tag: int, leader: CurrentLeader) -> bytes:
    """One tagged field, without the number of them before it."""
    return uvarint(tag) + uvarint(_LEADER.size) + plain_leader(leader)


def plain_leader(leader: CurrentLeader) -> bytes:
    """A leader where it is a field as others are, as share consumers have it."""
    return _LEADER.pack(leader.id, leader.epoch)


def node_endpoints(leaders: Iterable[CurrentLeader | None], brokers: Brokers) -> bytes:
    """All tagged fields of an answer: NodeEndpoints, tag 0, of those leaders that are known brokers."""
    listed = plain_endpoints(leaders, brokers)
    if listed == _EMPTY:
        return _NONE_TAGGED
    return b"\1\0" + uvarint(len(listed)) + listed


def plain_endpoints(leaders: Iterable[CurrentLeader | None], brokers: Brokers) -> bytes:
    """NodeEndpoints where they are a field as others are."""
    ids = sorted({leader.id for leader in leaders if leader is not None and leader.id in brokers})
    return uvarint(len(ids) + 1) + b"".join(_endpoint(brokers[id]) for id in ids)


def _endpoint(broker: Endpoint) -> bytes:
    host = broker.host.encode()
    parts = [_INT.pack(broker.id), uvarint(len(host) + 1), host, _INT.pack(broker.port)]
    if broker.rack is None:
        parts.append(b"\0")
    else:
        rack = broker.rack.encode()
        parts += [uvarint(len(rack) + 1), rack]
    return b"".join(parts) + _NONE_TAGGED
