"""OffsetDelete, as Kafka 4.3.1 answers it."""

import time
from typing import Any

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker

COMMIT, FETCH, DELETE = 8, 9, 47


async def prepare(broker: WholeBroker) -> None:
    await broker.create("orders", 3)
    parts = [{"partition_index": index, "committed_offset": index} for index in range(3)]
    await broker.ask(COMMIT, 8, group_id="g", topics=[{"name": "orders", "partitions": parts}])


async def delete(
    broker: WholeBroker, group_id: str, **topics: list[int]
) -> tuple[int, dict[str, list[tuple[int, int]]]]:
    wanted: list[dict[str, Any]] = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics.items()
    ]
    answer = await broker.ask(DELETE, 0, group_id=group_id, topics=wanted)
    return answer.error_code, {
        topic.name: [(part.partition_index, part.error_code) for part in topic.partitions]
        for topic in answer.topics
    }


async def left(broker: WholeBroker) -> list[int]:
    answer = await broker.ask(FETCH, 8, groups=[{"group_id": "g", "topics": None}])
    return [part.partition_index for topic in answer.groups[0].topics for part in topic.partitions]


async def test_what_is_deleted_is_gone(broker: WholeBroker) -> None:
    await prepare(broker)
    assert await delete(broker, "g", orders=[0, 2]) == (0, {"orders": [(0, 0), (2, 0)]})
    assert await left(broker) == [1]
    assert await delete(broker, "g", orders=[0]) == (0, {"orders": [(0, 0)]}), "again, and it is no error"
    assert await delete(broker, "g", orders=[1, 1]) == (0, {"orders": [(1, 0), (1, 0)]})
    assert await left(broker) == []


async def test_what_is_not_there(broker: WholeBroker) -> None:
    await prepare(broker)
    answer = await delete(broker, "g", nosuch=[0, 1], orders=[9, 0])
    assert answer == (0, {"nosuch": [(0, 3), (1, 3)], "orders": [(9, 3), (0, 0)]})
    assert await left(broker) == [1, 2]


async def test_groups_that_cannot_forget(broker: WholeBroker) -> None:
    await prepare(broker)
    assert await delete(broker, "nobody", orders=[0]) == (ErrorCode.group_id_not_found, {})
    assert await delete(broker, "nobody", nosuch=[0]) == (ErrorCode.group_id_not_found, {})
    assert await delete(broker, "nobody") == (ErrorCode.group_id_not_found, {})
    assert await delete(broker, "", orders=[0]) == (ErrorCode.invalid_group_id, {})
    assert await delete(broker, "g") == (0, {})


async def test_what_is_not_there_and_named_twice_is_answered_twice(broker: WholeBroker) -> None:
    await prepare(broker)
    asked = [("nosuch", 0), ("nosuch", 1), ("orders", 9), ("orders", 0), ("orders", 8)]
    topics = [{"name": name, "partitions": [{"partition_index": index}]} for name, index in asked]
    answer = await broker.ask(DELETE, 0, group_id="g", topics=topics)
    assert [
        (topic.name, [(part.partition_index, part.error_code) for part in topic.partitions])
        for topic in answer.topics
    ] == [("nosuch", [(0, 3), (1, 3)]), ("orders", [(9, 3), (8, 3), (0, 0)])]


async def test_many_partitions_that_are_not_there_hold_nobody_up(broker: WholeBroker) -> None:
    await prepare(broker)

    async def took(indexes: list[int]) -> float:
        began = time.process_time()
        code, topics = await delete(broker, "g", orders=indexes)
        assert (code, len(topics["orders"])) == (0, len(indexes))
        return time.process_time() - began

    there, missing = [0] * 20_000, [-1] * 20_000
    assert await took([*there, *missing]) < 4 * await took([*there, *there]), "and not its square"
