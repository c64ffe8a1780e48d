"""ShareGroupHeartbeat (76): all that a member of a share group says to its coordinator (KIP-932).

    v1   (v0 was an early preview and is gone, as in Kafka)

A request says only what has changed since the member's last one.  What is decided, and the codes of what
is refused, is in `groups/share_heartbeat`.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.heartbeats import Refused
from anabranch.groups.share_requests import ShareHeartbeat
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(76, versions=(1, 1))
async def share_group_heartbeat(request: Any, ctx: RequestContext) -> Answer:
    names = request.subscribed_topic_names
    asked = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topic_names=None if names is None else frozenset(names),
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer.address or ''}",
    )
    try:
        return await ctx.services.share_groups.heartbeat(asked, ctx.begun)
    except AnabranchError as error:
        return Refused(code_of(error), message_of(error) or "").answer
