"""OffsetFetch (9): how far groups have got.

    topics      null asks for all that the group has committed (v2)
    errors      of the group: in every partition (v1), beside the topics (v2)
    v5          the leader epoch of the last record read
    v7          `require_stable`: an offset that a transaction is about to replace is UNSTABLE_OFFSET_COMMIT
    v8          several groups
    v9          a member of the newer group protocol says who it is, and is told if it is not
    v10         topics by id; those that are not known are UNKNOWN_TOPIC_ID, after the others

A group, a topic or a partition that is not there has committed nothing: -1, and no error.

Who is to ask another broker, or later, is told so for the group and, beyond what Kafka does, that each offset
is unstable: librdkafka asks again for such partitions only, and else never reads them (its issue 5586).
"""

from contextlib import suppress
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.offsets import Fetch, TopicPartitions
from anabranch.meta.image import ClusterImage
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.group_topics import FIRST_BY_ID, by_id, by_name
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_FIRST_WITH_GROUPS = 8
_FIRST_WITH_ERROR_OF_GROUP = 2
_ASK_AGAIN = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    )
)


@api(9, versions=(1, 10))
async def offset_fetch(request: Any, ctx: RequestContext) -> Answer:
    if ctx.version >= _FIRST_WITH_GROUPS:
        answers = [await _group(group, request.require_stable, ctx) for group in request.groups]
        return {"groups": answers}
    answer = await _group(request, request.require_stable, ctx)
    topics = [{"name": topic["name"], "partitions": topic["partitions"]} for topic in answer["topics"]]
    return {"error_code": answer["error_code"], "topics": topics}


async def _group(asked: Any, require_stable: bool, ctx: RequestContext) -> Answer:
    image = ctx.services.cluster.image
    known, unknown = _topics(image, asked.topics, ctx.version)
    fetch = Fetch(
        asked.group_id,
        getattr(asked, "member_id", None),
        getattr(asked, "member_epoch", -1),
        known,
        require_stable,
    )
    try:
        answer = await ctx.services.groups.ask(asked.group_id, lambda shard: shard.offsets.fetch(fetch))
    except AnabranchError as error:
        return _failed(asked, code_of(error), ctx.version)
    if answer["error_code"]:
        return _failed(asked, answer["error_code"], ctx.version)
    if asked.topics is None:  # who asks for everything looks, and does not read
        answer["topics"] = _with_ids(image, answer["topics"], ctx.version)
        return answer
    _note(asked.group_id, answer["topics"], ctx)
    if ctx.version < FIRST_BY_ID:
        for topic, said in zip(answer["topics"], asked.topics, strict=True):
            topic["name"] = said.name
    answer["topics"].extend(_nothing(topic, ErrorCode.unknown_topic_id) for topic in unknown)
    return answer


def _note(group_id: str, topics: list[Answer], ctx: RequestContext) -> None:
    """Who asks may be about to read from there."""
    handovers = ctx.services.handovers
    for topic in topics:
        for part in topic["partitions"]:
            with suppress(AnabranchError, OSError):
                place = topic["name"], part["partition_index"]
                handovers.asked(ctx.peer, ctx.client_id, group_id, place, part["committed_offset"])


def _topics(
    image: ClusterImage, asked: Any, version: int
) -> tuple[list[TopicPartitions] | None, list[TopicPartitions]]:
    """The topics to look for, None for all, and those that are known not to be."""
    if asked is None:
        return None, []
    known: list[TopicPartitions] = []
    unknown: list[TopicPartitions] = []
    for item in asked:
        if version < FIRST_BY_ID:
            topic = by_name(image, item.name)
            name, id = (item.name, None) if topic is None else (topic.name.kafka, topic.id)
            known.append(TopicPartitions(name, id, item.partition_indexes))
            continue
        topic = by_id(image, item.topic_id)
        if topic is None:
            unknown.append(TopicPartitions("", item.topic_id, item.partition_indexes))
        else:
            known.append(TopicPartitions(topic.name.kafka, topic.id, item.partition_indexes))
    return known, unknown


def _with_ids(image: ClusterImage, topics: list[Answer], version: int) -> list[Answer]:
    """All that a group has committed, by what is known of the topics: at v10 only those that have an id."""
    if version < FIRST_BY_ID:
        return topics
    found = ((topic, image.topics_by_kafka_name.get(topic["name"])) for topic in topics)
    return [topic | {"topic_id": there.id} for topic, there in found if there is not None]


def _failed(asked: Any, code: ErrorCode, version: int) -> Answer:
    answer: Answer = {"group_id": asked.group_id, "error_code": code, "topics": []}
    told = code
    if version >= _FIRST_WITH_ERROR_OF_GROUP:
        if code not in _ASK_AGAIN:
            return answer
        told = ErrorCode.unstable_offset_commit
    for topic in asked.topics or ():
        name, id = (topic.name, None) if version < FIRST_BY_ID else ("", topic.topic_id)
        answer["topics"].append(_nothing(TopicPartitions(name, id, topic.partition_indexes), told))
    return answer


def _nothing(topic: TopicPartitions, code: ErrorCode) -> Answer:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": -1,
                "committed_leader_epoch": -1,
                "metadata": "",
                "error_code": code,
            }
            for index in topic.partitions
        ],
    }
