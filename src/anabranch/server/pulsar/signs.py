"""Signs of life: PINGs to a client, and what waits for its answer.

Anything that a client says is a sign that it is there.
"""

import asyncio
from collections.abc import Callable, Sequence

from anabranch.wire.pulsar.commands_pb2 import BaseCommand, Ping
from anabranch.wire.pulsar.frames import write_frame

_PING = write_frame(BaseCommand(type=BaseCommand.PING, ping=Ping()))


class SignsOfLife:
    __slots__ = ("_waiting", "_write", "is_owed", "next_ping")

    def __init__(self, write: Callable[[Sequence[bytes]], None]) -> None:
        self._write = write
        self._waiting: list[asyncio.Future[bool]] = []
        self.is_owed = False  # the client was asked, and has said nothing since
        self.next_ping = 0.0  # when to ask again

    def heard(self) -> None:
        """The client has said something."""
        self.is_owed = False
        if self._waiting:
            self._tell(True)

    def lost(self) -> None:
        """The client will say nothing any more."""
        self._tell(False)

    def _tell(self, is_alive: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if not asked.done():
                asked.set_result(is_alive)

    def ping(self) -> None:
        self.is_owed = True
        self._write((_PING,))

    async def wait(self, timeout_s: float) -> bool:
        """Whether the client says anything in time, being asked to."""
        asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(asked)
        self.ping()
        try:
            async with asyncio.timeout(timeout_s):
                return await asked
        except TimeoutError:
            return False
