"""Reassignment: the replicas of a partition on their way from some brokers to others, by Kafka's rules.

    replicas 1 2            in sync 1 2
    to 2 3    replicas 2 3 1    adding 3    removing 1    in sync 1 2
    3 has caught up             the leader says so: in sync 1 2 3
    done      replicas 2 3                                in sync 2 3, and 2 leads if 1 did

What is added joins the in-sync set as any replica does.  Once all of it has, what is to be removed leaves
in the same change.  Until then it can be called off, and another one takes its place as it stands: what the
partition goes back to are its replicas without those that were being added.
"""

from collections.abc import Collection, Sequence

import msgspec

from anabranch.base.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
)
from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.meta.documents import PartitionState
from anabranch.meta.image import NO_BROKER, PartitionImage

Replicas = tuple[BrokerId, ...]


def is_under_way(state: PartitionState | PartitionImage) -> bool:
    return bool(state.adding or state.removing)


def originals(state: PartitionState | PartitionImage) -> Replicas:
    """The replicas that a partition had before its reassignment, which come back if it is called off."""
    return _without(state.replicas, state.adding)


def reassign(
    state: PartitionState,
    target: Sequence[BrokerId],
    live: Collection[BrokerId],
    *,
    same_factor: bool,
    away: Collection[BrokerId] = (),
) -> PartitionState:
    """The partition is to have these replicas, also on brokers that are `away`.

    InvalidReplicaAssignment if it cannot, InvalidReplicationFactor if it would have another number of them
    and must not.
    """
    wanted = tuple(target)
    _check(wanted, {*live, *away})
    before = originals(state)
    if same_factor and len(wanted) != len(_without(state.replicas, state.removing)):
        raise InvalidReplicationFactor(
            f"the partition is to have {len(wanted)} replica(s), its replication factor must not change"
        )
    removing = _without(before, wanted)
    adding = _without(wanted, before)
    kept = wanted + removing
    isr = tuple(broker for broker in state.isr if broker in kept)
    if not isr:
        raise InvalidReplicaAssignment("none of its replicas would be in sync")
    changed = msgspec.structs.replace(
        state,
        replicas=kept,
        adding=adding,
        removing=removing,
        isr=isr,
        partition_epoch=state.partition_epoch + 1,
    )
    return complete(_led(changed, state, live), live)


def cancel(state: PartitionState, live: Collection[BrokerId]) -> PartitionState:
    """Call it off.  NoReassignmentInProgress if there is none."""
    if not is_under_way(state):
        raise NoReassignmentInProgress("no reassignment of the partition is in progress")
    before = originals(state)
    isr = tuple(broker for broker in state.isr if broker in before)
    if not isr:
        raise InvalidReplicaAssignment("none of the replicas that it would go back to is in sync")
    changed = msgspec.structs.replace(
        state, replicas=before, adding=(), removing=(), isr=isr, partition_epoch=state.partition_epoch + 1
    )
    return _led(changed, state, live)


def complete(state: PartitionState, live: Collection[BrokerId]) -> PartitionState:
    """The state without what is to be removed, if all that is added is in sync; else the state."""
    if not is_under_way(state) or not set(state.adding) <= set(state.isr):
        return state
    isr = _without(state.isr, state.removing)
    if not isr:
        return state
    changed = msgspec.structs.replace(
        state,
        replicas=_without(state.replicas, state.removing),
        adding=(),
        removing=(),
        isr=isr,
    )
    return _led(changed, state, live)


def _led(changed: PartitionState, before: PartitionState, live: Collection[BrokerId]) -> PartitionState:
    """With a leader that it can have; where a replica is gone, in another epoch, as in Kafka."""
    leader = changed.leader
    if leader not in changed.isr:
        able = (broker for broker in changed.replicas if broker in changed.isr and broker in live)
        leader = next(able, NO_BROKER)
    if leader == changed.leader and set(before.replicas) <= set(changed.replicas):
        return changed
    return msgspec.structs.replace(changed, leader=leader, leader_epoch=LeaderEpoch(changed.leader_epoch + 1))


def _check(target: Replicas, registered: Collection[BrokerId]) -> None:
    if not target:
        raise InvalidReplicaAssignment("the partition must have a replica")
    if len(set(target)) < len(target):
        raise InvalidReplicaAssignment(f"the replicas {list(target)} name a broker more than once")
    unknown = [broker for broker in target if broker not in registered]
    if unknown:
        raise InvalidReplicaAssignment(f"broker {unknown[0]} is not registered")


def _without(brokers: Replicas, others: Collection[BrokerId]) -> Replicas:
    return tuple(broker for broker in brokers if broker not in others)
