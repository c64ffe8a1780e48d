from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.group_requests import (
    DELETE,
    LEAVE,
    LIST,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    prompt_broker,
    stable,
)
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with prompt_broker(tmp_path / "data") as broker:
        yield broker


async def delete(broker: WholeBroker, *groups: str, version: int = 2) -> dict[str, int]:
    answer = await broker.ask(DELETE, version, groups_names=groups)
    return {result.group_id: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", range(3))
async def test_only_what_is_empty_goes(broker: WholeBroker, version: int) -> None:
    joined = await stable(broker)
    codes = await delete(broker, "g", "x", version=version)
    assert codes == {"g": ErrorCode.non_empty_group, "x": ErrorCode.group_id_not_found}
    await broker.ask(LEAVE, 2, group_id="g", member_id=joined.member_id)
    assert await delete(broker, "g", "g", version=version) == {"g": ErrorCode.none}
    assert (await broker.ask(LIST, 5)).groups == ()
    assert await delete(broker, "g", version=version) == {"g": ErrorCode.group_id_not_found}


async def test_what_it_committed_goes_with_it_for_good(tmp_path: Path) -> None:
    offsets = [{"partition_index": 0, "committed_offset": 5}]
    async with prompt_broker(tmp_path / "data") as broker:
        await broker.create("t")
        await broker.ask(
            OFFSET_COMMIT,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[{"name": "t", "partitions": offsets}],
        )
        assert await delete(broker, "g") == {"g": ErrorCode.none}
    async with prompt_broker(tmp_path / "data") as broker:
        assert (await broker.ask(LIST, 5)).groups == ()
        answer = await broker.ask(
            OFFSET_FETCH, 7, group_id="g", topics=[{"name": "t", "partition_indexes": [0]}]
        )
        assert answer.topics[0].partitions[0].committed_offset == -1


async def test_a_broker_that_never_had_groups(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data") as broker:
        assert await delete(broker, "g") == {"g": ErrorCode.group_id_not_found}
