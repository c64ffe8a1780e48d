from dataclasses import astuple
from typing import Any

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


async def ask(broker: WholeBroker, topic: str, *indexes: int) -> list[Any]:
    answer = await broker.ask(61, 0, topics=[{"name": topic, "partition_indexes": indexes}])
    assert [result.name for result in answer.topics] == [topic]
    return list(answer.topics[0].partitions)


def shown(part: Any) -> list[tuple[int, ...]]:
    """Id, epoch, last sequence, last timestamp, coordinator's epoch, where its transaction began."""
    return [astuple(producer) for producer in part.active_producers]


async def test_what_producers_wrote_last(broker: WholeBroker) -> None:
    await broker.create("a", 2)
    broker.put("a", "x", "y", producer_id=5, producer_epoch=1, base_sequence=0, timestamp=1000)
    broker.put("a", "z", producer_id=5, producer_epoch=1, base_sequence=2, timestamp=3000)
    broker.put("a", "not idempotent")
    broker.put("a", "t", producer_id=6, producer_epoch=0, base_sequence=0, timestamp=2000, transactional=True)
    first, second = await ask(broker, "a", 0, 1)
    assert (first.error_code, first.error_message) == (ErrorCode.none, None)
    assert shown(first) == [(5, 1, 2, 3000, -1, -1), (6, 0, 0, 2000, -1, 4)]
    assert shown(second) == []


async def test_a_partition_that_is_named_often_is_told_once(broker: WholeBroker) -> None:
    await broker.create("a", 2)
    assert [part.partition_index for part in await ask(broker, "a", 1, 0, 1, 0)] == [1, 0]
    twice = [{"name": "a", "partition_indexes": indexes} for indexes in ([0], [1, 0])]
    (topic,) = (await broker.ask(61, 0, topics=twice)).topics
    assert [part.partition_index for part in topic.partitions] == [0, 1]


async def test_what_is_not_there(broker: WholeBroker) -> None:
    await broker.create("a")
    (missing,) = await ask(broker, "a", 1)
    assert (missing.error_code, missing.active_producers) == (ErrorCode.unknown_topic_or_partition, ())
    for topic, code in (
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("..", ErrorCode.invalid_topic_exception),
    ):
        (refused,) = await ask(broker, topic, 0)
        assert refused.error_code == code
        assert refused.error_message
