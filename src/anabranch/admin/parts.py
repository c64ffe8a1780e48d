"""The open topics that a path means: one, or all partitions of a partitioned one.

    orders               without partitions: itself          with three: its three partitions
    orders-partition-1   that one

What has to be asked of one topic (a peek, a message by its id) is refused of a partitioned one.
"""

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.base.errors import UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.meta.image import AnyTopic as Image
from anabranch.topics.non_persistent import NonPersistentTopic
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic


def whole_topic(call: Call) -> Image:
    """The topic that the path means, or that its partition is of.  UnknownTopic if there is none."""
    located = call.services.pulsar.catalog.locate(call.topic_name)
    return call.topic if located is None else located.topic


def part_names(call: Call) -> list[TopicName]:
    """The names that clients attach by."""
    name, catalog = call.topic_name, call.services.pulsar.catalog
    catalog.policies(name.in_namespace)
    if catalog.locate(name) is not None:
        return [name]
    topic = catalog.find(name)
    if topic is None:
        raise UnknownTopic(f"Topic {name.pulsar} not found")
    return [name.partition(index) for index in range(topic.partition_count)]


async def parts(call: Call) -> list[AnyTopic]:
    """Everything that the path means, open."""
    return [await call.services.pulsar.topics.open(name) for name in part_names(call)]


async def stored_parts(call: Call, doing: str) -> list[Topic]:
    """As `parts`; refused for what is not stored."""
    if not call.topic_name.is_persistent:
        raise Refused(405, f"{doing} on a non-persistent topic is not allowed")
    found = await parts(call)
    return [topic for topic in found if isinstance(topic, Topic)]


async def one_part(call: Call, doing: str) -> Topic:
    """The one topic, stored and not partitioned, that the path means."""
    names = part_names(call)
    if names != [call.topic_name]:
        raise Refused(
            405,
            f"{doing} on a partitioned topic is not allowed, please try do it on specific topic partition",
        )
    topic = await call.services.pulsar.topics.open(names[0])
    if isinstance(topic, NonPersistentTopic):
        raise Refused(405, f"{doing} on a non-persistent topic is not allowed")
    return topic
