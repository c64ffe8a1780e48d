"""Embedded consumer protocol: subscriptions and assignments inside JoinGroup and SyncGroup.

    subscription   int16 version, topics, user data; v1: owned partitions; v2: generation; v3: rack
    assignment     int16 version, partitions by topic, user data

Each version begins like the one before it, so a newer one is read as far as these fields go.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from anabranch.groups.consumer_member import Partitions
from anabranch.groups.fields import INT16, INT32, Fields, string
from anabranch.groups.parts import Topics

_OWNED_FROM, _GENERATION_FROM, _RACK_FROM = 1, 2, 3
_NEWEST_ASSIGNMENT = 3
_NO_DATA = INT32.pack(-1)


class Subscription(NamedTuple):
    version: int
    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    """Nothing in version 0: who joins with that has given everything up."""
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription:
    """Corrupt if it is none."""
    fields = Fields(data)
    version = fields.int16()
    topics = frozenset(fields.string() for _ in range(fields.count()))
    fields.blob()
    owned = _read_partitions(fields) if version >= _OWNED_FROM else {}
    if version >= _GENERATION_FROM:
        fields.int32()
    rack_id = fields.optional_string() if version >= _RACK_FROM else None
    return Subscription(version, topics, owned, rack_id)


def read_assignment(data: bytes) -> dict[str, frozenset[int]]:
    """Nothing of a member that has not been assigned yet.  Corrupt if it is none."""
    if not data:
        return {}
    fields = Fields(data)
    fields.int16()
    return _read_partitions(fields)


def write_assignment(version: int, assigned: Mapping[UUID, Mapping[int, int]], topics: Topics) -> bytes:
    """What a member holds, for a client that speaks `version`; topics that are gone are left out."""
    found = [(topics.by_id(topic_id), sorted(partitions)) for topic_id, partitions in assigned.items()]
    named = sorted((facts.name, partitions) for facts, partitions in found if facts is not None)
    out = [INT16.pack(min(max(version, 0), _NEWEST_ASSIGNMENT)), INT32.pack(len(named))]
    for name, partitions in named:
        out += [string(name), INT32.pack(len(partitions)), *(INT32.pack(p) for p in partitions)]
    return b"".join((*out, _NO_DATA))


def by_id(partitions: Mapping[str, frozenset[int]], topics: Topics) -> Partitions:
    """The same partitions under the ids of their topics; those that are gone are left out."""
    found = ((topics.by_name(name), indexes) for name, indexes in partitions.items())
    return {facts.topic_id: indexes for facts, indexes in found if facts is not None and indexes}


def _read_partitions(fields: Fields) -> dict[str, frozenset[int]]:
    return {
        fields.string(): frozenset(fields.int32() for _ in range(fields.count()))
        for _ in range(fields.count())
    }
