"""One at a time, per key."""

import asyncio

import pytest

from anabranch.base.turns import Turns


async def test_a_key_is_one_at_a_time_in_order_and_others_do_not_wait() -> None:
    turns = Turns()
    done: list[str] = []

    async def use(key: str, name: str, steps: int) -> None:
        async with turns.of(key):
            for _ in range(steps):
                await asyncio.sleep(0)
            done.append(name)

    await asyncio.gather(use("a", "a1", 5), use("a", "a2", 0), use("b", "b1", 1), use("a", "a3", 0))
    assert done == ["b1", "a1", "a2", "a3"]
    assert not turns._locks
    assert not turns._users


async def test_a_turn_ends_with_an_error_and_a_waiter_may_give_up() -> None:
    turns = Turns()

    async def waits() -> None:
        async with turns.of("k"):
            pytest.fail("it was cancelled")

    async def fails() -> None:
        async with turns.of("k"):
            waiter = asyncio.create_task(waits())
            await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.sleep(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert not turns._locks
    async with turns.of("k"):
        pass
