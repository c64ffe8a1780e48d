from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.group_requests import join, join_twice, prompt_broker, stable, sync
from tests.unit.server.kafka.whole_broker import WholeBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with prompt_broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("version", range(10))
async def test_a_new_member_at_every_version(broker: WholeBroker, version: int) -> None:
    joined = await (join(broker, version) if version < 4 else join_twice(broker, version))
    assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("test-")
    assert joined.protocol_name == "range"
    assert [member.member_id for member in joined.members] == [joined.member_id]
    group = (await broker.services.groups.look("g")).groups["g"]
    member = group.members[joined.member_id]  # type: ignore[attr-defined]
    assert member.client_host == "/127.0.0.1"
    assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)


@pytest.mark.parametrize("version", range(10))
async def test_a_refusal_at_every_version(broker: WholeBroker, version: int) -> None:
    refused = await join(broker, version, "nobody")
    assert (refused.error_code, refused.member_id) == (ErrorCode.unknown_member_id, "nobody")
    assert (refused.generation_id, refused.leader) == (-1, "")
    assert refused.protocol_name == (None if version >= 7 else "")
    assert refused.members == ()


async def test_an_id_comes_first(broker: WholeBroker) -> None:
    promised = await join(broker, 4)
    assert promised.error_code == ErrorCode.member_id_required
    assert promised.member_id.startswith("test-")


async def test_a_static_member_that_comes_back_does_not_assign(broker: WholeBroker) -> None:
    first = await join(broker, 9, group_instance_id="i")
    assert first.error_code == ErrorCode.none
    await sync(broker, first, group_instance_id="i")
    back = await join(broker, 9, group_instance_id="i")
    assert (back.generation_id, back.skip_assignment) == (1, True)


async def test_the_group_outlives_the_broker(tmp_path: Path) -> None:
    async with prompt_broker(tmp_path / "data") as broker:
        joined = await stable(broker)
    async with prompt_broker(tmp_path / "data") as broker:
        again = await join(broker, 9, joined.member_id)
        assert again.generation_id == joined.generation_id + 1
