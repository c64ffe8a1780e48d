"""Waiting for what is certain to come, without saying when: a minute is long on any machine."""

import asyncio
from collections.abc import Callable

_LONG_S = 60.0


async def until(holds: Callable[[], object], what: str = "it does not happen") -> None:
    """Return as soon as `holds` does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LONG_S
    while not holds():
        assert loop.time() < deadline, what
        await asyncio.sleep(0.001)
