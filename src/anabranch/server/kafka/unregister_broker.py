"""UnregisterBroker (64): forget a broker that will not come back.

Partitions keep their replicas on it until they are reassigned.  A broker that is there registers again.  The
controller does it, whichever broker is asked.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import BrokerId
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.forwarding import forwarded
from anabranch.server.kafka.registry import Answer, RequestContext, api

_WITHIN_MS = 30_000


@api(64, versions=(0, 0))
async def unregister_broker(request: Any, ctx: RequestContext) -> Answer:
    if ctx.services.cluster.controller.epoch is None:
        told = await forwarded(64, request, ctx, _WITHIN_MS)
        if told is not None:
            return told
    try:
        await ctx.services.cluster.controller.unregister(BrokerId(request.broker_id))
    except AnabranchError as error:
        return {"error_code": code_of(error), "error_message": message_of(error)}
    return {"error_message": None}
