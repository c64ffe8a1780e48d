"""Assignor interface: the members and topics that one is given, and the assignment it gives back.

    assign(members, topics)    members: id -> Subscriber, topics: id -> TopicFacts

An assignor is a pure function: the same members and topics give the same assignment, whatever the
order they are listed in.  Every partition of a topic that somebody subscribes to has one owner, who
subscribes to it; topics that are not in `topics` do not exist.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from anabranch.groups.consumer_member import Partitions
from anabranch.groups.parts import TopicFacts


class Subscriber(NamedTuple):
    topics: frozenset[UUID]
    """All of them exist."""
    owned: Partitions = MappingProxyType({})
    """What the assignment before this one gave it."""
    rack_id: str | None = None
    instance_id: str | None = None


Members = Mapping[str, Subscriber]
Topics = Mapping[UUID, TopicFacts]
Assignment = dict[str, Partitions]
Assignor = Callable[[Members, Topics], Assignment]
