"""DescribeCluster (60): the brokers, the controller, the cluster's id.

v1 asks for brokers or for controllers.  We have no separate controllers, and Kafka's brokers refuse
that as well.  v2 asks whether brokers that are fenced should be named too: ours are those that are away.
"""

from typing import Any

from anabranch.server.kafka.described import CLUSTER_OPERATIONS, NOT_ASKED, brokers
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.wire.kafka.schema import ErrorCode

_BROKERS, _CONTROLLERS = 1, 2


@api(60, versions=(0, 2))
def describe_cluster(request: Any, ctx: RequestContext) -> Answer:
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.mismatched_endpoint_type, "this is a broker, not a controller")
    if request.endpoint_type != _BROKERS:
        message = f"there are no endpoints of type {request.endpoint_type}"
        return _refused(ErrorCode.unsupported_endpoint_type, message)
    image = ctx.services.cluster.image
    listed = [broker | {"is_fenced": False} for broker in brokers(image.brokers.values(), "broker_id")]
    if request.include_fenced_brokers:
        listed += [broker | {"is_fenced": True} for broker in brokers(image.away, "broker_id")]
    asked = request.include_cluster_authorized_operations
    return {
        "error_message": None,
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": listed,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NOT_ASKED,
    }


def _refused(code: ErrorCode, message: str) -> Answer:
    return {"error_code": code, "error_message": message, "cluster_id": "", "brokers": []}
