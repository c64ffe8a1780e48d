"""ReadShareGroupState (84): what is kept of a share partition, for whoever leads it."""

from typing import Any

from anabranch.groups.share_state import ShareKey
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.kafka.share_state_requests import Asked, for_each

_NOTHING: Answer = {"state_epoch": 0, "start_offset": 0, "state_batches": []}


@api(84, versions=(0, 0))
async def read_share_group_state(request: Any, ctx: RequestContext) -> Answer:
    async def read(key: ShareKey, asked: Asked) -> Answer:
        state = await ctx.services.share_groups.states.read(key, asked.leader_epoch)
        return {
            "state_epoch": state.state_epoch,
            "start_offset": state.start_offset,
            "state_batches": [batch._asdict() for batch in state.batches],
        }

    return await for_each(request, ctx, read, _NOTHING)
