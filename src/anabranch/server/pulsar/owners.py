"""Topic owners: where the broker that serves a topic is reached, and the wait until there is one."""

import asyncio

from anabranch.base.backoff import Backoff
from anabranch.base.errors import Unavailable
from anabranch.base.ids import TopicName
from anabranch.cluster.topic_owners import owner_of
from anabranch.meta.image import BrokerImage
from anabranch.server.pulsar.services import PulsarServices

_ELECTION_S = 5.0
"""How long an election is waited for: the C++ client closes its connection when it is told to come later."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.2


def is_served_here(services: PulsarServices, name: TopicName) -> bool:
    """Whether this broker serves the topic, or would if the topic were made now."""
    return owner_of(services.cluster.image, name) in (None, services.broker_id)


def other_owner(services: PulsarServices, name: TopicName) -> BrokerImage | None:
    """The other broker that serves a topic, if one does and Pulsar clients reach it."""
    image = services.cluster.image
    owner = owner_of(image, name)
    if owner is None or owner == services.broker_id:
        return None
    found = image.brokers.get(owner)
    return None if found is None or found.pulsar is None else found


async def find_owner(services: PulsarServices, name: TopicName) -> BrokerImage | None:
    """The other broker that serves a topic, None if this one does.  Unavailable if nobody does for long."""
    deadline_s = services.clock.monotonic() + _ELECTION_S
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while not is_served_here(services, name):
        owner = other_owner(services, name)
        if owner is not None:
            return owner
        if services.clock.monotonic() > deadline_s:
            raise Unavailable(f"{name.pulsar} has no leader now; look it up again")
        await asyncio.sleep(backoff.next_s())
    return None


def url_of(owner: BrokerImage) -> str:
    return f"pulsar://{owner.pulsar}"


def assigned_url(services: PulsarServices, topic: str) -> str | None:
    """Where the clients of a topic that this broker serves no more find it, if that is known already."""
    owner = other_owner(services, TopicName.from_pulsar(topic))
    return None if owner is None else url_of(owner)
