"""Share sessions (KIP-932): a share consumer names its partitions once and then only what changed.

    epoch    meaning
    0        start a session, in place of the one that the member has; no acknowledgements
    n        the session's n-th request, ShareFetch or ShareAcknowledge
    -1       the last one: acknowledgements, and no records

A session belongs to a member of a group and to the connection that it came by.  When it ends, or the
connection does, what the member holds is given back (`gone`), so that others need not wait for the locks.
A session that is started again gives nothing back: its member may still acknowledge what it has.
"""

from collections.abc import Callable, Iterable
from uuid import UUID

from anabranch.base.errors import (
    Invalid,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1
_MAX_PARTITIONS = 200_000  # of all sessions, some 200 bytes each

Member = tuple[str, str]
"""A group and the id of its member."""
Place = tuple[UUID, int]
"""A topic and its partition."""


class ShareSession:
    __slots__ = ("connection_id", "epoch", "member", "partitions")

    def __init__(self, member: Member, connection_id: int) -> None:
        self.member = member
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions: dict[Place, None] = {}

    def gave_records(self, place: Place) -> None:
        """Move a partition to the end of the order, so that all have their turn."""
        if place in self.partitions:
            del self.partitions[place]
            self.partitions[place] = None


class ShareSessions:
    """All sessions of a broker."""

    def __init__(self, most: Callable[[], int], gone: Callable[[str, str], None]) -> None:
        """`most` sessions are kept; `gone` is told of the group and the member whose session has ended."""
        self._most = most
        self._gone = gone
        self._sessions: dict[Member, ShareSession] = {}
        self._by_connection: dict[int, dict[Member, None]] = {}
        self._remembered = 0  # partitions of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def start(self, member: Member, connection_id: int, wanted: Iterable[Place]) -> ShareSession:
        self._remove(member)
        if len(self._sessions) >= self._most():
            raise ShareSessionLimitReached("there are as many share sessions as there may be")
        session = self._sessions[member] = ShareSession(member, connection_id)
        self._by_connection.setdefault(connection_id, {})[member] = None
        self._change(session, wanted, ())
        return session

    def go_on(
        self, member: Member, epoch: int, wanted: Iterable[Place] = (), forgotten: Iterable[Place] = ()
    ) -> ShareSession:
        """The member's session for its next request, with the partitions that it brings and leaves."""
        session = self._find(member)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(f"the share session is at epoch {session.epoch}, not {epoch}")
        self._change(session, wanted, forgotten)
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def has(self, session: ShareSession) -> bool:
        """Whether it is its member's session still, and not one that was ended or begun again."""
        return self._sessions.get(session.member) is session

    def end(self, session: ShareSession) -> None:
        """The member is done, and has acknowledged what it wanted to."""
        if self.has(session):
            self._remove(session.member)
            self._gone(*session.member)

    def disconnected(self, connection_id: int) -> None:
        for member in self._by_connection.pop(connection_id, ()):
            self._remove(member)
            self._gone(*member)

    def has_group(self, group: str) -> bool:
        """Whether any member of the group has one."""
        return any(member[0] == group for member in self._sessions)

    def _find(self, member: Member) -> ShareSession:
        session = self._sessions.get(member)
        if session is None:
            raise ShareSessionNotFound(f"member {member[1]} of group {member[0]!r} has no share session")
        return session

    def _change(self, session: ShareSession, wanted: Iterable[Place], forgotten: Iterable[Place]) -> None:
        before = len(session.partitions)
        session.partitions.update(dict.fromkeys(wanted))
        for place in forgotten:
            session.partitions.pop(place, None)
        self._remembered += len(session.partitions) - before
        if self._remembered > _MAX_PARTITIONS:
            self._remove(session.member)
            raise Invalid("share sessions have too many partitions")

    def _remove(self, member: Member) -> None:
        session = self._sessions.pop(member, None)
        if session is not None:
            self._remembered -= len(session.partitions)
            of_connection = self._by_connection.get(session.connection_id, {})
            of_connection.pop(member, None)
            if not of_connection:
                self._by_connection.pop(session.connection_id, None)
