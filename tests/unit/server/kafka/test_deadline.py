import asyncio

import pytest

from anabranch.base.errors import Exists, TimedOut
from anabranch.server.kafka.deadline import each_within

PLENTY_MS = 10_000


async def give(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def fail() -> int:
    raise Exists("it is there")


async def wait_for(event: asyncio.Event, log: list[str]) -> int:
    try:
        await event.wait()
    except asyncio.CancelledError:
        log.append("cancelled")
        raise
    return 1


async def test_each_has_its_own_outcome() -> None:
    first, error, last = await each_within(PLENTY_MS, [give(1), fail(), give(3)])
    assert (first, last) == (1, 3)
    assert isinstance(error, Exists)
    assert await each_within(PLENTY_MS, []) == []


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_no_time_at_all(timeout_ms: int) -> None:
    started: list[str] = []

    async def start() -> None:
        started.append("started")

    outcomes = await each_within(timeout_ms, [start(), start()])
    assert [type(outcome) for outcome in outcomes] == [TimedOut, TimedOut]
    assert not started


async def test_what_is_unfinished_when_the_time_ends_is_cancelled() -> None:
    log: list[str] = []
    done, late = await each_within(1, [give(1), wait_for(asyncio.Event(), log)])
    assert done == 1
    assert isinstance(late, TimedOut)
    assert log == ["cancelled"]


async def test_whoever_is_cancelled_leaves_nothing_running() -> None:
    log: list[str] = []
    task = asyncio.create_task(each_within(PLENTY_MS, [wait_for(asyncio.Event(), log)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["cancelled"]


async def test_our_own_mistakes_are_not_hidden() -> None:
    async def mistake() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await each_within(PLENTY_MS, [give(1), mistake()])
