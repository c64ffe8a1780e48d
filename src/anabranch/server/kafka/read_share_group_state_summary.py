"""ReadShareGroupStateSummary (87): how far a share group is with a partition, for whoever describes it.

v1   how many records from the start offset on are done with
"""

from typing import Any

from anabranch.groups.share_state import NOT_INITIALISED, UNKNOWN_COUNT, ShareKey
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.kafka.share_state_requests import Asked, for_each

_NOTHING: Answer = {
    "state_epoch": 0,
    "leader_epoch": 0,
    "start_offset": NOT_INITIALISED,
    "delivery_complete_count": UNKNOWN_COUNT,
}


@api(87, versions=(0, 1))
async def read_share_group_state_summary(request: Any, ctx: RequestContext) -> Answer:
    async def summary(key: ShareKey, asked: Asked) -> Answer:
        kept = await ctx.services.share_groups.states.look(key)
        if kept is None:
            return _NOTHING
        return {
            "state_epoch": kept.state_epoch,
            "leader_epoch": kept.leader_epoch,
            "start_offset": kept.start_offset,
            "delivery_complete_count": kept.complete_count,
        }

    return await for_each(request, ctx, summary, _NOTHING | {"start_offset": 0})  # beside an error
