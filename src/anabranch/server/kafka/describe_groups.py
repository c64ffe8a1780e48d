"""DescribeGroups (15): classic groups, their members, and what each of them has.

    v3      which operations the client may do, if it asks
    v4      the instance ids of static members
    v6      a group that is not there is GROUP_ID_NOT_FOUND; before, it was only Dead

Groups of the newer protocol are not shown here: ConsumerGroupDescribe does that.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable
from anabranch.server.kafka.described import GROUP_OPERATIONS, NOT_ASKED
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_MISSING_FROM = 6


@api(15, versions=(0, 6))
async def describe_groups(request: Any, ctx: RequestContext) -> Answer:
    # Once each, however often it is named: an answer is far longer than the question.
    described = [await _describe(ctx, group_id) for group_id in dict.fromkeys(request.groups)]
    for answer in described:
        allowed = request.include_authorized_operations and not answer.get("error_code")
        answer["authorized_operations"] = GROUP_OPERATIONS if allowed else NOT_ASKED
    return {"groups": described}


async def _describe(ctx: RequestContext, group_id: str) -> Answer:
    try:
        described = await ctx.services.groups.ask(group_id, lambda shard: shard.classic.describe(group_id))
    except CoordinatorNotAvailable:
        described = None  # there are no groups at all
    except AnabranchError as error:
        return _nothing(group_id, "", code_of(error), message_of(error))
    if described is not None:
        return described
    if ctx.version < _MISSING_FROM:
        return _nothing(group_id, "Dead", ErrorCode.none, None)
    return _nothing(group_id, "Dead", ErrorCode.group_id_not_found, f"Group {group_id} not found.")


def _nothing(group_id: str, state: str, code: ErrorCode, message: str | None) -> Answer:
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }
