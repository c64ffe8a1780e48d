"""Signs of life: PINGs to a client, and what waits for its answer.

Anything that a client says is a sign that it is there.  A PONG says more: that the client has heard
everything sent before the PING, and that everything it said before it had is here.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from anabranch.base.errors import Corrupt
from anabranch.wire.pulsar.commands_pb2 import BaseCommand, Ping
from anabranch.wire.pulsar.frames import write_frame

_MAX_AFTER_PONG = 1000
_PING = write_frame(BaseCommand(type=BaseCommand.PING, ping=Ping()))


class SignsOfLife:
    __slots__ = ("_after_pong", "_pings", "_pongs", "_waiting", "_write", "is_owed", "next_ping")

    def __init__(self, write: Callable[[Sequence[bytes]], None]) -> None:
        self._write = write
        self._pings = self._pongs = 0
        self._after_pong: deque[tuple[int, Callable[[], None]]] = deque()
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
        self._pings += 1
        self._write((_PING,))

    def ponged(self) -> None:
        """PONGs come in the order of the PINGs."""
        self._pongs += 1
        while self._after_pong and self._after_pong[0][0] <= self._pongs:
            self._after_pong.popleft()[1]()

    def after_pong(self, then: Callable[[], None]) -> None:
        """Have `then` called when the client has heard everything sent so far, and what it said is here."""
        if len(self._after_pong) >= _MAX_AFTER_PONG:
            raise Corrupt("the client asks on and does not answer pings")
        self.ping()
        self._after_pong.append((self._pings, then))

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
