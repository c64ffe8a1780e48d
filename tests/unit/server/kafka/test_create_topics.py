from pathlib import Path
from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.support.tenancy import make_namespace
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [{"partition_index": i, "broker_ids": ids} for i, ids in assignments or ()],
        "configs": [{"name": key, "value": value} for key, value in configs or ()],
    }


async def create(broker: WholeBroker, *topics: dict[str, Any], version: int = 7, **fields: Any) -> Any:
    return (await broker.ask(19, version, topics=topics, **fields)).topics


@pytest.mark.parametrize("version", range(2, 8))
async def test_at_every_version(broker: WholeBroker, version: int) -> None:
    (made,) = await create(broker, topic("a", 3, 1, configs=[("retention.ms", "5")]), version=version)
    assert (made.name, made.error_code, made.error_message) == ("a", ErrorCode.none, None)
    image = broker.image.topics_by_kafka_name["a"]
    assert (len(image.partitions), image.config) == (3, {"retention.ms": "5"})
    broker.put("a", "x", index=2)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor, made.topic_config_error_code) == (3, 1, 0)
        configs = {config.name: config for config in made.configs}
        assert len(configs) == 33  # as many as Kafka 4.3 has
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)
        assert not configs["retention.ms"].read_only
    if version >= 7:
        assert made.topic_id == image.id


async def test_defaults(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data", num_partitions="6") as broker:
        (made,) = await create(broker, topic("a", -1, -1))
        assert (made.num_partitions, made.replication_factor) == (6, 1)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (topic("there"), ErrorCode.topic_already_exists),
        (topic(".."), ErrorCode.invalid_topic_exception),
        (topic("a/b"), ErrorCode.invalid_topic_exception),
        (topic(""), ErrorCode.invalid_topic_exception),
        (topic("x" * 250), ErrorCode.invalid_topic_exception),
        (topic("the.name"), ErrorCode.invalid_topic_exception),  # collides
        (topic("__cluster_metadata"), ErrorCode.invalid_request),
        (topic("a", 0), ErrorCode.invalid_partitions),
        (topic("a", -2), ErrorCode.invalid_partitions),
        (topic("a", 1, 0), ErrorCode.invalid_replication_factor),
        (topic("a", 1, -2), ErrorCode.invalid_replication_factor),
        (topic("a", 1, 3), ErrorCode.invalid_replication_factor),
        (topic("a", 10_001), ErrorCode.policy_violation),
        (topic("a", 1, -1, [(0, [1])]), ErrorCode.invalid_request),
        (topic("a", -1, 1, [(0, [1])]), ErrorCode.invalid_request),
        (topic("a", -1, -1, [(1, [1])]), ErrorCode.invalid_replica_assignment),
        (topic("a", -1, -1, [(0, [1]), (2, [1])]), ErrorCode.invalid_replica_assignment),
        (topic("a", -1, -1, [(0, [1]), (0, [1])]), ErrorCode.invalid_replica_assignment),
        (topic("a", -1, -1, [(0, [9])]), ErrorCode.invalid_replica_assignment),
        (topic("a", -1, -1, [(0, [-1])]), ErrorCode.invalid_replica_assignment),
        (topic("a", -1, -1, [(0, [])]), ErrorCode.invalid_replica_assignment),
        (topic("a", -1, -1, [(0, [1, 1])]), ErrorCode.invalid_replica_assignment),
        (topic("a", configs=[("nope", "1")]), ErrorCode.invalid_config),
        (topic("a", configs=[("retention.ms", "abc")]), ErrorCode.invalid_config),
        (topic("a", configs=[("retention.ms", None)]), ErrorCode.invalid_config),
        (topic("a", configs=[("cleanup.policy", "zzz")]), ErrorCode.invalid_config),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else value["name"][:12],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_what_cannot_be(
    broker: WholeBroker, wrong: dict[str, Any], code: ErrorCode, validate_only: bool
) -> None:
    await broker.create("there")
    await broker.create("the_name")
    (refused,) = await create(broker, wrong, validate_only=validate_only)
    assert refused.error_code == code
    assert refused.error_message
    assert (refused.topic_id, refused.num_partitions, refused.replication_factor) == (None, -1, -1)
    assert refused.configs == ()
    assert set(broker.image.topics_by_kafka_name) == {"there", "the_name"}


async def test_each_topic_stands_alone(broker: WholeBroker) -> None:
    made = await create(broker, topic("a"), topic(".."), topic("b", 0), topic("c"))
    codes = [ErrorCode.none, ErrorCode.invalid_topic_exception, ErrorCode.invalid_partitions, ErrorCode.none]
    assert [result.error_code for result in made] == codes
    assert set(broker.image.topics_by_kafka_name) == {"a", "c"}


async def test_a_name_that_comes_twice_is_refused_once(broker: WholeBroker) -> None:
    made = await create(broker, topic("a"), topic("twice", 1), topic("twice", 2))
    assert {result.name: result.error_code for result in made} == {
        "a": ErrorCode.none,
        "twice": ErrorCode.invalid_request,
    }
    assert len(made) == 2
    assert set(broker.image.topics_by_kafka_name) == {"a"}


async def test_a_manual_assignment(broker: WholeBroker) -> None:
    (made,) = await create(broker, topic("a", -1, -1, [(1, [1]), (0, [1])]))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (ErrorCode.none, 2, 1)


async def test_too_many_partitions_in_one_request_refuse_all_of_it(broker: WholeBroker) -> None:
    made = await create(broker, *(topic(f"t{i}", 5000) for i in range(3)))
    assert {result.error_code for result in made} == {ErrorCode.policy_violation}
    assert not broker.image.topics


async def test_an_option_that_comes_twice_has_its_last_value(broker: WholeBroker) -> None:
    await create(broker, topic("a", configs=[("retention.ms", "5"), ("retention.ms", "6")]))
    assert broker.image.topics_by_kafka_name["a"].config == {"retention.ms": "6"}


async def test_validation_makes_nothing(broker: WholeBroker) -> None:
    (made,) = await create(broker, topic("a", 7), validate_only=True)
    assert (made.error_code, made.num_partitions, len(made.configs)) == (ErrorCode.none, 7, 33)
    assert not broker.image.topics


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_no_time_at_all(broker: WholeBroker, timeout_ms: int) -> None:
    (result,) = await create(broker, topic("a"), timeout=timeout_ms)
    assert result.error_code == ErrorCode.request_timed_out
    assert not broker.image.topics


async def test_nothing_asked_for(broker: WholeBroker) -> None:
    assert await create(broker) == ()


async def test_another_namespace(broker: WholeBroker) -> None:
    name = "persistent://tenant/namespace/a"
    (refused,) = await create(broker, topic(name))
    assert refused.error_code == ErrorCode.invalid_topic_exception
    assert "there is no namespace 'tenant/namespace'" in refused.error_message
    await make_namespace(broker.services.cluster, "tenant/namespace")
    (made,) = await create(broker, topic(name))
    assert (made.name, made.error_code) == (name, ErrorCode.none)
    assert name in broker.image.topics_by_kafka_name
