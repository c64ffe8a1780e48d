"""ShareGroupDescribe (77): share groups, their members, and what each reads.

A group that is not there, or of another protocol, is GROUP_ID_NOT_FOUND.
"""

from typing import Any

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable
from anabranch.groups.consumer_requests import Refused
from anabranch.groups.share_requests import not_a_share_group
from anabranch.server.kafka.consumer_group_describe import nothing_described
from anabranch.server.kafka.described import GROUP_OPERATIONS, NOT_ASKED
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(77, versions=(1, 1))
async def share_group_describe(request: Any, ctx: RequestContext) -> Answer:
    described = [await _describe(ctx, group_id) for group_id in request.group_ids]
    for answer in described:
        allowed = request.include_authorized_operations and not answer.get("error_code")
        answer["authorized_operations"] = GROUP_OPERATIONS if allowed else NOT_ASKED
    return {"groups": described}


async def _describe(ctx: RequestContext, group_id: str) -> Answer:
    if not group_id:
        return nothing_described(group_id, ErrorCode.invalid_group_id, None)
    try:
        return (await ctx.services.groups.look(group_id)).share.describe(group_id)
    except CoordinatorNotAvailable:  # there are no groups at all
        refused = not_a_share_group(group_id, exists=False)
    except Refused as error:
        refused = error
    except AnabranchError as error:
        return nothing_described(group_id, code_of(error), message_of(error))
    return nothing_described(group_id, refused.code, refused.message)
