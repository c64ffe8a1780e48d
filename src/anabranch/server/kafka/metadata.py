"""Metadata (3): the brokers, and for each topic its partitions and who leads them.

    asks for all topics      v0 by an empty list, later by null
    replicas that are away   v0 leaves them out: REPLICA_NOT_AVAILABLE
    by id                    v12; v10 and v11 have the field but refuse it
    may create               v4 says whether; before, asking is enough
    says what may be done    v8 for topics, and for the cluster until v10

A topic that is not there is made if the request and `auto.create.topics.enable` allow it, and is then
in the answer (Kafka answers UNKNOWN_TOPIC_OR_PARTITION and has it the next time).  Internal topics
are made by those who use them.  A topic asked for twice is answered once.

Where a leader may just have died the answer waits for the election (`cluster/doubted_brokers`).
"""

import asyncio
from collections.abc import Iterable, Set
from typing import Any
from uuid import UUID

from anabranch.base.errors import AnabranchError, Exists, InvalidTopicName
from anabranch.base.ids import BrokerId, TopicId, TopicName
from anabranch.cluster.topics import MAX_NEW_PARTITIONS, NewTopic, is_internal
from anabranch.meta.image import ClusterImage, TopicImage
from anabranch.server.kafka.deadline import each_within
from anabranch.server.kafka.described import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS, brokers
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_FIRST_BY_ID = 12
_TOPICS_A_TURN = 50
_CREATE_WITHIN_MS = 30_000

_Asked = str | UUID
_Found = TopicImage | ErrorCode


@api(3, versions=(0, 13))
async def metadata(request: Any, ctx: RequestContext) -> Answer:
    wanted = request.topics
    if wanted and not all(_is_legal(topic, ctx.version) for topic in wanted):
        return _refused(wanted)
    asked: dict[_Asked, None] | None = None
    if wanted or (wanted is not None and ctx.version > 0):
        asked = dict.fromkeys(topic.topic_id or topic.name for topic in wanted)
    image = await _settled(asked, ctx)
    found = _found(image, asked)
    if asked and request.allow_auto_topic_creation and ErrorCode.unknown_topic_or_partition in found.values():
        failed = await _create(found, ctx)
        image = ctx.services.cluster.image
        found = {topic: failed.get(topic) or _find(image, topic) for topic in asked}
    may = (
        CLUSTER_OPERATIONS if getattr(request, "include_cluster_authorized_operations", False) else NOT_ASKED
    )
    return {
        "brokers": brokers([*image.brokers.values(), *ctx.services.doubted.removed], "node_id"),
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "topics": await _describe(image, found, request, ctx),
        "cluster_authorized_operations": may,
    }


async def _settled(asked: dict[_Asked, None] | None, ctx: RequestContext) -> ClusterImage:
    """The image in which what is asked for is led by brokers that live, as far as that comes soon."""
    cluster, doubted = ctx.services.cluster, ctx.services.doubted

    def lead(brokers: Set[BrokerId]) -> bool:
        topics = _found(cluster.image, asked).values()
        return any(
            state.leader in brokers
            for topic in topics
            if isinstance(topic, TopicImage)
            for state in topic.partitions
        )

    if doubted.are_among(lead):
        ctx.begun()
        await doubted.settled(lead)
    return cluster.image


def _found(image: ClusterImage, asked: dict[_Asked, None] | None) -> dict[_Asked, _Found]:
    """What is asked for, or all topics."""
    if asked is None:
        return {name: topic for name, topic in image.topics_by_kafka_name.items()}  # noqa: C416
    return {topic: _find(image, topic) for topic in asked}


def _find(image: ClusterImage, asked: _Asked) -> _Found:
    if isinstance(asked, UUID):
        return image.topics_by_id.get(TopicId(asked)) or ErrorCode.unknown_topic_id
    topic = image.topics_by_kafka_name.get(asked)
    if topic is not None:
        return topic
    try:
        return image.topics.get(TopicName.from_kafka(asked)) or ErrorCode.unknown_topic_or_partition
    except InvalidTopicName:
        return ErrorCode.invalid_topic_exception


async def _create(found: dict[_Asked, _Found], ctx: RequestContext) -> dict[_Asked, ErrorCode]:
    """Make what is not there.  Why not, for those that could not be made."""
    topics, cluster = ctx.services.config.current.topics, ctx.services.cluster
    if not topics.auto_create_enable:
        return {}
    names = [asked for asked, topic in found.items() if topic == ErrorCode.unknown_topic_or_partition]
    wanted = {name: TopicName.from_kafka(str(name)) for name in names}
    wanted = {asked: name for asked, name in wanted.items() if not is_internal(name)}
    at_once = list(wanted.items())[: max(1, MAX_NEW_PARTITIONS // topics.num_partitions)]
    outcomes = await each_within(
        _CREATE_WITHIN_MS,
        [cluster.create_topic(NewTopic(name, asked_by=ctx.asked_by)) for _, name in at_once],
    )
    return {
        asked: code_of(outcome)
        for (asked, _), outcome in zip(at_once, outcomes, strict=True)
        if isinstance(outcome, AnabranchError) and not isinstance(outcome, Exists)
    }


async def _describe(
    image: ClusterImage, found: dict[_Asked, _Found], request: Any, ctx: RequestContext
) -> list[Answer | bytes]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    written = ctx.services.written_topics
    described: dict[TopicId | _Asked, Answer | bytes] = {}
    for count, (asked, topic) in enumerate(found.items(), 1):
        if isinstance(topic, ErrorCode):
            described[asked] = _error(asked, topic, operations)
        elif topic.id not in described:
            shown_as = asked if isinstance(asked, str) else topic.name.kafka
            described[topic.id] = written.topic(image, topic, shown_as, ctx.version, operations)
        if count % _TOPICS_A_TURN == 0:
            await asyncio.sleep(0)  # with thousands of topics, let others have their turn
    return list(described.values())


def _is_legal(topic: Any, version: int) -> bool:
    if version < _FIRST_BY_ID:
        return topic.topic_id is None and topic.name is not None
    return topic.topic_id is not None or topic.name is not None


def _refused(wanted: Iterable[Any]) -> Answer:
    """The request is wrong as a whole."""
    topics = [_error(topic.topic_id or "", ErrorCode.invalid_request, NOT_ASKED) for topic in wanted]
    names = [topic.name or "" for topic in wanted]
    return {
        "error_code": ErrorCode.invalid_request,
        "brokers": [],
        "topics": [topic | {"name": name} for topic, name in zip(topics, names, strict=True)],
    }


def _error(asked: _Asked, code: ErrorCode, operations: int) -> Answer:
    return {
        "error_code": code,
        "name": asked if isinstance(asked, str) else None,
        "topic_id": asked if isinstance(asked, UUID) else None,
        "partitions": [],
        "topic_authorized_operations": operations,
    }
