from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.kafka.group_requests import JOIN, LIST, RANGE, prompt_broker, stable
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with prompt_broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("version", range(6))
async def test_every_group(broker: WholeBroker, version: int) -> None:
    await stable(broker)
    (group,) = (await broker.ask(LIST, version)).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    if version >= 4:
        assert group.group_state == "Stable"
    if version >= 5:
        assert group.group_type == "classic"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"states_filter": ["stable"]}, ["g"]),
        ({"states_filter": ["EMPTY", "Dead"]}, ["h"]),
        ({"states_filter": ["nonsense"]}, []),
        ({"types_filter": ["Classic"]}, ["g", "h"]),
        ({"types_filter": ["consumer"]}, []),
        ({"states_filter": ["Stable"], "types_filter": ["classic", "consumer"]}, ["g"]),
    ],
)
async def test_filters(broker: WholeBroker, filters: dict[str, Any], found: list[str]) -> None:
    await stable(broker)
    await broker.ask(
        JOIN, 9, group_id="h", session_timeout=10_000, protocol_type="consumer", protocols=[RANGE]
    )
    answer = await broker.ask(LIST, 5, **filters)
    assert sorted(group.group_id for group in answer.groups) == found


async def test_a_broker_that_never_had_groups(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data") as broker:
        answer = await broker.ask(LIST, 5)
        assert (answer.error_code, answer.groups) == (0, ())
