"""Heartbeat (12): a member is there, and asks whether its group rebalances.

    v3      static members

The answer is held for a while when there is no news (see `held`), so that members hear of a rebalance when it
begins and not at their next heartbeat.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.classic_sync import Identity
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.held import Held
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.schema import ErrorCode

_KEY = 12


@api(_KEY, versions=(0, 4), raw=True)
def heartbeat(frame: memoryview, at: int, ctx: RequestContext) -> Held:
    request = decode(_KEY, ctx.version, frame, at)
    return Held(_KEY, ctx.version, _decide(request, ctx), {"error_code": ErrorCode.none})


async def _decide(request: Any, ctx: RequestContext) -> Answer:
    who = Identity(request.member_id, request.group_instance_id)
    try:
        return await ctx.services.groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.classic.heartbeat(
                request.group_id, who, request.generation_id, token, now_ms, may_hold=True
            ),
        )
    except AnabranchError as error:
        return {"error_code": code_of(error)}
