"""A member of a consumer group (KIP-848): what it asked for, and what it holds.

    epoch          what the member must say in its next heartbeat
    previous       what it may say if our last answer was lost
    assigned       the partitions it may read, each with the epoch at which it got it
    revoking       the partitions it was told to give up and has not yet said it did

    STABLE       it holds what its epoch's target gives it
    UNREVOKED    it must give up `revoking` before it gets a new epoch
    UNRELEASED   it has the new epoch, but others still hold partitions meant for it

A partition is in `assigned` or `revoking` of one member at a time: that is what makes two readers
impossible, and all else here is about how soon it can move.

A member may speak the classic protocol while its group changes over; `classic` then has what it joined
with.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

import msgspec

Partitions = Mapping[UUID, frozenset[int]]
"""By topic; a topic without partitions is not in it."""

Held = Mapping[UUID, Mapping[int, int]]
"""By topic and partition, the epoch at which it was given."""

JOINING = 0
LEFT = -1
AWAY = -2
"""A static member that left and will be back: its partitions wait for it until its session ends."""


class MemberState(IntEnum):
    """Numbered as in the log."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


class ClassicMember(NamedTuple):
    """What a member that speaks the classic protocol joined with."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    # What it asked for: one record.
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None
    # What it holds: another.
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Held = {}
    revoking: Held = {}

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def asks_as(self, other: "Member") -> bool:
        """Both asked for the same, so that the record of one is that of the other."""
        return _asked(self) == _asked(other)

    def holds_as(self, other: "Member") -> bool:
        return _holds(self) == _holds(other)

    def subscribes_as(self, other: "Member") -> bool:
        """The same partitions are due to both."""
        return self.topic_names == other.topic_names and self.topic_regex == other.topic_regex

    def holding(self, state: MemberState, epoch: int, assigned: Held, revoking: Held) -> "Member":
        """Gone on to `epoch`, which may be where it is."""
        return msgspec.structs.replace(
            self,
            state=state,
            previous_epoch=self.epoch,
            epoch=epoch,
            assigned=assigned,
            revoking=revoking,
        )


def _asked(member: Member) -> tuple[object, ...]:
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topic_names,
        member.topic_regex,
        member.rebalance_timeout_ms,
        member.assignor,
        member.classic,
    )


def _holds(member: Member) -> tuple[object, ...]:
    return (member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking)


def partitions_of(held: Held) -> Partitions:
    return {topic: frozenset(partitions) for topic, partitions in held.items()}
