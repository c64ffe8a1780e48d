"""GetTelemetrySubscriptions (71): which metrics a client is to push, and how often (KIP-714).

A client without an instance id is given one.  See `server/telemetry.py`.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.telemetry import CODECS, Client

_NOTHING: Answer = {
    "client_instance_id": None,
    "subscription_id": 0,
    "accepted_compression_types": [],
    "push_interval": 0,
    "telemetry_max_bytes": 0,
    "delta_temporality": False,
    "requested_metrics": [],
}


@api(71, versions=(0, 0))
def get_telemetry_subscriptions(request: Any, ctx: RequestContext) -> Answer:
    client = Client(ctx.connection_id, ctx.client_id, ctx.peer)
    try:
        subscription = ctx.services.telemetry.subscribe(request.client_instance_id, client)
    except AnabranchError as error:
        return _NOTHING | {"error_code": code_of(error)}
    return {
        "client_instance_id": subscription.instance_id,
        "subscription_id": subscription.id,
        "accepted_compression_types": CODECS,
        "push_interval": subscription.interval_ms,
        "telemetry_max_bytes": subscription.max_bytes,
        "delta_temporality": True,
        "requested_metrics": subscription.metrics,
    }
