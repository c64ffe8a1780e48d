"""ConsumerGroupDescribe (69): consumer groups, their members, what each has and what it is meant to have.

    v1   whether a member speaks the classic protocol or the consumer protocol

A group that is not there, or is a classic one, is GROUP_ID_NOT_FOUND: clients then ask DescribeGroups.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable
from anabranch.groups.consumer_requests import not_a_consumer_group
from anabranch.server.kafka.described import GROUP_OPERATIONS, NOT_ASKED
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(69, versions=(0, 1))
async def consumer_group_describe(request: Any, ctx: RequestContext) -> Answer:
    described = [await _describe(ctx, group_id) for group_id in request.group_ids]
    for answer in described:
        allowed = request.include_authorized_operations and not answer.get("error_code")
        answer["authorized_operations"] = GROUP_OPERATIONS if allowed else NOT_ASKED
    return {"groups": described}


async def _describe(ctx: RequestContext, group_id: str) -> Answer:
    if not group_id:
        return nothing_described(group_id, ErrorCode.invalid_group_id, None)
    try:
        shard = await ctx.services.groups.look(group_id)
    except CoordinatorNotAvailable:  # there are no groups at all
        refused = not_a_consumer_group(group_id, exists=False)
        return nothing_described(group_id, refused.code, refused.message)
    except AnabranchError as error:
        return nothing_described(group_id, code_of(error), message_of(error))
    described = shard.consumer.describe(group_id)
    if described.get("error_code"):
        return nothing_described(group_id, described["error_code"], described["error_message"])
    return described


def nothing_described(group_id: str, code: ErrorCode, message: str | None) -> Answer:
    """Of a group that cannot be described; ShareGroupDescribe says it alike."""
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }
