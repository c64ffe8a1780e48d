"""Deadline of several changes: each has its own outcome, all within the time a client allows.

Kafka's rule for a time that is over before it starts: nothing is done, everything has timed out.
What is under way when the time ends is cancelled; the store's promise is that a cancelled change was
made wholly or not at all.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from anabranch.base.errors import AnabranchError, TimedOut

Result = TypeVar("Result")


async def each_within(
    timeout_ms: int, changes: Sequence[Coroutine[Any, Any, Result]]
) -> list[Result | AnabranchError]:
    """What became of each change: its result or its error, in order."""
    if timeout_ms <= 0:
        for change in changes:
            change.close()
        return [_timed_out(timeout_ms) for _ in changes]
    if not changes:
        return []
    tasks = [asyncio.create_task(change) for change in changes]
    try:
        await asyncio.wait(tasks, timeout=timeout_ms / 1000)
    finally:
        unfinished = [task for task in tasks if not task.done()]
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)
    return [_outcome(task, timeout_ms) for task in tasks]


def _outcome(task: "asyncio.Task[Result]", timeout_ms: int) -> Result | AnabranchError:
    if task.cancelled():
        return _timed_out(timeout_ms)
    try:
        return task.result()
    except AnabranchError as error:
        return error


def _timed_out(timeout_ms: int) -> TimedOut:
    return TimedOut(f"not done within {timeout_ms} ms")
