from pathlib import Path
from typing import Any

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker


async def sizes(broker: WholeBroker, topics: list[dict[str, Any]] | None) -> dict[str, dict[int, int]]:
    (folder,) = (await broker.ask(35, 5, topics=topics)).results
    return {
        topic.name: {part.partition_index: part.partition_size for part in topic.partitions}
        for topic in folder.topics
    }


@pytest.mark.parametrize("version", range(1, 6))
async def test_at_every_version(broker: WholeBroker, version: int) -> None:
    await broker.create("a", 2)
    broker.put("a", "x")
    wanted = [{"topic": "a", "partitions": [0, 1, 9, -1]}, {"topic": "absent", "partitions": [0]}]
    answer = await broker.ask(35, version, topics=wanted)
    (folder,) = answer.results
    assert (folder.error_code, folder.log_dir) == (ErrorCode.none, str(broker.services.partitions.data))
    (topic,) = folder.topics
    parts = [(p.partition_index, p.partition_size, p.offset_lag, p.is_future_key) for p in topic.partitions]
    assert parts == [(0, broker.partition("a").size_bytes, 0, False), (1, 0, 0, False)]
    if version >= 3:
        assert answer.error_code == ErrorCode.none
    if version >= 4:
        assert 0 < folder.usable_bytes < folder.total_bytes
    if version >= 5:
        assert folder.is_cordoned is False


async def test_all_of_them_or_none(broker: WholeBroker) -> None:
    await broker.create("a", 2)
    await broker.create("b")
    assert await sizes(broker, None) == {"a": {0: 0, 1: 0}, "b": {0: 0}}
    assert await sizes(broker, []) == {}
    assert await sizes(broker, [{"topic": "a", "partitions": [1, 1]}]) == {"a": {1: 0}}


async def test_nothing_is_opened_to_be_measured(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data") as broker:
        await broker.create("a", 2)
        broker.put("a", "x")
        expected = {"a": {0: broker.partition("a").size_bytes, 1: 0}}
        assert expected["a"][0] > 0
    async with open_broker(tmp_path / "data") as broker:
        assert await sizes(broker, None) == expected
        assert not list(broker.services.partitions.open_replicas())
