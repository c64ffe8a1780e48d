"""WriteShareGroupState (85): what became of records of a share partition.

v1   how many records from the start offset on are done with, of which the lag is computed
"""

from typing import Any

from anabranch.base.errors import Invalid
from anabranch.groups.share_state import UNKNOWN_COUNT, DeliveryState, ShareKey, StateBatch
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.kafka.share_state_requests import Asked, for_each

_FIRST_WITH_COUNT = 1


@api(85, versions=(0, 1))
async def write_share_group_state(request: Any, ctx: RequestContext) -> Answer:
    async def write(key: ShareKey, asked: Asked) -> Answer:
        await ctx.services.share_groups.states.write(
            key,
            asked.state_epoch,
            asked.start_offset,
            [_batch(batch) for batch in asked.state_batches],
            asked.delivery_complete_count if ctx.version >= _FIRST_WITH_COUNT else UNKNOWN_COUNT,
            asked.leader_epoch,
        )
        return {}

    return await for_each(request, ctx, write)


def _batch(told: Any) -> StateBatch:
    try:
        state = DeliveryState(told.delivery_state)
    except ValueError as error:
        raise Invalid(f"there is no delivery state {told.delivery_state}") from error
    return StateBatch(told.first_offset, told.last_offset, state, told.delivery_count)
