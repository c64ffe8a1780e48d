from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.group_requests import LEAVE, prompt_broker, stable
from tests.unit.server.kafka.whole_broker import WholeBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with prompt_broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("version", range(3))
async def test_one_member_has_the_code_of_the_answer(broker: WholeBroker, version: int) -> None:
    joined = await stable(broker)
    refused = await broker.ask(LEAVE, version, group_id="g", member_id="x")
    assert refused.error_code == ErrorCode.unknown_member_id
    left = await broker.ask(LEAVE, version, group_id="g", member_id=joined.member_id)
    assert left.error_code == ErrorCode.none
    assert (await broker.services.groups.look("g")).groups["g"].is_empty


@pytest.mark.parametrize("version", range(3, 6))
async def test_several_members_have_a_code_each(broker: WholeBroker, version: int) -> None:
    joined = await stable(broker)
    members = [
        {"member_id": joined.member_id},
        {"member_id": "x"},
        {"member_id": "", "group_instance_id": "i"},
    ]
    left = await broker.ask(LEAVE, version, group_id="g", members=members)
    assert left.error_code == ErrorCode.none
    assert [member.error_code for member in left.members] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert left.members[2].group_instance_id == "i"


@pytest.mark.parametrize("version", range(6))
async def test_without_a_group(broker: WholeBroker, version: int) -> None:
    who = {"member_id": "x"} if version < 3 else {"members": [{"member_id": "x"}]}
    left = await broker.ask(LEAVE, version, group_id="", **who)
    assert left.error_code == ErrorCode.invalid_group_id
