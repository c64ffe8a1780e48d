"""JoinGroup (11): a client becomes a member of a group's next generation, and waits for it.

v0      has no rebalance timeout: the session's is taken
v4      a new member is given an id first (MEMBER_ID_REQUIRED) and asks again with it
v5      static members: `group_instance_id`
v7      the answer names the protocol type; up to v6 a missing protocol name is ""
v9      a leader may be told not to assign
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups import classic_answers
from anabranch.groups.classic_join import Joining
from anabranch.groups.classic_member import AssignmentProtocol
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api

_NULL_PROTOCOL_FROM = 7


@api(11, versions=(0, 9))
async def join_group(request: Any, ctx: RequestContext) -> Answer:
    rebalance_timeout_ms = request.session_timeout if ctx.version == 0 else request.rebalance_timeout
    who = Joining(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer.address or ''}",
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(AssignmentProtocol(p.name, bytes(p.metadata)) for p in request.protocols),
        version=ctx.version,
    )
    try:
        answer = await ctx.services.groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.classic.join(request.group_id, who, token, now_ms),
            ctx.begun,
        )
    except AnabranchError as error:
        answer = classic_answers.not_joined(code_of(error))
    if ctx.version < _NULL_PROTOCOL_FROM and answer["protocol_name"] is None:
        return answer | {"protocol_name": ""}
    return answer
