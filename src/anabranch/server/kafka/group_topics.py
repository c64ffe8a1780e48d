"""The topics that requests about committed offsets name, by name or from version 10 by id.

A topic has one name under which offsets are kept, whatever a client calls it; answers say what the
client said.
"""

from typing import Any
from uuid import UUID

from anabranch.base.errors import InvalidTopicName
from anabranch.base.ids import TopicId, TopicName
from anabranch.meta.image import ClusterImage, TopicImage
from anabranch.wire.kafka.schema import ErrorCode

FIRST_BY_ID = 10
NOT_HOSTED = "This server does not host this topic-partition."
NO_GROUP = "The group id is invalid."
"""What Kafka says beside UNKNOWN_TOPIC_OR_PARTITION and INVALID_GROUP_ID."""


def find_topic(image: ClusterImage, asked: Any, version: int) -> TopicImage | ErrorCode:
    """The topic that `asked`, an item of a request, means; or why there is none."""
    if version >= FIRST_BY_ID:
        return by_id(image, asked.topic_id) or ErrorCode.unknown_topic_id
    return by_name(image, asked.name) or ErrorCode.unknown_topic_or_partition


def by_id(image: ClusterImage, topic_id: UUID | None) -> TopicImage | None:
    return None if topic_id is None else image.topics_by_id.get(TopicId(topic_id))


def by_name(image: ClusterImage, name: str) -> TopicImage | None:
    topic = image.topics_by_kafka_name.get(name)
    if topic is not None:
        return topic
    try:
        return image.topics.get(TopicName.from_kafka(name))
    except InvalidTopicName:
        return None


def has_partition(topic: TopicImage, index: int) -> bool:
    return 0 <= index < len(topic.partitions)
