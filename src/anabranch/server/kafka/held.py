"""Held answer: kept back until there is something to say, without holding up the answers after it.

A heartbeat to a quiet group is answered so: the answer may wait for news (`groups/classic_news.py`).
But answers go out in the order of the requests, and a client sends its commits on the same connection.  So
when the client asks anything else, or the node stops, what is held is answered at once.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from anabranch.server.kafka.registry import Answer, Reply, Told
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import answers_flexibly


class Held:
    """The answer to API `key` that `deciding` will have; `nothing_new` if that is not waited for."""

    __slots__ = ("_deciding", "_key", "_loop", "_nothing_new", "_version", "answered")

    kept_bytes = 0  # one of a connection at most waits

    def __init__(
        self, key: int, version: int, deciding: Coroutine[Any, Any, Answer], nothing_new: Answer
    ) -> None:
        self._key = key
        self._version = version
        self._nothing_new = nothing_new
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[Reply] = self._loop.create_future()
        self._deciding = asyncio.ensure_future(deciding)
        self._deciding.add_done_callback(self._decided)
        self.answered.add_done_callback(lambda _: self._deciding.cancel())

    def then(self, told: Told) -> None:
        self.answered.add_done_callback(told)

    def expire(self) -> None:
        """Wait no longer, except for what is decided at once: the next question may come with this one."""
        self._loop.call_soon(self._give_up)

    def _give_up(self) -> None:
        if self._deciding.done():
            self._decided(self._deciding)
        elif not self.answered.done():
            self.answered.set_result(self._written(self._nothing_new))

    def _decided(self, deciding: "asyncio.Task[Answer]") -> None:
        if deciding.cancelled() or self.answered.done():
            return
        error = deciding.exception()
        if error is not None:
            self.answered.set_exception(error)
        else:
            self.answered.set_result(self._written(deciding.result()))

    def _written(self, answer: Answer) -> Reply:
        body = bytearray(b"\0" if answers_flexibly(self._key, self._version) else b"")
        encoder(self._key, self._version)(body, answer)
        return (body,)
