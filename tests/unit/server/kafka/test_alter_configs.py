import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.server.kafka.config_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    Broker,
    broker_in,
)

DONE = ("none", None)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker_in(tmp_path) as one:
        yield one


@pytest.mark.parametrize("version", [0, 1])
async def test_a_topics_options_one_by_one(broker: Broker, version: int) -> None:
    changes = [("retention.ms", SET, "1000"), ("cleanup.policy", APPEND, "compact")]
    assert await broker.incremental((TOPIC, "orders", changes), version=version) == [DONE]
    assert await broker.value(TOPIC, "orders", "retention.ms") == ("1000", 1)
    assert await broker.value(TOPIC, "orders", "cleanup.policy") == ("delete,compact", 1)
    changes = [("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete")]
    assert await broker.incremental((TOPIC, "orders", changes), version=version) == [DONE]
    assert await broker.value(TOPIC, "orders", "retention.ms") == ("604800000", 5)
    assert await broker.value(TOPIC, "orders", "cleanup.policy") == ("compact", 1)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_all_of_a_topics_options_at_once(broker: Broker, version: int) -> None:
    await broker.incremental((TOPIC, "orders", [("segment.ms", SET, "1000")]))
    assert await broker.alter((TOPIC, "orders", [("retention.ms", "5")]), version=version) == [DONE]
    assert await broker.value(TOPIC, "orders", "retention.ms") == ("5", 1)
    assert await broker.value(TOPIC, "orders", "segment.ms") == ("604800000", 5)
    assert await broker.alter((TOPIC, "orders", []), version=version) == [DONE]
    assert await broker.value(TOPIC, "orders", "retention.ms") == ("604800000", 5)


async def test_validate_only_does_nothing(broker: Broker) -> None:
    before = broker.cluster.image
    everything = (
        (TOPIC, "orders", "retention.ms"),
        (BROKER, "1", "log.retention.ms"),
        (METRICS, "m", "interval.ms"),
    )
    incremental = [(kind, name, [(key, SET, "1000")]) for kind, name, key in everything]
    assert await broker.incremental(*incremental, validate_only=True) == [DONE] * 3
    legacy = [(kind, name, [(key, "1000")]) for kind, name, key in everything]
    assert await broker.alter(*legacy, validate_only=True) == [DONE] * 3
    level = logging.root.level
    assert await broker.incremental((LOGGER, "1", [("root", SET, "FATAL")]), validate_only=True) == [DONE]
    assert logging.root.level == level
    assert broker.cluster.image is before


async def test_changes_of_a_resource_are_made_together_or_not_at_all(broker: Broker) -> None:
    outcomes = await broker.incremental(
        (TOPIC, "orders", [("retention.ms", SET, "1000"), ("segment.ms", SET, "0")]),
        (METRICS, "m", [("interval.ms", SET, "1000")]),
    )
    assert [code for code, _ in outcomes] == ["invalid_config", "none"]
    assert await broker.value(TOPIC, "orders", "retention.ms") == ("604800000", 5)
    assert await broker.value(METRICS, "m", "interval.ms") == ("1000", 7)


async def test_changes_at_the_same_time_do_not_lose_each_other(broker: Broker) -> None:
    keys = ["retention.ms", "segment.ms", "flush.ms", "delete.retention.ms"]
    await asyncio.gather(*(broker.incremental((TOPIC, "orders", [(key, SET, "1234")])) for key in keys))
    for key in keys:
        assert await broker.value(TOPIC, "orders", key) == ("1234", 1)


async def test_a_brokers_options_take_effect_and_survive(broker: Broker, tmp_path: Path) -> None:
    assert await broker.incremental((BROKER, "", [("max.connections", SET, "7")])) == [DONE]
    assert broker.config.current.sockets.max_connections == 7
    assert await broker.incremental((BROKER, "1", [("max.connections", SET, "8")])) == [DONE]
    assert broker.config.current.sockets.max_connections == 8
    assert await broker.incremental((BROKER, "1", [("max.connections", DELETE, None)])) == [DONE]
    assert broker.config.current.sockets.max_connections == 7
    assert await broker.alter((BROKER, "", [("message.max.bytes", "5")])) == [DONE]
    assert broker.config.current.log.max_message_bytes == 5
    assert broker.config.current.sockets.max_connections == 2147483647


async def test_what_was_set_is_there_after_a_restart(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker:
        await broker.incremental(
            (BROKER, "1", [("max.connections", SET, "8")]),
            (TOPIC, "orders", [("retention.ms", SET, "9")]),
            (METRICS, "m", [("interval.ms", SET, "1000")]),
        )
    async with broker_in(tmp_path) as broker:
        assert broker.config.current.sockets.max_connections == 8
        assert await broker.value(TOPIC, "orders", "retention.ms") == ("9", 1)
        assert await broker.value(METRICS, "m", "interval.ms") == ("1000", 7)


async def test_a_brokers_name_that_is_no_option_is_kept_as_in_kafka(broker: Broker) -> None:
    name = "sasl.kerberos.min.time.before.relogin"  # librdkafka's own tests set this one
    assert await broker.incremental((BROKER, "1", [(name, SET, "58000")])) == [DONE]
    (entry,) = (await broker.describe(BROKER, "1", name)).configs
    assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_source) == (None, True, True, 2)


async def test_loggers(broker: Broker) -> None:
    name = "anabranch.test.alter"
    logger = logging.getLogger(name)
    try:
        assert await broker.incremental((LOGGER, "1", [(name, SET, "DEBUG")])) == [DONE]
        assert logger.level == logging.DEBUG
        assert await broker.value(LOGGER, "1", name) == ("DEBUG", 6)
        assert await broker.incremental((LOGGER, "1", [(name, DELETE, None)])) == [DONE]
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


# As Apache Kafka 4.3.1 answers, word for word but where ours says more.
@pytest.mark.parametrize(
    ("resource_type", "name", "changes", "code", "complaint"),
    [
        (TOPIC, "orders", [("nope", SET, "1")], "invalid_config", "Unknown topic config name: nope"),
        (
            TOPIC,
            "orders",
            [("nope", APPEND, "1")],
            "invalid_config",
            "Can't APPEND to key nope because its type is not LIST.",
        ),
        (TOPIC, "orders", [("segment.bytes", SET, "1")], "invalid_config", "Value must be at least 1048576"),
        (
            TOPIC,
            "orders",
            [("retention.ms", SET, None)],
            "invalid_request",
            "Null value not supported for : retention.ms",
        ),
        (
            TOPIC,
            "orders",
            [("a", SET, "1"), ("a", DELETE, None)],
            "invalid_request",
            "Error due to duplicate config keys",
        ),
        (TOPIC, "orders", [("retention.ms", 7, "1")], "invalid_request", "Unknown operations type 7"),
        (
            TOPIC,
            "orders",
            [("cleanup.policy", APPEND, "")],
            "invalid_config",
            "Configuration 'cleanup.policy' values must not be empty.",
        ),
        (
            TOPIC,
            "orders",
            [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")],
            "invalid_config",
            "conflict topic config setting",
        ),
        (
            TOPIC,
            "nosuch",
            [("retention.ms", SET, "1")],
            "unknown_topic_or_partition",
            "The topic 'nosuch' does not exist.",
        ),
        (TOPIC, "nosuch", [("retention.ms", SET, "x")], "invalid_config", "Not a number of type LONG"),
        (TOPIC, "nosuch", [], "unknown_topic_or_partition", "The topic 'nosuch' does not exist."),
        (
            TOPIC,
            "",
            [("retention.ms", SET, "1")],
            "invalid_request",
            "Default topic resources are not allowed.",
        ),
        (TOPIC, "a/b", [("retention.ms", SET, "1")], "invalid_topic_exception", "a/b"),
        (
            BROKER,
            "1",
            [("num.partitions", SET, "3")],
            "invalid_request",
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            BROKER,
            "",
            [("num.partitions", SET, "3")],
            "invalid_request",
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            BROKER,
            "1",
            [("log.retention.ms", SET, "abc")],
            "invalid_request",
            "Invalid value abc for configuration log.retention.ms: Not a number",
        ),
        (BROKER, "1", [("log.retention.ms", APPEND, "1")], "invalid_config", "because its type is not LIST."),
        (
            BROKER,
            "2",
            [("log.retention.ms", SET, "1")],
            "invalid_request",
            "Unexpected broker id, expected 1, but received 2",
        ),
        (
            BROKER,
            "-1",
            [("log.retention.ms", SET, "1")],
            "invalid_request",
            "Unexpected broker id, expected 1, but received -1",
        ),
        (
            BROKER,
            "x",
            [("log.retention.ms", SET, "1")],
            "invalid_request",
            "Node id must be an integer, but it is: x",
        ),
        (METRICS, "", [("interval.ms", SET, "1000")], "invalid_request", "Subscription name can't be empty"),
        (
            METRICS,
            "m",
            [("interval.ms", SET, "10")],
            "invalid_request",
            "Invalid value 10 for interval.ms, interval must be between",
        ),
        (METRICS, "m", [("interval.ms", SET, "x")], "invalid_config", "Not a number of type INT"),
        (METRICS, "m", [("foo", SET, "x")], "invalid_request", "Unknown client metrics configuration: foo"),
        (
            METRICS,
            "m",
            [("match", SET, "client_id=a[")],
            "invalid_config",
            "Illegal client matching pattern: client_id=a[",
        ),
        (LOGGER, "1", [("root", SET, "FOO")], "invalid_config", "not a supported log level"),
        (
            LOGGER,
            "1",
            [("root", DELETE, None)],
            "invalid_request",
            "Removing the log level of the root logger is not allowed",
        ),
        (LOGGER, "1", [("no.such", SET, "INFO")], "invalid_config", "Logger no.such does not exist!"),
        (LOGGER, "2", [("root", SET, "INFO")], "invalid_request", "but received 2"),
        (GROUP, "", [("x", SET, "1")], "invalid_request", "Default group resources are not allowed."),
        (GROUP, "g", [("x", SET, "1")], "invalid_config", "Unknown group config name: x"),
        (
            GROUP,
            "g",
            [("consumer.session.timeout.ms", SET, "44999")],
            "invalid_config",
            "must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            GROUP,
            "g",
            [("consumer.session.timeout.ms", SET, "60001")],
            "invalid_config",
            "must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            GROUP,
            "g",
            [("consumer.session.timeout.ms", SET, "0")],
            "invalid_config",
            "Value must be at least 1",
        ),
        (
            GROUP,
            "g",
            [("consumer.heartbeat.interval.ms", SET, "x")],
            "invalid_config",
            "Not a number of type INT",
        ),
        (
            GROUP,
            "g",
            [("consumer.heartbeat.interval.ms", SET, "15001")],
            "invalid_config",
            "must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            GROUP,
            "g",
            [("consumer.assignment.interval.ms", SET, "-1")],
            "invalid_config",
            "Value must be at least 0",
        ),
        (
            GROUP,
            "g",
            [("streams.session.timeout.ms", SET, "50000")],
            "invalid_config",
            "Unknown group config name: streams.session.timeout.ms",
        ),
        (0, "x", [("a", SET, "b")], "invalid_request", "Unknown resource type 0"),
    ],
)
async def test_refusals(
    broker: Broker,
    resource_type: int,
    name: str,
    changes: list[tuple[str, int, str]],
    code: str,
    complaint: str,
) -> None:
    ((got, message),) = await broker.incremental((resource_type, name, changes))
    assert got == code
    assert complaint in (message or "")
    legacy = [(key, value) for key, op, value in changes if op == SET]
    if len(legacy) == len(changes) and resource_type != LOGGER:
        ((got, message),) = await broker.alter((resource_type, name, legacy))
        assert got == code
        assert complaint in (message or "")


async def test_loggers_are_not_altered_at_once(broker: Broker) -> None:
    assert await broker.alter((LOGGER, "1", [("root", "INFO")])) == [
        ("invalid_request", "Unknown resource type 8")
    ]


async def test_a_resource_that_is_named_twice_is_refused_twice(broker: Broker) -> None:
    twice = ("invalid_request", "Each resource must appear at most once.")
    outcomes = await broker.incremental(
        (TOPIC, "orders", [("retention.ms", SET, "5")]),
        (TOPIC, "orders", [("segment.ms", SET, "5")]),
        (METRICS, "orders", [("interval.ms", SET, "500")]),
    )
    assert outcomes == [twice, twice, DONE]
    assert await broker.alter((TOPIC, "orders", []), (TOPIC, "orders", [])) == [twice, twice]


async def test_a_subscription_without_options_is_gone(broker: Broker) -> None:
    await broker.incremental((METRICS, "m", [("interval.ms", SET, "1000")]))
    assert set(broker.cluster.image.client_metrics) == {"m"}
    await broker.incremental((METRICS, "m", [("interval.ms", DELETE, None)]))
    assert not broker.cluster.image.client_metrics


@pytest.mark.parametrize("name", ["g", "with / and .", "..", "ä%2E"])
async def test_a_group_is_told_and_told_no_more(broker: Broker, name: str) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert await broker.incremental((GROUP, name, [(session, SET, "60000")]), validate_only=True) == [DONE]
    assert not broker.cluster.image.group_configs
    assert await broker.incremental((GROUP, name, [(session, SET, "60000")])) == [DONE]
    assert broker.cluster.image.group_configs == {name: {session: "60000"}}
    assert await broker.alter((GROUP, name, [(heartbeat, "6000")])) == [DONE]
    assert broker.cluster.image.group_configs == {name: {heartbeat: "6000"}}
    await broker.incremental((GROUP, name, [(heartbeat, DELETE, None)]))
    assert not broker.cluster.image.group_configs
