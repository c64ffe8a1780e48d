"""Group descriptions: what ConsumerGroupDescribe and ShareGroupDescribe have in common.

What a group's protocol knows of it is in `groups`; here is what both answer for a group that cannot be
described, and the authorized operations on one that can.
"""

from collections.abc import Callable
from typing import Any

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable
from anabranch.groups.heartbeats import Refused
from anabranch.groups.shard import GroupShard
from anabranch.server.kafka.described import GROUP_OPERATIONS, NOT_ASKED
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext
from anabranch.wire.kafka.schema import ErrorCode


async def described_groups(
    request: Any,
    ctx: RequestContext,
    describe: Callable[[GroupShard, str], Answer],
    not_found: Callable[[str], Refused],
) -> Answer:
    """`describe` may raise Refused; `not_found` is the refusal where there are no groups at all."""
    described = []
    # Once each, however often it is named: an answer is far longer than the question.
    for group_id in dict.fromkeys(request.group_ids):
        try:
            answer = await _described(ctx, group_id, describe, not_found)
        except Refused as refused:
            answer = _nothing(group_id, refused.code, refused.message)
        allowed = request.include_authorized_operations and not answer.get("error_code")
        answer["authorized_operations"] = GROUP_OPERATIONS if allowed else NOT_ASKED
        described.append(answer)
    return {"groups": described}


async def _described(
    ctx: RequestContext,
    group_id: str,
    describe: Callable[[GroupShard, str], Answer],
    not_found: Callable[[str], Refused],
) -> Answer:
    if not group_id:
        return _nothing(group_id, ErrorCode.invalid_group_id, None)
    try:
        return await ctx.services.groups.ask(group_id, lambda shard: describe(shard, group_id))
    except CoordinatorNotAvailable as error:
        raise not_found(group_id) from error
    except AnabranchError as error:
        return _nothing(group_id, code_of(error), message_of(error))


def _nothing(group_id: str, code: ErrorCode, message: str | None) -> Answer:
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
