"""OffsetDelete (47): a group forgets how far it has got in some partitions.

Not in topics that it is subscribed to: GROUP_SUBSCRIBED_TO_TOPIC.  A group that is not there, or has
members that are no consumers, is an error of the whole request, and its answer names no topics.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.offsets import TopicPartitions
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.group_topics import by_name, has_partition
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(47, versions=(0, 0))
async def offset_delete(request: Any, ctx: RequestContext) -> Answer:
    if not request.group_id:
        return {"error_code": ErrorCode.invalid_group_id, "topics": []}
    refused, wanted, asked_as = _split(request, ctx)
    try:
        answer = await ctx.services.groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.offsets.delete(request.group_id, wanted, token, now_ms),
            ctx.begun,
        )
    except AnabranchError as error:
        return {"error_code": code_of(error), "topics": []}
    if answer.get("error_code"):
        return answer
    by_topic: dict[str, Answer] = {}
    named = [*((topic["name"], topic) for topic in refused), *zip(asked_as, answer["topics"], strict=True)]
    for name, topic in named:
        known = by_topic.setdefault(name, {"name": name, "partitions": []})
        known["partitions"].extend(topic["partitions"])
    return {"topics": list(by_topic.values())}


def _split(request: Any, ctx: RequestContext) -> tuple[list[Answer], list[TopicPartitions], list[str]]:
    """What is refused since it is not there, what is left, and what the client calls that."""
    image = ctx.services.cluster.image
    refused: list[Answer] = []
    wanted: list[TopicPartitions] = []
    asked_as: list[str] = []
    for asked in request.topics:
        topic = by_name(image, asked.name)
        indexes = [part.partition_index for part in asked.partitions]
        there: list[int] = []
        missing: list[int] = []
        for index in indexes:
            (there if topic is not None and has_partition(topic, index) else missing).append(index)
        if missing:
            refused.append({"name": asked.name, "partitions": [_unknown(index) for index in missing]})
        if topic is not None and there:
            wanted.append(TopicPartitions(topic.name.kafka, topic.id, there))
            asked_as.append(asked.name)
    return refused, wanted, asked_as


def _unknown(index: int) -> Answer:
    return {"partition_index": index, "error_code": ErrorCode.unknown_topic_or_partition}
