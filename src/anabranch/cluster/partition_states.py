"""Partition state: who leads, who is in sync, and the epochs that tell one such state from the next.

    made        leader 1   leader epoch 0   partition epoch 0   in sync 1 2 3
    3 lags             1                0                   1           1 2
    1 resigns          -                1                   2           1 2
    2 elected          2                2                   3           1 2

An election raises the leader epoch, and whoever holds an older one is refused.  The partition epoch counts
all changes: a leader that asks for one says which state it saw.
"""

from collections.abc import Sequence

import msgspec

from anabranch.base.errors import (
    Conflict,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    Invalid,
    UnknownLeaderEpoch,
)
from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.meta.documents import PartitionState
from anabranch.meta.image import NO_BROKER


def new_state(replicas: tuple[BrokerId, ...]) -> PartitionState:
    """Of a partition that was just made: its first replica leads, and all are in sync."""
    return PartitionState(replicas[0], LeaderEpoch(0), 0, replicas, replicas)


def elect(state: PartitionState, leader: BrokerId, *, is_unclean: bool = False) -> PartitionState:
    """`leader` leads, or nobody if it is NO_BROKER.

    Invalid if it has no replica; EligibleLeadersNotAvailable if it is not in sync, unless that is said to be
    no matter: it is the only one then, and what it does not have is lost.
    """
    isr = state.isr
    if leader != NO_BROKER and leader not in state.replicas:
        raise Invalid(f"broker {leader} cannot lead, the replicas are on brokers {_listed(state.replicas)}")
    if leader != NO_BROKER and leader not in isr:
        if not is_unclean:
            raise EligibleLeadersNotAvailable(
                f"broker {leader} cannot lead, in sync are the replicas on brokers {_listed(isr)}"
            )
        isr = (leader,)
    return msgspec.structs.replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        partition_epoch=state.partition_epoch + 1,
        isr=isr,
    )


def change_isr(
    state: PartitionState, isr: Sequence[BrokerId], leader_epoch: LeaderEpoch, partition_epoch: int
) -> PartitionState:
    """The leader of `leader_epoch`, who knows the state of `partition_epoch`, has these replicas in sync."""
    if leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(f"leader epoch {leader_epoch} is over, it is {state.leader_epoch} now")
    if leader_epoch > state.leader_epoch:
        raise UnknownLeaderEpoch(f"leader epoch {leader_epoch} has not begun, it is {state.leader_epoch} now")
    if partition_epoch != state.partition_epoch:
        raise Conflict(f"partition epoch {partition_epoch} is over, it is {state.partition_epoch} now")
    if state.leader not in isr or len(set(isr)) < len(isr) or not set(isr) <= set(state.replicas):
        raise Invalid(
            f"brokers {_listed(isr)} cannot be in sync: leader is {state.leader}, the replicas are on "
            f"brokers {_listed(state.replicas)}"
        )
    return msgspec.structs.replace(state, isr=tuple(isr), partition_epoch=partition_epoch + 1)


def _listed(brokers: Sequence[BrokerId]) -> str:
    return ", ".join(map(str, brokers))
