"""Topic access: from the name a client gives to the topic it means, created if that is allowed.

A client attaches to a topic that is not partitioned, or to one partition of a topic that is.  Where the
topic is not there, the first who uses it makes it, by the rules of its namespace
(`cluster/pulsar_topics.py`); a partition beyond those that a topic has is never made so.
"""

from anabranch.base.errors import Invalid, Unavailable, UnknownTopic
from anabranch.base.ids import TopicName, split_partition
from anabranch.meta.rules import auto_creation_of
from anabranch.server.pulsar.services import PulsarServices
from anabranch.topics.registry import AnyTopic
from anabranch.topics.transactions import COORDINATORS

NOT_PARTITIONED = 0
COORDINATOR_TOPIC = TopicName("pulsar", "system", "transaction_coordinator_assign")
"""A partition of it stands for a transaction coordinator, and who serves the one has the other.  Clients ask
for nothing else of it, so there is no such topic here."""


def topic_name(text: str) -> TopicName:
    """InvalidTopicName if it can mean none."""
    return TopicName.from_pulsar(text)


def check_namespace(services: PulsarServices, name: TopicName) -> None:
    """UnknownNamespace if it is not there; Invalid if this broker does not serve such topics."""
    services.catalog.policies(name.in_namespace)
    pulsar = services.config.current.pulsar
    is_served = pulsar.enable_persistent if name.is_persistent else pulsar.enable_non_persistent
    if not is_served:
        raise Invalid(f"this broker serves no {name.domain} topics")


def check_listener(name: str) -> None:
    """Unavailable if a client asks to be told of a listener by name: the one there is has none."""
    if name:
        raise Unavailable(f"this broker has no listener {name[:256]!r}; connect without a listener name")


async def catch_up(services: PulsarServices, name: TopicName) -> None:
    """Have this broker know of a topic that a client has just had made by another one."""
    whole = split_partition(name)[0]
    catalog = services.catalog
    if not services.is_alone and catalog.find(whole) is None and catalog.find(name) is None:
        await services.cluster.look_for(*dict.fromkeys((whole, name)))


async def open_topic(services: PulsarServices, name: TopicName, *, may_create: bool) -> AnyTopic:
    """The topic to attach to.  UnknownTopic if it is not there and may not be made."""
    check_namespace(services, name)
    await catch_up(services, name)
    catalog = services.catalog
    if catalog.locate(name) is None:
        if not may_create:
            raise UnknownTopic(f"Topic {name.pulsar} does not exist")
        found = await catalog.find_or_create(name)
        if catalog.locate(name) is None:
            if found.name == name:
                raise Invalid(f"topic {name.pulsar} is partitioned; attach to {name.partition(0).pulsar} ...")
            raise UnknownTopic(
                f"topic {found.name.pulsar} has {found.partition_count} partitions, this is none of them"
            )
    return await services.topics.open(name)


async def partitions_of(services: PulsarServices, name: TopicName, *, may_create: bool) -> int:
    """How many partitions a topic has, or would have once it is used; NOT_PARTITIONED if it has none."""
    check_namespace(services, name)
    if name == COORDINATOR_TOPIC and services.config.current.pulsar.transactions:
        return COORDINATORS
    await catch_up(services, name)
    catalog = services.catalog
    found = catalog.find(name)
    if found is None and catalog.locate(name) is None:
        creation = auto_creation_of(services.config.current.policies, catalog.policies(name.in_namespace))
        if not may_create or not creation.is_allowed:
            raise UnknownTopic(f"Topic {name.pulsar} does not exist")
        if creation.partitions is not None:
            found = await catalog.find_or_create(name)
    return found.partition_count if found is not None and found.is_partitioned else NOT_PARTITIONED
