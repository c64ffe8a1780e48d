"""Certainty: whether this broker's session with the metadata store is surely alive, by the clock.

A leader whose session may be over does not know whether another one was elected.  What it acknowledged by
itself could be cut off by that one, so while it is in doubt it takes nothing and acknowledges nothing, and
goes on with either once it is certain again.  A process that stood still finds its timers late and its
sockets full of what came before; so the clock is looked at in the moment that something is acknowledged.

A session that has ended says nothing about the next one: what is led may be led elsewhere since, and the
image does not say so yet.  So nothing is certain under another session until `image_read`, which is for
whoever has read all of it again.
"""

import asyncio
from collections.abc import Callable

from anabranch.base.clock import Clock
from anabranch.meta.session import Session

_LOOK_S = 0.05


class Certainty:
    __slots__ = ("_clock", "_known_id", "_looking", "_session", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session: Session | None = None
        self._known_id: int | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self._looking: asyncio.TimerHandle | None = None

    def depend_on(self, session: Session) -> None:
        """What the image says is of this session."""
        self._session = session
        self._known_id = session.id

    @property
    def holds(self) -> bool:
        session = self._session
        return session is None or (
            session.id == self._known_id and self._clock.monotonic() < session.certain_until
        )

    def image_read(self) -> None:
        """The image is as the store has it in the session that there is now."""
        if self._session is not None:
            self._known_id = self._session.id

    def call_when_it_holds(self, callback: Callable[[], None]) -> None:
        """Once, soon after; a callback that waits already is not called twice."""
        self._waiting[callback] = None
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        if not self.holds:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
            return
        waiting, self._waiting = self._waiting, {}
        for callback in waiting:
            callback()

    async def wait(self) -> None:
        """Return as soon as it holds."""
        if not self.holds:
            held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.call_when_it_holds(lambda: None if held.done() else held.set_result(None))
            await held
