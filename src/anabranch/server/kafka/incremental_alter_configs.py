"""IncrementalAlterConfigs (44): set, delete, append to and subtract from options, one by one.

The changes of a resource are made together or not at all; each resource stands alone.  A resource that is
named twice is refused both times.  With `validate_only` everything is checked and nothing is done.
"""

from typing import Any

from anabranch.groups.group_options import GROUP_OPTIONS
from anabranch.log.config import TOPIC_OPTIONS
from anabranch.server.config import BROKER_OPTIONS
from anabranch.server.config_alter import alter_resource, this_broker
from anabranch.server.config_changes import altered, checked_changes
from anabranch.server.config_client_metrics import CLIENT_METRICS_OPTIONS
from anabranch.server.config_loggers import check_levels, set_levels
from anabranch.server.config_resources import ResourceType
from anabranch.server.kafka.alter_configs import alter_each
from anabranch.server.kafka.registry import Answer, RequestContext, api

_OPTIONS = {
    ResourceType.TOPIC: TOPIC_OPTIONS,
    ResourceType.BROKER: BROKER_OPTIONS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_OPTIONS,
    ResourceType.GROUP: GROUP_OPTIONS,
}


@api(44, versions=(0, 1))
async def incremental_alter_configs(request: Any, ctx: RequestContext) -> Answer:
    services = ctx.services

    async def alter(resource: Any) -> None:
        changes = checked_changes(
            [(config.name, config.config_operation, config.value) for config in resource.configs]
        )
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            this_broker(services.config, resource.resource_name)
            check_levels(changes)
            if not request.validate_only:
                set_levels(changes)
            return
        options = _OPTIONS.get(resource.resource_type, {})
        await alter_resource(
            services.cluster,
            services.config,
            (resource.resource_type, resource.resource_name),
            lambda current: altered(current, changes, options),
            request.validate_only,
        )

    return {"responses": await alter_each(request.resources, alter)}
