"""DescribeConfigs (32): the options of a topic, a broker, its loggers, a group, client metrics.

No keys, or null, asks for all; a key that is no option is left out of the answer.  A broker describes itself,
and under the empty name what is set for all brokers.  An error is the resource's; the others are answered.

v1 has synonyms, v3 types and documentation.  v4 is the first flexible version.
"""

import asyncio
from typing import Any

from anabranch.base.errors import AnabranchError, Invalid, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.server.config_alter import this_broker
from anabranch.server.config_entries import (
    Entry,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    logger_entries,
    topic_entries,
)
from anabranch.server.config_loggers import logger_levels
from anabranch.server.config_resources import ResourceType
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.services import Services

_A_TURN = 32  # resources that are described before others get the loop


@api(32, versions=(1, 4))
async def describe_configs(request: Any, ctx: RequestContext) -> Answer:
    # Once each, however often it is named: an answer is a thousand times as long as the question.
    distinct = {(one.resource_type, one.resource_name): one for one in reversed(request.resources)}
    results = []
    for resource in reversed(distinct.values()):
        results.append(_result(resource, request, ctx.services))
        if len(results) % _A_TURN == 0:
            await asyncio.sleep(0)
    return {"results": results}


def _result(resource: Any, request: Any, services: Services) -> Answer:
    answer = {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "error_message": "",
    }
    try:
        entries = _entries(resource.resource_type, resource.resource_name, services)
    except AnabranchError as error:
        return answer | {"error_code": code_of(error), "error_message": str(error), "configs": []}
    wanted = set(resource.configuration_keys or ())
    return answer | {
        "configs": [_config(entry, request) for entry in entries if not wanted or entry.name in wanted]
    }


def _entries(resource_type: int, name: str, services: Services) -> list[Entry]:
    layers = services.config.current.layers
    match resource_type:
        case ResourceType.TOPIC:
            topic = services.cluster.image.topics.get(TopicName.from_kafka(name))
            if topic is None:
                raise UnknownTopic(f"The topic '{name}' does not exist.")
            return topic_entries(layers, topic.config)
        case ResourceType.BROKER:
            if not name:
                return default_broker_entries(layers)
            this_broker(services.config, name)
            return broker_entries(layers)
        case ResourceType.BROKER_LOGGER:
            this_broker(services.config, name)
            return logger_entries(logger_levels())
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise Invalid("Client metrics subscription name must not be empty")
            return client_metrics_entries(services.cluster.image.client_metrics.get(name, {}))
        case ResourceType.GROUP:
            if not name:
                raise Invalid("Group name must not be empty")
            return group_entries(layers, services.cluster.image.group_configs.get(name, {}))
        case _:
            raise Invalid(f"Unsupported resource type {resource_type} for resource {name}")


def _config(entry: Entry, request: Any) -> Answer:
    config = entry._asdict()
    synonyms = entry.synonyms if request.include_synonyms else ()
    config["synonyms"] = [synonym._asdict() for synonym in synonyms]
    if not request.include_documentation:
        config["documentation"] = None
    return config
