"""Who is told that a coordinator is gone: also those who have left."""

import asyncio
import gc

import pytest

from anabranch.base.errors import NotCoordinator
from anabranch.groups.effect_answers import refuse
from anabranch.groups.effects import Answer


async def test_nobody_complains_of_who_has_left() -> None:
    """A client whose connection is gone waits no more, and its answer is nobody's."""
    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    waits: asyncio.Future[Answer] = loop.create_future()
    refuse([waits, loop.create_future()])
    gc.collect()
    assert not told
    with pytest.raises(NotCoordinator):
        await waits
