"""Reassignments: begun, carried out, replaced, called off."""

import pytest

from anabranch.base.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
)
from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.cluster.partition_states import change_isr
from anabranch.cluster.reassignment import cancel, complete, originals, reassign
from anabranch.meta.documents import PartitionState

LIVE = frozenset(map(BrokerId, (1, 2, 3, 4)))


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def at_first() -> PartitionState:
    return PartitionState(BrokerId(1), LeaderEpoch(0), 0, ids(1, 2), ids(1, 2))


def catches_up(state: PartitionState, *brokers: int) -> PartitionState:
    isr = (*state.isr, *ids(*brokers))
    return complete(change_isr(state, isr, state.leader_epoch, state.partition_epoch), LIVE)


def test_replicas_join_before_others_leave() -> None:
    state = reassign(at_first(), ids(2, 3), LIVE, same_factor=True)
    assert (state.replicas, state.adding, state.removing) == (ids(2, 3, 1), ids(3), ids(1))
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (1, 0, 1, ids(1, 2))
    done = catches_up(state, 3)
    assert (done.replicas, done.adding, done.removing) == (ids(2, 3), (), ())
    assert (done.leader, done.leader_epoch, done.isr) == (2, 1, ids(2, 3))


def test_all_that_is_added_has_to_catch_up() -> None:
    state = reassign(at_first(), ids(3, 4), LIVE, same_factor=True)
    halfway = catches_up(state, 4)
    assert (halfway.replicas, halfway.leader, halfway.isr) == (ids(3, 4, 1, 2), 1, ids(1, 2, 4))
    done = catches_up(halfway, 3)
    assert (done.replicas, done.leader, done.isr) == (ids(3, 4), 3, ids(4, 3))


def test_what_only_leaves_is_gone_at_once() -> None:
    state = reassign(at_first(), ids(2), LIVE, same_factor=False)
    assert (state.replicas, state.leader, state.leader_epoch, state.isr) == (ids(2), 2, 1, ids(2))
    assert not state.removing
    with pytest.raises(InvalidReplicationFactor, match="factor"):
        reassign(at_first(), ids(2), LIVE, same_factor=True)


def test_another_order_is_another_preferred_leader() -> None:
    state = reassign(at_first(), ids(2, 1), LIVE, same_factor=True)
    assert (state.replicas, state.leader, state.leader_epoch) == (ids(2, 1), 1, 0)


def test_it_is_called_off() -> None:
    state = cancel(reassign(at_first(), ids(3, 4), LIVE, same_factor=True), LIVE)
    assert (set(state.replicas), state.isr, state.leader) == ({1, 2}, ids(1, 2), 1)
    assert not state.adding
    assert not state.removing
    with pytest.raises(NoReassignmentInProgress):
        cancel(state, LIVE)


def test_another_one_takes_its_place() -> None:
    first = catches_up(reassign(at_first(), ids(3, 4), LIVE, same_factor=True), 3)
    assert originals(first) == ids(1, 2)
    state = reassign(first, ids(1, 4), LIVE, same_factor=True)
    assert (state.replicas, state.adding, state.removing) == (ids(1, 4, 2), ids(4), ids(2))
    assert state.isr == ids(1, 2)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_what_cannot_be(target: tuple[int, ...]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        reassign(at_first(), ids(*target), LIVE, same_factor=False)


def test_a_broker_that_is_away_is_waited_for() -> None:
    state = reassign(at_first(), ids(1, 9), LIVE, same_factor=True, away=ids(9))
    assert (state.replicas, state.adding, state.removing) == (ids(1, 9, 2), ids(9), ids(2))
    assert (state.leader, state.isr) == (1, ids(1, 2))
