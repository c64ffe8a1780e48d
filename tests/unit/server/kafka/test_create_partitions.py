from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


def grow(name: str, count: int, assignments: list[list[int]] | None = None) -> dict[str, Any]:
    chosen = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
    return {"name": name, "count": count, "assignments": chosen}


@pytest.mark.parametrize("version", range(4))
async def test_at_every_version(broker: WholeBroker, version: int) -> None:
    await broker.create("a", 2)
    broker.put("a", "kept", index=1)
    answer = await broker.ask(37, version, topics=[grow("a", 5)])
    assert [(r.name, r.error_code, r.error_message) for r in answer.results] == [("a", ErrorCode.none, None)]
    assert len(broker.image.topics_by_kafka_name["a"].partitions) == 5
    broker.put("a", "new", index=4)
    assert broker.partition("a", 1).log_end == 1


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (grow("absent", 4), ErrorCode.unknown_topic_or_partition),
        (grow("..", 4), ErrorCode.unknown_topic_or_partition),
        (grow("a", 4), ErrorCode.invalid_partitions),
        (grow("a", 3), ErrorCode.invalid_partitions),
        (grow("a", 0), ErrorCode.invalid_partitions),
        (grow("a", -1), ErrorCode.invalid_partitions),
        (grow("a", 20_000), ErrorCode.policy_violation),
        (grow("a", 4, []), ErrorCode.invalid_partitions),
        (grow("a", 5, []), ErrorCode.invalid_replica_assignment),
        (grow("a", 6, [[1]]), ErrorCode.invalid_replica_assignment),
        (grow("a", 5, [[1], [1]]), ErrorCode.invalid_replica_assignment),
        (grow("a", 5, [[9]]), ErrorCode.invalid_replica_assignment),
        (grow("a", 5, [[]]), ErrorCode.invalid_replica_assignment),
        (grow("a", 5, [[1, 1]]), ErrorCode.invalid_replica_assignment),
    ],
)
async def test_what_cannot_be(broker: WholeBroker, wrong: dict[str, Any], code: ErrorCode) -> None:
    await broker.create("a", 4)
    answer = await broker.ask(37, 3, topics=[wrong])
    assert [result.error_code for result in answer.results] == [code]
    assert answer.results[0].error_message
    assert len(broker.image.topics_by_kafka_name["a"].partitions) == 4


async def test_each_topic_stands_alone(broker: WholeBroker) -> None:
    await broker.create("a")
    await broker.create("twice")
    topics = [grow("a", 2, [[1]]), grow("absent", 2), grow("twice", 2), grow("twice", 3)]
    answer = await broker.ask(37, 3, topics=topics)
    assert {result.name: result.error_code for result in answer.results} == {
        "a": ErrorCode.none,
        "absent": ErrorCode.unknown_topic_or_partition,
        "twice": ErrorCode.invalid_request,
    }
    assert len(broker.image.topics_by_kafka_name["a"].partitions) == 2
    assert len(broker.image.topics_by_kafka_name["twice"].partitions) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"validate_only": True}, ErrorCode.none), ({"timeout": 0}, ErrorCode.request_timed_out)],
)
async def test_nothing_is_done(broker: WholeBroker, fields: dict[str, Any], code: ErrorCode) -> None:
    await broker.create("a")
    answer = await broker.ask(37, 3, topics=[grow("a", 2)], **fields)
    assert [result.error_code for result in answer.results] == [code]
    assert len(broker.image.topics_by_kafka_name["a"].partitions) == 1
