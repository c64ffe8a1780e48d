"""Retention and what durable subscriptions have still to read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.compaction import view_now
from tests.support.hosted import Hosted

HOUR_MS = 3_600_000


@pytest_asyncio.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[Hosted]:
    made = Hosted(tmp_path)
    yield made
    made.kill()


async def test_what_a_subscription_has_still_to_read_stays(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150, retention_ms=HOUR_MS)
    hosted.topic("others", segment_bytes=150, retention_ms=HOUR_MS)
    read_up_to = 2
    hosted.upkeep.hold_back(lambda topic, index: read_up_to if topic == "orders" else None)
    for value in "abcdef":
        for topic in ("orders", "others"):
            hosted.put(topic, value)
    hosted.clock.advance(HOUR_MS + 1)
    await hosted.upkeep.look()
    for start in (2, 4):
        read_up_to = start
        await hosted.upkeep._aging.round()  # though nothing was written since
        assert hosted.partition("orders").log_start == start
        assert hosted.partition("others").log_start == 6


async def test_what_a_compacted_view_has_not_taken_up_stays(hosted: Hosted) -> None:
    """Or the view would have for the last of a key what was superseded by a message that is gone."""
    hosted.topic("orders", segment_bytes=150, retention_ms=HOUR_MS)
    for value in "abcd":
        hosted.put("orders", value)
    view_now(hosted.partition("orders").log, end=2)
    hosted.clock.advance(HOUR_MS + 1)
    await hosted.upkeep.look()
    for start in (2, 4):
        await hosted.upkeep._aging.round()
        assert hosted.partition("orders").log_start == start
        view_now(hosted.partition("orders").log)


async def test_a_log_that_is_held_need_not_be_opened(hosted: Hosted) -> None:
    hosted.topic("orders", segment_bytes=150, retention_ms=HOUR_MS)
    for value in "abcdef":
        hosted.put("orders", value)
    await hosted.restart()
    hosted.upkeep.hold_back(lambda topic, index: 0)
    hosted.clock.advance(HOUR_MS + 1)
    for _ in range(2):
        await hosted.upkeep._aging.round()
    assert list(hosted.host.open_replicas()) == []
