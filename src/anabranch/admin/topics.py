"""Topics, stored and not: made, listed, grown, deleted, and what is done to one as a whole."""

from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.parts import one_part, part_names, stored_parts, whole_topic
from anabranch.admin.routes import API, delete, get, post, put, route
from anabranch.base.errors import Exists, InvalidPartitions, NotFound
from anabranch.base.ids import TopicName, split_partition
from anabranch.cluster.bundles import bundle_names, bundle_of
from anabranch.meta.image import AnyTopic
from anabranch.server.pulsar.topic_access import partitions_of
from anabranch.topics.topic import Topic

NAMESPACE = API + "/{domain}/{tenant}/{namespace}"
TOPIC = NAMESPACE + "/{topic}"


class PartitionedMetadata(msgspec.Struct):
    partitions: int = 0
    properties: dict[str, str] | None = None
    deleted: bool = False


class MessageId(msgspec.Struct, rename="camel"):
    ledger_id: int
    entry_id: int
    partition_index: int = -1
    batch_index: int | None = None


# --- listing


def names_of(topic: AnyTopic) -> list[str]:
    """What clients attach to."""
    if not topic.is_partitioned:
        return [topic.name.pulsar]
    whole = topic.name.pulsar
    return [f"{whole}-partition-{index}" for index in range(topic.partition_count)]


def _listed(call: Call) -> list[AnyTopic]:
    """The namespace's topics of the path's domain, without those that keep the broker's own state."""
    namespace = call.namespace
    call.services.pulsar.catalog.policies(namespace)
    shows_own = call.flag("includeSystemTopic")
    return [
        topic
        for topic in call.image.topics_in(namespace)
        if topic.name.domain == call.path["domain"] and (shows_own or not topic.is_internal)
    ]


@get(NAMESPACE, answer=list[str], query=("includeSystemTopic",))
async def listed(call: Call) -> list[str]:
    """The topics of a namespace; of partitioned ones their partitions."""
    return [name for topic in _listed(call) for name in names_of(topic)]


@get(NAMESPACE + "/partitioned", answer=list[str], query=("includeSystemTopic",))
async def partitioned(call: Call) -> list[str]:
    """The partitioned topics of a namespace."""
    return [topic.name.pulsar for topic in _listed(call) if topic.is_partitioned]


@get(API + "/non-persistent/{tenant}/{namespace}/{bundle}", answer=list[str])
async def listed_in_bundle(call: Call) -> list[str]:
    """The topics that are not stored of a bundle of a namespace."""
    bundles = call.policies.bundles
    if bundles is None or call.path["bundle"] not in bundle_names(bundles.boundaries):
        raise NotFound(f"Bundle range {call.path['bundle'][:100]} not found")
    return [
        name
        for topic in call.image.topics_in(call.namespace)
        if not topic.name.is_persistent
        for name in names_of(topic)
        if bundle_of(bundles, TopicName.from_pulsar(name)) == call.path["bundle"]
    ]


# --- making


@put(TOPIC, body=dict[str, str] | None)
async def create(call: Call) -> None:
    """Make a topic without partitions."""
    await _create(call, None, call.body or {})


@put(TOPIC + "/partitions", body=int | PartitionedMetadata)
async def create_partitioned(call: Call) -> None:
    """Make a partitioned topic."""
    wanted = call.body if isinstance(call.body, PartitionedMetadata) else PartitionedMetadata(call.body)
    if wanted.partitions < 1:
        raise Refused(406, "Number of partitions should be more than 0")
    most = call.services.pulsar.config.current.policies.max_num_partitions
    if most and wanted.partitions > most:
        raise Refused(406, f"Number of partitions should be less than or equal to {most}")
    if split_partition(call.topic_name)[1] is not None:
        raise Refused(412, "Partitioned Topic Name should not contain '-partition-'")
    await _create(call, wanted.partitions, wanted.properties or {})


async def _create(call: Call, partitions: int | None, properties: dict[str, str]) -> None:
    try:
        await call.services.pulsar.catalog.create(call.topic_name, partitions, properties)
    except Exists:
        raise Exists("This topic already exists") from None


@post(TOPIC + "/partitions", body=int)
async def grow(call: Call) -> None:
    """Bring a partitioned topic to more partitions."""
    topic, total = call.topic, int(call.body)
    if not topic.is_partitioned:
        raise Refused(409, f"Topic {topic.name.pulsar} is not the partitioned topic.")
    if total == topic.partition_count:
        return
    most = call.services.pulsar.config.current.policies.max_num_partitions
    if most and total > most:
        raise Refused(
            422, f"Desired partitions {total} can't be greater than the maximum partitions per topic {most}."
        )
    try:
        await call.services.pulsar.catalog.add_partitions(topic.name, total)
    except InvalidPartitions:
        raise Refused(
            422,
            f"Desired partitions {total} can't be less than the current partitions {topic.partition_count}.",
        ) from None


@get(TOPIC + "/partitions", answer=PartitionedMetadata, query=("checkAllowAutoCreation",))
async def metadata(call: Call) -> PartitionedMetadata:
    """How many partitions a topic has; 0 if it is not partitioned."""
    name = call.topic_name
    count = await partitions_of(call.services.pulsar, name, may_create=call.flag("checkAllowAutoCreation"))
    topic = call.services.pulsar.catalog.find(name)
    properties = dict(topic.properties) if topic is not None and topic.properties else None
    return PartitionedMetadata(count, properties)


@get(TOPIC + "/properties", answer=dict[str, str])
async def properties(call: Call) -> dict[str, str]:
    """A topic's properties."""
    return dict(whole_topic(call).properties)


@put(TOPIC + "/properties", body=dict[str, str])
async def set_properties(call: Call) -> None:
    """Set some of a topic's properties."""
    added: dict[str, str] = call.body
    name = whole_topic(call).name
    await call.services.pulsar.catalog.alter_properties(name, lambda before: {**before, **added})


@delete(TOPIC + "/properties", query=("key",))
async def remove_property(call: Call) -> None:
    """Take back one of a topic's properties."""
    key, name = call.query.get("key"), whole_topic(call).name
    await call.services.pulsar.catalog.alter_properties(
        name, lambda before: {other: text for other, text in before.items() if other != key}
    )


@post(TOPIC + "/createMissedPartitions")
async def create_missed(call: Call) -> None:
    """Nothing is ever missed: partitions are made with their topic."""
    if not call.topic.is_partitioned:
        raise Refused(409, f"Topic {call.topic_name.pulsar} is not the partitioned topic.")


# --- deleting


@delete(TOPIC, query=("force",))
async def remove(call: Call) -> None:
    """Delete a topic without partitions."""
    name = call.topic_name
    located = call.services.pulsar.catalog.locate(name)
    if located is not None and located.topic.name != name:
        raise Refused(412, f"{name.pulsar} goes with its topic; delete {located.topic.name.pulsar}")
    if call.topic.is_partitioned:
        raise Refused(
            409,
            f"{name.pulsar} is a partitioned topic. Instead of calling delete please call "
            "delete-partitioned-topic.",
        )
    await call.services.pulsar.topics.delete(name, force=call.flag("force"))


@delete(TOPIC + "/partitions", query=("force",))
async def remove_partitioned(call: Call) -> None:
    """Delete a partitioned topic with all of its partitions."""
    if not call.topic.is_partitioned:
        raise Refused(
            409,
            f"{call.topic_name.pulsar} is a non-partitioned topic. Instead of calling "
            "delete-partitioned-topic please call delete.",
        )
    await call.services.pulsar.topics.delete(call.topic_name, force=call.flag("force"))


# --- as a whole


@put(TOPIC + "/unload")
async def unload(call: Call) -> None:
    """Close a topic; its clients look it up again."""
    for name in part_names(call):
        await call.services.pulsar.topics.unload(name)


def message_id(topic: Topic, found: tuple[int, int, int]) -> MessageId:
    ledger, entry, batch = found
    return MessageId(ledger, entry, topic.partition_index, batch)


@route("POST", TOPIC + "/terminate", answer=MessageId)
async def terminate(call: Call) -> Any:
    """Let a topic take no more messages, for good; the last one there is."""
    topic = await one_part(call, "Termination")
    ledger, entry, _ = await topic.terminate()
    return MessageId(ledger, entry, topic.partition_index)


@route("POST", TOPIC + "/terminate/partitions", answer=dict[str, MessageId])
async def terminate_partitions(call: Call) -> Any:
    """As terminate, for every partition."""
    if not call.topic.is_partitioned:
        raise Refused(
            405,
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate, "
            "please use terminate commands",
        )
    ended = {}
    for topic in await stored_parts(call, "Termination"):
        ledger, entry, _ = await topic.terminate()
        ended[str(topic.index)] = MessageId(ledger, entry, topic.partition_index)
    return ended


@get(TOPIC + "/lastMessageId", answer=MessageId)
async def last_message_id(call: Call) -> Any:
    """The last message of a topic."""
    topic = await one_part(call, "Get last message ID")
    return message_id(topic, topic.last_message())


@delete(TOPIC + "/truncate")
async def truncate(call: Call) -> None:
    """Drop every message, acknowledged or not."""
    for topic in await stored_parts(call, "Truncate"):
        end = topic.end
        for held in topic.subscriptions:
            held.subscription.advance_to(end)
            await topic.save(held.subscription)
        topic.partition.trim(end)
