"""DeleteShareGroupState (86): nothing is kept of a share partition any more; nor if there was nothing."""

from typing import Any

from anabranch.groups.share_state import ShareKey
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.kafka.share_state_requests import Asked, for_each


@api(86, versions=(0, 0))
async def delete_share_group_state(request: Any, ctx: RequestContext) -> Answer:
    async def delete(key: ShareKey, asked: Asked) -> Answer:
        await ctx.services.share_groups.states.delete((key,))
        return {}

    return await for_each(request, ctx, delete)
