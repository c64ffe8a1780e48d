"""ListGroups (16): the groups this broker coordinates.

    v4      filtered by state
    v5      filtered by type (classic, consumer, share)

Filters are compared without regard to case; one that names nothing there is matches nothing.
"""

from itertools import chain
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.groups.group import Group
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(16, versions=(0, 5))
async def list_groups(request: Any, ctx: RequestContext) -> Answer:
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}

    def is_wanted(group: Group) -> bool:
        return (not states or group.state.lower() in states) and (not kinds or group.kind.lower() in kinds)

    try:
        listed = await ctx.services.groups.ask_all(
            lambda shard: [_listed(group) for group in shard.groups.values() if is_wanted(group)]
        )
    except AnabranchError as error:
        return {"error_code": code_of(error), "groups": []}
    return {"groups": list(chain.from_iterable(listed))}


def _listed(group: Group) -> Answer:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.kind,
    }
