"""Session: who uses a metadata store, and whether the store still counts it among the living.

    CONNECTED ──> SUSPENDED ──> CONNECTED     the link broke and came back in time
                      └───────> EXPIRED ──> CONNECTED under another id, where the store can do that

While it is suspended nobody knows whether the session has ended: what it made may be gone, another may
have taken its place, so whoever holds something by an ephemeral node promises nothing new.  Expired, its
ephemeral nodes are gone for good.
"""

from collections.abc import Callable
from enum import Enum
from math import inf


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class Session:
    """Belongs to the store that opened it; others look, and subscribe."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.state = SessionState.CONNECTED
        self.certain_until = inf
        """On the monotonic clock: until then it lives for sure, whatever happens."""
        self._subscribers: list[Callable[[SessionState], None]] = []

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
        for subscriber in tuple(self._subscribers):
            subscriber(state)
