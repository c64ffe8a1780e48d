"""Elections and changes of the in-sync set, as pure functions."""

import pytest

from anabranch.base.errors import (
    AnabranchError,
    Conflict,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    Invalid,
    UnknownLeaderEpoch,
)
from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.cluster.partition_states import change_isr, elect, new_state
from anabranch.meta.documents import PartitionState
from anabranch.meta.image import NO_BROKER

B1, B2, B3, B4 = (BrokerId(id) for id in (1, 2, 3, 4))
REPLICAS = (B1, B2, B3)


def state(leader: BrokerId, leader_epoch: int, partition_epoch: int, *isr: BrokerId) -> PartitionState:
    return PartitionState(leader, LeaderEpoch(leader_epoch), partition_epoch, isr, REPLICAS)


def test_the_first_replica_leads_a_new_partition() -> None:
    assert new_state(REPLICAS) == state(B1, 0, 0, B1, B2, B3)


def test_an_election_raises_both_epochs_and_leaves_the_isr() -> None:
    assert elect(state(B1, 4, 7, B1, B2), B2) == state(B2, 5, 8, B1, B2)
    assert elect(state(B1, 4, 7, B1, B2), B1) == state(B1, 5, 8, B1, B2)
    assert elect(state(B1, 4, 7, B1, B2), NO_BROKER) == state(NO_BROKER, 5, 8, B1, B2)


def test_only_replicas_in_sync_are_elected() -> None:
    with pytest.raises(EligibleLeadersNotAvailable, match=r"broker 3 .* brokers 1, 2"):
        elect(state(B1, 4, 7, B1, B2), B3)
    with pytest.raises(Invalid, match=r"broker 4 .* brokers 1, 2, 3"):
        elect(state(B1, 4, 7, B1, B2), B4, is_unclean=True)


def test_after_an_unclean_election_nobody_else_is_in_sync() -> None:
    assert elect(state(B1, 4, 7, B1, B2), B3, is_unclean=True) == state(B3, 5, 8, B3)
    assert elect(state(B1, 4, 7, B1, B2), B2, is_unclean=True) == state(B2, 5, 8, B1, B2)


def test_a_leader_changes_the_isr() -> None:
    before = state(B1, 4, 7, B1, B2)
    assert change_isr(before, [B1], LeaderEpoch(4), 7) == state(B1, 4, 8, B1)
    assert change_isr(before, [B1, B2, B3], LeaderEpoch(4), 7) == state(B1, 4, 8, B1, B2, B3)


@pytest.mark.parametrize(
    ("isr", "leader_epoch", "partition_epoch", "error"),
    [
        ([B1], 3, 7, FencedLeaderEpoch),
        ([B1], 5, 7, UnknownLeaderEpoch),
        ([B1], 4, 6, Conflict),
        ([B1], 4, 8, Conflict),
        ([B2], 4, 7, Invalid),
        ([], 4, 7, Invalid),
        ([B1, B4], 4, 7, Invalid),
        ([B1, B1], 4, 7, Invalid),
    ],
)
def test_changes_of_the_isr_that_are_refused(
    isr: list[BrokerId], leader_epoch: int, partition_epoch: int, error: type[AnabranchError]
) -> None:
    with pytest.raises(error):
        change_isr(state(B1, 4, 7, B1, B2), isr, LeaderEpoch(leader_epoch), partition_epoch)
