"""DeleteGroups (42): groups without members go, with what they have committed or are done with."""

from typing import Any

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable
from anabranch.groups.deletion import delete_group
from anabranch.groups.heartbeats import Refused
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(42, versions=(0, 2))
async def delete_groups(request: Any, ctx: RequestContext) -> Answer:
    return {"results": [await _delete(ctx, group_id) for group_id in dict.fromkeys(request.groups_names)]}


async def _delete(ctx: RequestContext, group_id: str) -> Answer:
    groups = ctx.services.groups
    try:
        is_share = await groups.ask(group_id, lambda shard: shard.has_share_group(group_id))
    except CoordinatorNotAvailable:  # there are no groups at all
        return {"group_id": group_id, "error_code": ErrorCode.group_id_not_found}
    except AnabranchError as error:
        return {"group_id": group_id, "error_code": code_of(error)}
    try:
        if is_share:
            await ctx.services.share_groups.delete_all_offsets(group_id)
        return await groups.submit(
            group_id,
            lambda shard, token, now_ms: delete_group(shard.groups, shard.offsets, group_id, token),
        )
    except Refused as refused:
        return {"group_id": group_id, "error_code": refused.code}
    except AnabranchError as error:
        return {"group_id": group_id, "error_code": code_of(error)}
