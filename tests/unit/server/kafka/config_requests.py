"""A broker's control plane, real but for the sockets, and the four APIs of configuration over their bytes."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kio.serial import entity_reader, entity_writer

from anabranch.base.ids import BrokerId, TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import NewTopic
from anabranch.meta.image import BrokerImage
from anabranch.server.config import DynamicConfig
from anabranch.server.kafka.alter_configs import alter_configs
from anabranch.server.kafka.describe_configs import describe_configs
from anabranch.server.kafka.incremental_alter_configs import incremental_alter_configs
from anabranch.server.kafka.list_config_resources import list_config_resources
from anabranch.server.kafka.registry import RequestContext
from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.encoder import encoder
from tests.support.worlds import node_parts

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32

_HANDLERS = {
    32: describe_configs,
    33: alter_configs,
    44: incremental_alter_configs,
    74: list_config_resources,
}


class Broker:
    """Answers requests as a broker with node.id 1 would."""

    def __init__(self, cluster: Cluster, config: DynamicConfig) -> None:
        self.cluster = cluster
        self.config = config

    async def ask(self, request: Any) -> Any:
        """Send a request of kio's; what comes back, both over their bytes."""
        key, version = int(request.__api_key__), int(request.__version__)
        body = io.BytesIO()
        entity_writer(type(request))(body, request)
        services: Any = SimpleNamespace(cluster=self.cluster, config=self.config)
        context = RequestContext(version, "test", 1, services)
        answer = _HANDLERS[key](decode(key, version, memoryview(body.getvalue()), 0), context)
        out = bytearray()
        encoder(key, version)(out, await answer if isawaitable(answer) else answer)
        response = getattr(_module(request), type(request).__name__.replace("Request", "Response"))
        read, end = entity_reader(response)(bytes(out), 0)
        assert end == len(out)
        return read

    async def describe(
        self, resource_type: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
    ) -> Any:
        module = import_module(f"kio.schema.describe_configs.v{version}.request")
        resource = module.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=keys or None
        )
        documented = {"include_documentation": True} if version >= 3 else {}
        request = module.DescribeConfigsRequest(
            resources=(resource,), include_synonyms=synonyms, **documented
        )
        return (await self.ask(request)).results[0]

    async def value(self, resource_type: int, name: str, key: str) -> tuple[str | None, int]:
        """An option's value and source."""
        (entry,) = (await self.describe(resource_type, name, key)).configs
        return entry.value, int(entry.config_source)

    async def incremental(
        self,
        *resources: tuple[int, str, list[tuple[str, int, str | None]]],
        validate_only: bool = False,
        version: int = 1,
    ) -> list[tuple[str, str | None]]:
        module = import_module(f"kio.schema.incremental_alter_configs.v{version}.request")
        request = module.IncrementalAlterConfigsRequest(
            resources=tuple(
                module.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=tuple(
                        module.AlterableConfig(name=key, config_operation=op, value=value)
                        for key, op, value in changes
                    ),
                )
                for resource_type, name, changes in resources
            ),
            validate_only=validate_only,
        )
        return _outcomes(await self.ask(request))

    async def alter(
        self,
        *resources: tuple[int, str, list[tuple[str, str | None]]],
        validate_only: bool = False,
        version: int = 2,
    ) -> list[tuple[str, str | None]]:
        module = import_module(f"kio.schema.alter_configs.v{version}.request")
        request = module.AlterConfigsRequest(
            resources=tuple(
                module.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=tuple(module.AlterableConfig(name=key, value=value) for key, value in configs),
                )
                for resource_type, name, configs in resources
            ),
            validate_only=validate_only,
        )
        return _outcomes(await self.ask(request))


@asynccontextmanager
async def broker_in(folder: Path, **static: str) -> AsyncIterator[Broker]:
    """A broker with a topic `orders`, its static configuration given with underscores for dots."""
    async with node_parts(folder, **static) as parts:
        cluster = parts.cluster
        await cluster.register_broker(BrokerImage(BrokerId(1), "127.0.0.1", 9092))
        if TopicName.from_kafka("orders") not in cluster.image.topics:
            await cluster.create_topic(NewTopic(TopicName.from_kafka("orders")))
        yield Broker(cluster, parts.dynamic)


def _module(request: Any) -> Any:
    return import_module(type(request).__module__.rpartition(".")[0])


def _outcomes(response: Any) -> list[tuple[str, str | None]]:
    return [(result.error_code.name, result.error_message) for result in response.responses]
