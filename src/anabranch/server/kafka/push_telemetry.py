"""PushTelemetry (72): a client's metrics, as GetTelemetrySubscriptions asked for them (KIP-714).

See `server/telemetry.py`.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.telemetry import Client, Push


@api(72, versions=(0, 0))
async def push_telemetry(request: Any, ctx: RequestContext) -> Answer:
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        request.metrics,
    )
    try:
        await ctx.services.telemetry.push(push, Client(ctx.connection_id, ctx.client_id, ctx.peer))
    except AnabranchError as error:
        return {"error_code": code_of(error)}
    return {}
