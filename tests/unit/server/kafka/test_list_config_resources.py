from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.unit.server.kafka.config_requests import (
    BROKER,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    TOPIC,
    Broker,
    broker_in,
)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker_in(tmp_path) as one:
        await one.incremental((METRICS, "m1", [("interval.ms", SET, "1000")]))
        yield one


async def listed(broker: Broker, *types: int, version: int = 1) -> tuple[str, list[tuple[int, str]]]:
    module = import_module(f"kio.schema.list_config_resources.v{version}.request")
    asked = {"resource_types": types} if version else {}
    response = await broker.ask(module.ListConfigResourcesRequest(**asked))
    return response.error_code.name, [
        (getattr(resource, "resource_type", METRICS), resource.resource_name)
        for resource in response.config_resources
    ]


async def test_the_first_version_knows_client_metrics_only(broker: Broker) -> None:
    assert await listed(broker, version=0) == ("none", [(METRICS, "m1")])


async def test_no_types_is_all_types(broker: Broker) -> None:
    code, resources = await listed(broker)
    assert code == "none"
    assert set(resources) == {(TOPIC, "orders"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m1")}


async def test_by_type(broker: Broker) -> None:
    assert await listed(broker, TOPIC, TOPIC) == ("none", [(TOPIC, "orders")])
    assert await listed(broker, METRICS, BROKER) == ("none", [(METRICS, "m1"), (BROKER, "1")])
    assert await listed(broker, GROUP) == ("none", [])
    await broker.incremental((GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]))
    assert await listed(broker, GROUP) == ("none", [(GROUP, "g")])


@pytest.mark.parametrize("unknown", [0, 64, 99, -1])
async def test_a_type_that_a_later_version_may_have(broker: Broker, unknown: int) -> None:
    assert await listed(broker, TOPIC, unknown) == ("unsupported_version", [])
