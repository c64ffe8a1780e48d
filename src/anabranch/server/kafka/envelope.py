"""Envelope (58): what brokers ask each other about Pulsar's subscriptions.  Kafka's has clients' requests.

The data is a call of `cluster/subscription_calls`, and its answer; beside an error, what it says.  A broker
that is alone takes none.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode


@api(58, versions=(0, 0))
async def envelope(request: Any, ctx: RequestContext) -> Answer:
    ctx.begun()
    kept = ctx.services.subscriptions
    if kept is None:  # no broker asks
        return {"error_code": ErrorCode.cluster_authorization_failed, "response_data": None}
    try:
        data = await kept.answer(bytes(request.request_data))
    except AnabranchError as error:
        return {"error_code": code_of(error), "response_data": (message_of(error) or "").encode()}
    return {"error_code": ErrorCode.none, "response_data": data}
