"""AlterConfigs (33): all that is set for a resource, at once; what is not named goes back to its default.

Clients prefer IncrementalAlterConfigs, which cannot undo somebody else's change.  Loggers cannot be altered
this way.  Each resource stands alone; one that is named twice is refused both times.  With `validate_only`
everything is checked and nothing is done.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.base.errors import AnabranchError, Invalid
from anabranch.server.config_alter import alter_resource
from anabranch.server.config_changes import Op, altered, checked_changes
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(33, versions=(0, 2))
async def alter_configs(request: Any, ctx: RequestContext) -> Answer:
    services = ctx.services

    async def alter(resource: Any) -> None:
        wanted = checked_changes([(config.name, Op.SET, config.value) for config in resource.configs])
        overrides = altered({}, wanted, {})
        await alter_resource(
            services.cluster,
            services.config,
            (resource.resource_type, resource.resource_name),
            lambda _: overrides,
            request.validate_only,
        )

    return {"responses": await alter_each(request.resources, alter)}


async def alter_each(resources: list[Any], alter: Callable[[Any], Awaitable[None]]) -> list[Answer]:
    """The responses, with the errors, of `alter` for each resource."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses = []
    for resource in resources:
        response = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise Invalid("Each resource must appear at most once.")
            await alter(resource)
        except AnabranchError as error:
            response |= {"error_code": code_of(error), "error_message": str(error)}
        responses.append(response)
    return responses
