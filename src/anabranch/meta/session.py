"""Session: a user of a metadata store, and whether the store still takes it for alive.

    CONNECTED ──> SUSPENDED ──> CONNECTED     the link broke and came back in time
                      └───────> EXPIRED ──> CONNECTED under another id, where the store can do that

While it is suspended nobody knows whether the session has ended: what it made may be gone, another may
have taken its place, so whoever holds something by an ephemeral node promises nothing new.  Expired, its
ephemeral nodes are gone for good.

A process that was stopped and goes on hears of nothing in time, so whoever promises something compares the
clock with `certain_until` when it does.
"""

import math
from collections.abc import Callable
from enum import Enum


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class Session:
    """Belongs to the store that opened it; others look, and subscribe."""

    def __init__(self, id: int, certain_until: Callable[[int], float] = lambda id: math.inf) -> None:
        """`certain_until` tells it of the session with that id, from any thread."""
        self.id = id
        self.state = SessionState.CONNECTED
        self._certain_until = certain_until
        self.changes = dict.fromkeys(SessionState, 0)
        """How often it came to be in each state, since it was opened or one before it."""
        self._subscribers: list[Callable[[SessionState], None]] = []

    @property
    def certain_until(self) -> float:
        """Until when, on the monotonic clock, it is certain that the session has not ended.

        Infinite where sessions do not end by themselves.  In the past: in doubt, or known to be over.
        """
        return -math.inf if self.is_expired else self._certain_until(self.id)

    @property
    def is_expired(self) -> bool:
        return self.state is SessionState.EXPIRED

    def subscribe(self, subscriber: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call back on the event loop at each change from now on.  What comes back ends it.

        The subscriber must not raise.
        """
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def become(self, state: SessionState, id: int | None = None) -> None:
        """For the store: the session is in another state, and has another id if it is a new one."""
        self.id = self.id if id is None else id
        self.state = state
        self.changes[state] += 1
        for subscriber in tuple(self._subscribers):
            subscriber(state)
