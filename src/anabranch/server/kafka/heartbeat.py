"""Heartbeat (12): a member is there, and asks whether its group rebalances.

v3      static members
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.classic_sync import Identity
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(12, versions=(0, 4))
async def heartbeat(request: Any, ctx: RequestContext) -> Answer:
    who = Identity(request.member_id, request.group_instance_id)
    try:
        return await ctx.services.groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.classic.heartbeat(
                request.group_id, who, request.generation_id, token, now_ms
            ),
        )
    except AnabranchError as error:
        return {"error_code": code_of(error)}
