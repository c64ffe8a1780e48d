from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import subscription
from tests.unit.server.kafka.group_requests import DESCRIBE, prompt_broker, stable
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with prompt_broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("version", range(7))
async def test_a_group_and_its_members(broker: WholeBroker, version: int) -> None:
    joined = await stable(broker)
    (group,) = (await broker.ask(DESCRIBE, version, groups=["g"])).groups
    assert (group.error_code, group.group_state) == (ErrorCode.none, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (
        joined.member_id,
        "test",
        "/127.0.0.1",
    )
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"all")


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_is_not_there(broker: WholeBroker, version: int) -> None:
    (group,) = (await broker.ask(DESCRIBE, version, groups=["x"])).groups
    assert (group.group_id, group.group_state, group.members) == ("x", "Dead", ())
    assert group.error_code == (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


@pytest.mark.parametrize(("asked", "told"), [(True, 3400), (False, -(1 << 31))])
async def test_what_may_be_done_is_told_if_asked(broker: WholeBroker, asked: bool, told: int) -> None:
    await stable(broker)
    answer = await broker.ask(DESCRIBE, 6, groups=["g"], include_authorized_operations=asked)
    assert answer.groups[0].authorized_operations == told


async def test_a_group_that_is_named_often_is_told_once(broker: WholeBroker) -> None:
    await stable(broker)
    answer = await broker.ask(DESCRIBE, 6, groups=["g", "x", "g", "x", "g"])
    assert [group.group_id for group in answer.groups] == ["g", "x"]


async def test_a_broker_that_never_had_groups(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data") as broker:
        (group,) = (await broker.ask(DESCRIBE, 6, groups=["g"])).groups
        assert group.error_code == ErrorCode.group_id_not_found
