"""The simulated loop: virtual time, processes that are paused and killed, one order for one seed."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from tests.sim.loop import Process, SimExecutor, SimLoop, Stuck


def run(loop: SimLoop, scenario: Coroutine[Any, Any, Any]) -> Any:
    try:
        return loop.run_until_complete(scenario)
    finally:
        loop.close()


async def count(loop: SimLoop, heard: list[tuple[str, float]], name: str) -> None:
    for _ in range(4):
        await asyncio.sleep(1)
        heard.append((name, loop.time()))


def test_time_goes_to_the_next_timer() -> None:
    loop = SimLoop(Random(1))

    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return loop.time()

    assert run(loop, wait()) == 3600


def test_a_paused_process_is_late_and_a_dead_one_is_silent() -> None:
    loop = SimLoop(Random(1))
    heard: list[tuple[str, float]] = []

    async def scenario() -> None:
        one, other = Process("one"), Process("other")
        loop.run_in(one, count(loop, heard, "one"))
        loop.run_in(other, count(loop, heard, "other"))
        await asyncio.sleep(1.5)
        loop.pause(one)
        await asyncio.sleep(2)
        loop.resume(one)
        await asyncio.sleep(0.1)
        loop.kill(other)
        await asyncio.sleep(10)

    run(loop, scenario())
    assert [time for name, time in heard if name == "one"] == [1, 3.5, 4.5, 5.5]
    assert [time for name, time in heard if name == "other"] == [1, 2, 3]


def test_a_seed_chooses_between_processes_and_keeps_their_own_order() -> None:
    def heard(seed: int) -> list[str]:
        loop = SimLoop(Random(seed))
        said: list[str] = []

        async def scenario() -> None:
            for name in "ab":
                process = Process(name)
                for i in range(20):
                    loop.call_in(process, said.append, f"{name}{i:02}")
            await asyncio.sleep(1)

        run(loop, scenario())
        return said

    assert heard(1) == heard(1) != heard(2)
    for name in "ab":
        mine = [each for each in heard(3) if each.startswith(name)]
        assert mine == sorted(mine)


def test_threads_take_their_time_and_are_bounded() -> None:
    loop = SimLoop(Random(1))
    pool = SimExecutor("sync", 2, lambda: 1.0)

    async def scenario() -> list[float]:
        return await asyncio.gather(*(loop.run_in_executor(pool, loop.time) for _ in range(5)))

    assert run(loop, scenario()) == [1, 1, 2, 2, 3]


def test_what_reaches_outside_is_refused() -> None:
    loop = SimLoop(Random(1))

    async def scenario() -> None:
        with pytest.raises(Stuck):
            await asyncio.to_thread(print)
        with pytest.raises(Stuck):
            loop.call_soon_threadsafe(print)
        with pytest.raises(NotImplementedError):
            await asyncio.open_connection("127.0.0.1", 9)

    run(loop, scenario())


def test_a_loop_that_stands_still_is_found_out() -> None:
    loop = SimLoop(Random(1))

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Stuck, match="stands still"):
        loop.run_forever()
    loop.close()
