"""AlterShareGroupOffsets (91): where a share group goes on, while it has no members.

A group that is not there is made.  Partitions that are not there are UNKNOWN_TOPIC_OR_PARTITION, the others
begin again at the given offset: nothing of what was done with before is remembered.
"""

from typing import Any
from uuid import UUID

from anabranch.base.errors import AnabranchError
from anabranch.groups.heartbeats import Refused
from anabranch.groups.share_coordinator import NewStart
from anabranch.meta.image import TopicImage
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.group_topics import NO_GROUP, NOT_HOSTED, by_name, has_partition
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(91, versions=(0, 0))
async def alter_share_group_offsets(request: Any, ctx: RequestContext) -> Answer:
    if not request.group_id:
        return _refused(ErrorCode.invalid_group_id, NO_GROUP)
    image = ctx.services.cluster.image
    asked = [(topic, by_name(image, topic.topic_name)) for topic in request.topics]
    starts: dict[UUID, NewStart] = {}
    for wanted, topic in asked:
        offsets = {
            part.partition_index: part.start_offset
            for part in wanted.partitions
            if topic is not None and _refusal(topic, part) is None
        }
        if topic is not None and offsets:
            before = starts.get(topic.id, NewStart(topic.name.kafka, {}))  # if it is named twice
            starts[topic.id] = before._replace(offsets={**before.offsets, **offsets})
    try:
        await ctx.services.share_groups.alter(request.group_id, starts)
    except Refused as refused:
        return _refused(refused.code, refused.message)
    except AnabranchError as error:
        return _refused(code_of(error), message_of(error))
    return {"responses": [_answer(wanted, topic) for wanted, topic in asked]}


def _refusal(topic: TopicImage | None, part: Any) -> tuple[ErrorCode, str] | None:
    if topic is None or not has_partition(topic, part.partition_index):
        return ErrorCode.unknown_topic_or_partition, NOT_HOSTED
    if part.start_offset < 0:
        return ErrorCode.invalid_request, f"{part.start_offset} is no offset"
    return None


def _answer(wanted: Any, topic: TopicImage | None) -> Answer:
    partitions = []
    for part in wanted.partitions:
        code, message = _refusal(topic, part) or (ErrorCode.none, None)
        partitions.append(
            {"partition_index": part.partition_index, "error_code": code, "error_message": message}
        )
    return {
        "topic_name": wanted.topic_name,
        "topic_id": None if topic is None else topic.id,
        "partitions": partitions,
    }


def _refused(code: ErrorCode, message: str | None) -> Answer:
    return {"error_code": code, "error_message": message, "responses": []}
