"""Schema work outside the event loop: large schemas are looked at in a thread, two at a time.

Whoever sends many large schemas waits for the others of the kind, and nobody else does.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anabranch.base.executors import Executors

_INLINE_BYTES = 1 << 10
_AT_ONCE = 2
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Aside:
    def __init__(self, executors: Executors) -> None:
        self._threads = executors("schemas", _AT_ONCE)

    async def run(
        self, size_bytes: int | None, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """What `work` gives; `size_bytes` is of what it looks at, None if it blocks whatever the size."""
        if size_bytes is not None and size_bytes <= _INLINE_BYTES:
            return work(*args, **kwargs)
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
