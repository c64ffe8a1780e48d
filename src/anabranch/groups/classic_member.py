"""A member of a classic group, and the topics it says it reads.

`protocols` are the ways of assigning that the member knows, best first, each with what it has to say to
the leader: for consumers that is their subscription, bytes that the broker passes on and looks into only
to learn the topics.

`session_ends_ms` moves with every sign of life.  The timer that watches it does not: it looks when it
comes, and is set again if the member has been heard of since.  That is the case if the session does not
end when it was to end then, `watched_ms`: which of the two is later a clock that was set cannot say.
"""

from typing import NamedTuple

from anabranch.base.errors import Corrupt
from anabranch.groups.fields import Fields
from anabranch.groups.records import MemberMetadata


class AssignmentProtocol(NamedTuple):
    name: str
    metadata: bytes


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "is_restored",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_ends_ms",
        "session_timeout_ms",
        "watched_ms",
    )

    def __init__(self, member_id: str, instance_id: str | None, client_id: str, client_host: str) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.protocols: tuple[AssignmentProtocol, ...] = ()
        self.assignment = b""
        self.session_ends_ms = 0
        self.watched_ms = 0
        self.is_new = False
        """It waits for its first generation and has no id to heartbeat with."""
        self.is_restored = False
        """It was read from the log, and has not been answered since."""

    def agrees_on(
        self, session_timeout_ms: int, rebalance_timeout_ms: int, protocols: tuple[AssignmentProtocol, ...]
    ) -> None:
        """What a join says about the member, its first or a later one."""
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols

    def heard_of(self, now_ms: int) -> None:
        self.session_ends_ms = now_ms + self.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    def successor(self, member_id: str) -> "ClassicMember":
        """The same static member under another id."""
        other = ClassicMember(member_id, self.instance_id, self.client_id, self.client_host)
        other.agrees_on(self.session_timeout_ms, self.rebalance_timeout_ms, self.protocols)
        other.assignment = self.assignment
        return other

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )


def restored_member(stored: MemberMetadata, protocol: str | None) -> ClassicMember:
    """As it was written, with the one protocol that was in use."""
    member = ClassicMember(stored.member_id, stored.instance_id, stored.client_id, stored.client_host)
    rebalance_ms = stored.rebalance_timeout_ms
    member.agrees_on(
        stored.session_timeout_ms,
        stored.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,  # the oldest records have only one
        () if protocol is None else (AssignmentProtocol(protocol, stored.subscription),),
    )
    member.assignment = stored.assignment
    member.is_restored = True
    return member


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if it is not one.

    Every version of it begins alike: the version, then the topics.
    """
    fields = Fields(subscription, 2)
    try:
        return frozenset(fields.string() for _ in range(fields.count()))
    except Corrupt:
        return None
