from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import pytest

from anabranch.groups.group_options import GROUP_OPTIONS
from anabranch.log.config import TOPIC_OPTIONS
from anabranch.server.config import BROKER_OPTIONS
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

SHOWN = sorted(name for name, declared in TOPIC_OPTIONS.items() if not declared.internal)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker_in(tmp_path, log_cleaner_backoff_ms="15001") as one:
        yield one


async def test_everything_about_a_topic(broker: Broker) -> None:
    result = await broker.describe(TOPIC, "orders")
    assert (result.error_code.name, result.error_message) == ("none", "")
    assert (result.resource_type, result.resource_name) == (TOPIC, "orders")
    assert [entry.name for entry in result.configs] == SHOWN
    entry = next(entry for entry in result.configs if entry.name == "segment.bytes")
    assert (entry.value, entry.config_source, entry.config_type) == ("1073741824", 5, 3)
    assert not entry.read_only
    assert not entry.is_sensitive
    assert entry.documentation == TOPIC_OPTIONS["segment.bytes"].doc
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [("log.segment.bytes", "1073741824", 5)]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_every_version(broker: Broker, version: int) -> None:
    result = await broker.describe(TOPIC, "orders", "retention.ms", version=version, synonyms=False)
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.synonyms) == ("retention.ms", "604800000", ())


async def test_only_the_keys_asked_for_and_no_unknown_ones(broker: Broker) -> None:
    result = await broker.describe(TOPIC, "orders", "segment.ms", "nope", "flush.ms")
    assert [entry.name for entry in result.configs] == ["flush.ms", "segment.ms"]


async def test_no_keys_is_all_keys(broker: Broker) -> None:
    module = import_module("kio.schema.describe_configs.v4.request")
    resource = module.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="orders", configuration_keys=()
    )
    (result,) = (await broker.ask(module.DescribeConfigsRequest(resources=(resource,)))).results
    assert len(result.configs) == len(SHOWN)
    assert {entry.documentation for entry in result.configs} == {None}


async def test_everything_about_a_broker(broker: Broker) -> None:
    result = await broker.describe(BROKER, "1")
    assert {entry.name for entry in result.configs} == {
        n for n, option in BROKER_OPTIONS.items() if not option.internal
    }
    backoff = next(entry for entry in result.configs if entry.name == "log.cleaner.backoff.ms")
    assert (backoff.value, backoff.config_source, backoff.read_only) == ("15001", 4, False)
    assert [(s.value, s.source) for s in backoff.synonyms] == [("15001", 4), ("15000", 5)]


async def test_all_brokers_have_what_was_set_for_them(broker: Broker) -> None:
    assert (await broker.describe(BROKER, "")).configs == ()
    await broker.incremental((BROKER, "", [("log.retention.ms", SET, "604800001")]))
    (entry,) = (await broker.describe(BROKER, "")).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "604800001", 3)
    (entry,) = (await broker.describe(TOPIC, "orders", "retention.ms")).configs
    assert (entry.value, entry.config_source) == ("604800001", 3)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("log.retention.ms", "604800001", 3),
        ("log.retention.hours", "168", 5),
    ]


async def test_loggers(broker: Broker) -> None:
    result = await broker.describe(LOGGER, "1", "root")
    (entry,) = result.configs
    assert (entry.name, entry.config_source, entry.config_type, entry.documentation) == ("root", 6, 0, "")
    assert "anabranch.server.config" in {e.name for e in (await broker.describe(LOGGER, "1")).configs}


async def test_client_metrics(broker: Broker) -> None:
    await broker.incremental((METRICS, "m1", [("interval.ms", SET, "1000")]))
    configs = {entry.name: entry for entry in (await broker.describe(METRICS, "m1")).configs}
    assert {name: entry.value for name, entry in configs.items()} == {
        "interval.ms": "1000",
        "match": "",
        "metrics": "",
    }
    assert configs["interval.ms"].config_source == 7
    assert len((await broker.describe(METRICS, "no such")).configs) == 3


async def test_groups(broker: Broker) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    told = await broker.incremental((GROUP, "g", [(session, SET, "50000")]))
    assert told == [("none", None)]
    configs = {entry.name: entry for entry in (await broker.describe(GROUP, "g")).configs}
    assert configs.keys() == GROUP_OPTIONS.keys()
    assert {name: entry.value for name, entry in configs.items() if name.startswith("consumer.")} == {
        "consumer.assignment.interval.ms": "1000",
        heartbeat: "5000",
        session: "50000",
    }
    chains = {name: [(s.name, s.value, s.source) for s in entry.synonyms] for name, entry in configs.items()}
    assert chains[session] == [(session, "50000", 8), (f"group.{session}", "45000", 5)]
    assert chains[heartbeat] == [(f"group.{heartbeat}", "5000", 5)]
    assert (configs[session].config_source, configs[heartbeat].config_source) == (8, 5)
    assert not configs[heartbeat].read_only
    assert (await broker.value(GROUP, "nobody has heard of", session)) == ("45000", 5)


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "complaint"),
    [
        (TOPIC, "nosuch", "unknown_topic_or_partition", "nosuch"),
        (TOPIC, "a/b", "invalid_topic_exception", "a/b"),
        (TOPIC, "", "invalid_topic_exception", "empty"),
        (BROKER, "2", "invalid_request", "expected 1"),
        (BROKER, "x", "invalid_request", "must be an integer, but it is: x"),
        (BROKER, "9" * 5000, "invalid_request", "expected 1"),
        (LOGGER, "", "invalid_request", "must be an integer"),
        (LOGGER, "2", "invalid_request", "expected 1"),
        (METRICS, "", "invalid_request", "must not be empty"),
        (GROUP, "", "invalid_request", "Group name must not be empty"),
        (0, "x", "invalid_request", "Unsupported resource type"),
        (-1, "x", "invalid_request", "Unsupported resource type"),
    ],
)
async def test_an_error_is_the_resources(
    broker: Broker, resource_type: int, name: str, code: str, complaint: str
) -> None:
    module = import_module("kio.schema.describe_configs.v4.request")
    resources = tuple(
        module.DescribeConfigsResource(
            resource_type=kind, resource_name=of, configuration_keys=("segment.ms",)
        )
        for kind, of in ((resource_type, name), (TOPIC, "orders"))
    )
    bad, good = (await broker.ask(module.DescribeConfigsRequest(resources=resources))).results
    assert bad.error_code.name == code
    assert complaint in bad.error_message
    assert (bad.resource_type, bad.resource_name, bad.configs) == (resource_type, name, ())
    assert [entry.name for entry in good.configs] == ["segment.ms"]


async def test_a_resource_named_often_is_described_once(broker: Broker) -> None:
    module = import_module("kio.schema.describe_configs.v4.request")
    asked = module.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="orders", configuration_keys=None
    )
    answer = await broker.ask(module.DescribeConfigsRequest(resources=(asked,) * 3))
    assert [result.resource_name for result in answer.results] == ["orders"]
