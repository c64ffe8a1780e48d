from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.group_requests import join_twice, prompt_broker, sync
from tests.unit.server.kafka.whole_broker import WholeBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with prompt_broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("version", range(6))
async def test_an_assignment_at_every_version(broker: WholeBroker, version: int) -> None:
    joined = await join_twice(broker)
    synced = await sync(broker, joined, version)
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"all")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    again = await sync(broker, joined, version, assignments=[])
    assert again.assignment == b"all"


@pytest.mark.parametrize("version", range(6))
async def test_a_refusal_at_every_version(broker: WholeBroker, version: int) -> None:
    joined = await join_twice(broker)
    refused = await sync(broker, joined, version, generation_id=9)
    assert (refused.error_code, refused.assignment) == (ErrorCode.illegal_generation, b"")


async def test_from_version_5_the_protocol_must_be_named(broker: WholeBroker) -> None:
    joined = await join_twice(broker)
    assert (
        await sync(broker, joined, protocol_name=None)
    ).error_code == ErrorCode.inconsistent_group_protocol


async def test_assignments_too_large_for_the_log_are_refused(broker: WholeBroker) -> None:
    joined = await join_twice(broker)
    huge = [{"member_id": joined.member_id, "assignment": bytes(4 << 20)}]
    refused = await sync(broker, joined, assignments=huge)
    assert refused.error_code == ErrorCode.unknown_server_error
    assert (await sync(broker, joined)).assignment == b"all", "and the group goes on"
