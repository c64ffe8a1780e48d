"""DescribeTopicPartitions (75): topics and their partitions in order of name, a page at a time.

The answer holds at most `response_partition_limit` partitions, and never more than `MOST_PARTITIONS`;
`next_cursor` says where the next page starts.

    topics a (3 partitions), b (2), limit 4      ->  a 0 1 2, b 0       next: b 1
    the same with the cursor b 1                 ->  b 1                next: none

Without names it is about all topics, and a cursor's topic may be gone; with names the cursor's topic
must be among them.
"""

from collections.abc import Iterable
from typing import Any

from anabranch.base.errors import InvalidTopicName
from anabranch.base.ids import TopicName
from anabranch.meta.image import ClusterImage, PartitionImage, TopicImage
from anabranch.server.kafka.described import NOT_ASKED, TOPIC_OPERATIONS, partition
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

MOST_PARTITIONS = 2000  # Kafka's max.request.partition.size.limit


@api(75, versions=(0, 0))
def describe_topic_partitions(request: Any, ctx: RequestContext) -> Answer:
    image = ctx.services.cluster.image
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return {"topics": [_error(topic.name, ErrorCode.invalid_request) for topic in request.topics]}
    names = sorted(asked or image.topics_by_kafka_name)
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    limit = max(1, min(request.response_partition_limit, MOST_PARTITIONS))
    return _page(image, names, first, limit)


def _page(image: ClusterImage, names: Iterable[str], first: int, left: int) -> Answer:
    """Topics from partition `first` of the first one on, until no partition is `left`."""
    topics: list[Answer] = []
    for name in names:
        if left <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = _find(image, name)
        if isinstance(topic, ErrorCode):
            topics.append(_error(name, topic) | {"topic_authorized_operations": TOPIC_OPERATIONS})
        else:
            end = min(first + left, len(topic.partitions))
            topics.append(_topic(image, name, topic, range(first, end)))
            left -= max(0, end - first)
            if end < len(topic.partitions):
                return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": end}}
        first = 0
    return {"topics": topics, "next_cursor": None}


def _find(image: ClusterImage, name: str) -> TopicImage | ErrorCode:
    try:
        return image.topics.get(TopicName.from_kafka(name)) or ErrorCode.unknown_topic_or_partition
    except InvalidTopicName:
        return ErrorCode.invalid_topic_exception


def _topic(image: ClusterImage, name: str, topic: TopicImage, indexes: range) -> Answer:
    return {
        "name": name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(image, topic.partitions[index]) for index in indexes],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _partition(image: ClusterImage, state: PartitionImage) -> Answer:
    """That nobody leads it is no error here."""
    told = partition(image, state)
    return told | {"error_code": ErrorCode.none, "eligible_leader_replicas": [], "last_known_elr": []}


def _error(name: str, code: ErrorCode) -> Answer:
    return {
        "error_code": code,
        "name": name,
        "topic_id": None,
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }
