"""ListConfigResources (74): the names of what can be configured, by type; no types asks for all of them.

v0 was ListClientMetricsResources and knows nothing else.  v1 asks by type, and a type that does not exist is
UNSUPPORTED_VERSION, because a later version may have it.  Topics and brokers are listed whether or not
something is set for them; groups only if.
"""

from typing import Any

from anabranch.meta.image import ClusterImage
from anabranch.server.config_resources import ResourceType
from anabranch.server.kafka.registry import Answer, RequestContext, api

_UNSUPPORTED_VERSION = 35


@api(74, versions=(0, 1))
def list_config_resources(request: Any, ctx: RequestContext) -> Answer:
    types = [ResourceType.CLIENT_METRICS] if ctx.version == 0 else request.resource_types
    if any(wanted not in ResourceType.__members__.values() for wanted in types):
        return {"error_code": _UNSUPPORTED_VERSION, "config_resources": []}
    names = _names(ctx.services.cluster.image)
    return {
        "config_resources": [
            {"resource_name": name, "resource_type": resource_type}
            for resource_type in dict.fromkeys(types or ResourceType)
            for name in sorted(names[resource_type])
        ]
    }


def _names(image: ClusterImage) -> dict[int, list[str]]:
    brokers = [str(broker) for broker in image.brokers]
    return {
        ResourceType.TOPIC: list(image.topics_by_kafka_name),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: list(image.client_metrics),
        ResourceType.GROUP: list(image.group_configs),
    }
