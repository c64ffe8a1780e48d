"""A producer or consumer that is on its way: its id is taken, and nothing else is there yet.

PRODUCER, SUBSCRIBE ─> Opening ─┬─> attached
                                ├─> failed, the id is free again
CLOSE in between ───────────────┴─> abandoned: the client is told that it is closed, what comes too
                                    late is undone
"""

import asyncio


class Opening:
    __slots__ = ("_task", "is_abandoned", "request_id")

    def __init__(self, request_id: int) -> None:
        self.request_id = request_id
        self.is_abandoned = False
        self._task: asyncio.Task[object] | None = None

    def begin(self) -> None:
        """Called by the task that does the opening, first thing."""
        self._task = asyncio.current_task()
        if self.is_abandoned:
            raise asyncio.CancelledError

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self.is_abandoned = True
        if self._task is not None:
            self._task.cancel()
