"""Forwarding: what only the controller does, asked of another broker, as Kafka's brokers take it.

The controller of the image is asked on behalf of the client, and what it answers is the answer.  If it is the
controller no more, or cannot be reached, the client is told NOT_CONTROLLER and asks again.  What a broker has
forwarded is not forwarded once more, so nothing goes round while brokers differ on who it is.
"""

from types import SimpleNamespace
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.client.requests import Request
from anabranch.groups.other_brokers import FOR_CLIENTS
from anabranch.meta.image import NO_BROKER
from anabranch.server.kafka.registry import Answer, RequestContext

_MOST_S = 60.0


async def forwarded(api_key: int, request: Any, ctx: RequestContext, within_ms: int) -> Answer | None:
    """The controller's answer, None if there is none."""
    brokers, controller = ctx.services.brokers, ctx.services.cluster.image.controller_id
    if controller in (NO_BROKER, brokers.me) or (ctx.client_id or "").endswith(FOR_CLIENTS):
        return None
    ctx.begun()
    wait_s = min(max(0, within_ms) / 1000 + 1, _MOST_S)
    try:
        told = await brokers.ask(controller, Request(api_key, plain(request)), wait_s)
    except AnabranchError:
        return None
    answer: Answer = plain(told)
    return answer


def plain(value: Any) -> Any:
    """What the decoder read, as the encoder takes it."""
    if isinstance(value, SimpleNamespace):
        return {name: plain(field) for name, field in vars(value).items()}
    return [plain(item) for item in value] if isinstance(value, list) else value
