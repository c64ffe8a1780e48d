"""DeleteShareGroupOffsets (92): a share group forgets topics, while it has no members.

A topic that is not there, or of which the group has nothing, is UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import Any
from uuid import UUID

from anabranch.base.errors import AnabranchError
from anabranch.groups.heartbeats import Refused
from anabranch.groups.share_group import ShareGroup
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.group_topics import NO_GROUP, NOT_HOSTED, by_name
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_NOTHING = "There is no offset information to delete."


@api(92, versions=(0, 0))
async def delete_share_group_offsets(request: Any, ctx: RequestContext) -> Answer:
    if not request.group_id:
        return _refused(ErrorCode.invalid_group_id, NO_GROUP)
    groups, image = ctx.services.share_groups, ctx.services.cluster.image
    found = {name: by_name(image, name) for name in dict.fromkeys(t.topic_name for t in request.topics)}
    ids = {name: None if topic is None else topic.id for name, topic in found.items()}
    try:
        kept = _kept(await groups.find(request.group_id))
        await groups.delete_offsets(request.group_id, {id for id in ids.values() if id in kept and id})
    except Refused as refused:
        return _refused(refused.code, refused.message)
    except AnabranchError as error:
        return _refused(code_of(error), message_of(error))
    return {"responses": [_answer(name, topic_id, kept) for name, topic_id in ids.items()]}


def _kept(group: ShareGroup) -> frozenset[UUID]:
    return frozenset(group.topics.initialised) | frozenset(group.topics.deleting)


def _answer(name: str, topic_id: UUID | None, kept: frozenset[UUID]) -> Answer:
    code, message = ErrorCode.none, None
    if topic_id not in kept:
        code = ErrorCode.unknown_topic_or_partition
        message = NOT_HOSTED if topic_id is None else _NOTHING
        topic_id = None
    return {"topic_name": name, "topic_id": topic_id, "error_code": code, "error_message": message}


def _refused(code: ErrorCode, message: str | None) -> Answer:
    return {"error_code": code, "error_message": message, "responses": []}
