from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker


async def delete(
    broker: WholeBroker, *parts: tuple[int, int], topic: str = "a", version: int = 2, **fields: Any
) -> list[tuple[int, int, int]]:
    """(partition, code, low watermark) of each."""
    wanted = [{"partition_index": index, "offset": offset} for index, offset in parts]
    answer = await broker.ask(21, version, topics=[{"name": topic, "partitions": wanted}], **fields)
    (result,) = answer.topics
    assert result.name == topic
    return [(part.partition_index, part.error_code, part.low_watermark) for part in result.partitions]


@pytest.fixture
async def filled(broker: WholeBroker) -> WholeBroker:
    """Six records in partition 0 of `a`, none in partition 1."""
    await broker.create("a", 2)
    for _ in range(6):
        broker.put("a", "x")
    return broker


@pytest.mark.parametrize("version", range(3))
async def test_the_low_watermark_moves_up_and_never_back(filled: WholeBroker, version: int) -> None:
    assert await delete(filled, (0, 2), version=version) == [(0, ErrorCode.none, 2)]
    assert await delete(filled, (0, 1), version=version) == [(0, ErrorCode.none, 2)]
    assert await delete(filled, (0, 6), version=version) == [(0, ErrorCode.none, 6)]
    assert filled.partition("a").log_start == 6


async def test_minus_one_is_everything(filled: WholeBroker) -> None:
    assert await delete(filled, (0, -1), (1, -1)) == [(0, ErrorCode.none, 6), (1, ErrorCode.none, 0)]


@pytest.mark.parametrize("offset", [7, 1 << 40, -2])
async def test_out_of_range(filled: WholeBroker, offset: int) -> None:
    assert await delete(filled, (0, offset)) == [(0, ErrorCode.offset_out_of_range, -1)]
    assert filled.partition("a").log_start == 0


@pytest.mark.parametrize(("topic", "index"), [("a", 2), ("a", -1), ("absent", 0), ("..", 0)])
async def test_what_is_not_there(filled: WholeBroker, topic: str, index: int) -> None:
    assert await delete(filled, (index, 0), topic=topic) == [
        (index, ErrorCode.unknown_topic_or_partition, -1)
    ]


@pytest.mark.parametrize(
    ("policy", "code"),
    [("delete", 0), ("compact,delete", 0), ("compact", ErrorCode.policy_violation)],
)
async def test_the_topics_policy_decides(broker: WholeBroker, policy: str, code: int) -> None:
    await broker.create("compacted", cleanup_policy=policy)
    for offset in (0, -1):
        assert await delete(broker, (0, offset), topic="compacted") == [(0, code, -1 if code else 0)]


async def test_internal_topics_are_left_alone(broker: WholeBroker) -> None:
    await broker.create("__consumer_offsets")
    result = await delete(broker, (0, 0), topic="__consumer_offsets")
    assert result == [(0, ErrorCode.invalid_topic_exception, -1)]


async def test_of_a_partition_that_comes_twice_the_last_counts(filled: WholeBroker) -> None:
    assert await delete(filled, (0, 3), (0, 4)) == [(0, ErrorCode.none, 4)]


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_there_is_nobody_to_wait_for(filled: WholeBroker, timeout_ms: int) -> None:
    assert await delete(filled, (0, 5), timeout=timeout_ms) == [(0, ErrorCode.none, 5)]
