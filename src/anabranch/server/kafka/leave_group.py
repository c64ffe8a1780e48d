"""LeaveGroup (13): members go, by their own will or removed by somebody else.

v0-2    one member, whose code is that of the answer
v3      several, each with its own code; static ones by instance id alone
v5      with a reason
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.classic_sync import Identity
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api

_SEVERAL_FROM = 3


@api(13, versions=(0, 5))
async def leave_group(request: Any, ctx: RequestContext) -> Answer:
    several = ctx.version >= _SEVERAL_FROM
    leaving = (
        [Identity(member.member_id, member.group_instance_id) for member in request.members]
        if several
        else [Identity(request.member_id, None)]
    )
    try:
        answer = await ctx.services.groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.classic.leave(request.group_id, leaving, token, now_ms),
            ctx.begun,
        )
    except AnabranchError as error:
        return {"error_code": code_of(error), "members": []}
    if several or answer["error_code"]:
        return answer
    return {"error_code": answer["members"][0]["error_code"]}
