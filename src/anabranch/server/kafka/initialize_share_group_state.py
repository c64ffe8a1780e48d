"""InitializeShareGroupState (83): a share partition begins, or begins again."""

from typing import Any

from anabranch.groups.share_state import ShareKey
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.kafka.share_state_requests import Asked, for_each


@api(83, versions=(0, 0))
async def initialize_share_group_state(request: Any, ctx: RequestContext) -> Answer:
    async def initialise(key: ShareKey, asked: Asked) -> Answer:
        await ctx.services.share_groups.states.initialise(key, asked.state_epoch, asked.start_offset)
        return {}

    return await for_each(request, ctx, initialise)
