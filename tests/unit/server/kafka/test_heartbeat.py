import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.group_requests import (
    heartbeat_answer,
    join_twice,
    prompt_broker,
    send_heartbeat,
    stable,
)
from tests.unit.server.kafka.whole_broker import WholeBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with prompt_broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("version", range(5))
async def test_whoever_is_not_known_is_told_at_once(broker: WholeBroker, version: int) -> None:
    held = send_heartbeat(broker, version, member_id="x", generation_id=1)
    assert (await heartbeat_answer(held, version)).error_code == ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", range(5))
async def test_without_news_it_is_held_until_the_client_asks_something_else(
    broker: WholeBroker, version: int
) -> None:
    joined = await stable(broker)
    held = send_heartbeat(broker, version, member_id=joined.member_id, generation_id=1)
    await asyncio.sleep(0.01)
    assert not held.answered.done()
    held.expire()
    assert (await heartbeat_answer(held, version)).error_code == ErrorCode.none


async def test_what_comes_along_with_the_next_request_counts(broker: WholeBroker) -> None:
    joined = await stable(broker)
    for member_id, code in ((joined.member_id, ErrorCode.none), ("x", ErrorCode.unknown_member_id)):
        held = send_heartbeat(broker, 4, member_id=member_id, generation_id=1)
        held.expire()
        assert (await heartbeat_answer(held, 4)).error_code == code


async def test_a_rebalance_is_told_when_it_begins(broker: WholeBroker) -> None:
    joined = await stable(broker)
    held = send_heartbeat(broker, 4, member_id=joined.member_id, generation_id=1)
    await asyncio.sleep(0)
    other = asyncio.ensure_future(join_twice(broker))
    assert (await heartbeat_answer(held, 4)).error_code == ErrorCode.rebalance_in_progress
    other.cancel()


async def test_a_connection_that_ends_leaves_nothing_waiting(broker: WholeBroker) -> None:
    joined = await stable(broker)
    held = send_heartbeat(broker, 4, member_id=joined.member_id, generation_id=1)
    await asyncio.sleep(0.01)
    held.answered.cancel()
    await asyncio.sleep(0)
    held.expire()


async def test_a_broker_that_stops_answers(tmp_path: Path) -> None:
    async with prompt_broker(tmp_path / "data") as broker:
        joined = await stable(broker)
        held = send_heartbeat(broker, 4, member_id=joined.member_id, generation_id=1)
        await asyncio.sleep(0.01)
        broker.services.groups.close()
        assert (await heartbeat_answer(held, 4)).error_code == ErrorCode.not_coordinator
