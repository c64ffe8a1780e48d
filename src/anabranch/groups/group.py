"""A group, whichever protocol its members speak.

`GroupShard` keeps one dictionary of groups by id.  Each protocol puts its own kind of group into it, and two
of them turn theirs into the other's; offsets, listing and deletion see only this:

    kind      classic                               consumer                       share
    state     Empty, PreparingRebalance,            Empty, Assigning,              Empty, Stable
              CompletingRebalance, Stable, Dead     Reconciling, Stable, Dead
    epoch     the generation                        the member's own epoch         (commits nothing)

A group that only has offsets (nobody ever joined; its clients assign partitions themselves) is a classic
group that is Empty and has no protocol type.
"""

from enum import StrEnum
from typing import Protocol
from uuid import UUID

from anabranch.groups.effects import KeyValue
from anabranch.wire.kafka.schema import ErrorCode


class GroupKind(StrEnum):
    """As ListGroups spells it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Group(Protocol):
    group_id: str

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state(self) -> str:
        """As ListGroups spells it."""

    @property
    def protocol_type(self) -> str:
        """`consumer` for consumers, `connect` for Connect's workers, empty if nobody ever joined."""

    @property
    def is_empty(self) -> bool:
        """It has no members, and may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Somebody reads `topic` with the group's help, so its offsets are in use."""

    def validate_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool, version: int
    ) -> ErrorCode:
        """May this member commit?  Of a client without a group `epoch` is -1; `version` is the request's."""

    def may_commit_late(self, member_id: str, epoch: int, topic_id: UUID, partition: int) -> bool:
        """Was `epoch`, which is over, good for this partition, and has the member kept it since?"""

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """May this member read the committed offsets?"""

    def heard_of(self, member_id: str, now_ms: int) -> None:
        """A commit is as good as a heartbeat.  Nothing happens for whoever is not a member."""

    def ages_from(self, committed_ms: int) -> int | None:
        """When an offset committed at `committed_ms` began to age; None while the group keeps it young.

        Offsets of topics that somebody is subscribed to do not age either; that is `is_subscribed_to`.
        """

    def tombstones(self) -> list[KeyValue]:
        """The records that make the group forgotten, its offsets apart."""
