"""Elections: the state of a partition after brokers have come or gone, as Kafka decides it.

    replicas 1 2 3, in sync 1 2 3, 1 leads
      1 goes                      2 leads, in sync 2 3
      2 and 3 go, too             nobody leads, in sync 3 if it was the last to go: only it may lead again
      1 comes back                nobody leads, or, if the topic allows unclean elections, 1, alone in sync
      3 comes back                3 leads, in sync 3

A broker that restarted counts as one that went and came back, even if nobody saw it gone: what it had not
written to its disk may be lost, so others lead if they can, and it gets another epoch if it must lead.  The
one copy of a partition is the exception, there is nothing that it could differ from.

A broker with another data folder than it had, since its disk was wiped or replaced, has nothing of what it
was in sync with.  It leaves the in-sync set before anybody is chosen.  If nobody else is in it another
replica leads, alone in sync: it may lack something, and the others would cut their logs to one that has
nothing.

A broker that stops leads no more where somebody else can, and leaves the in-sync set there.
"""

from collections.abc import Collection
from itertools import chain
from typing import NamedTuple

import msgspec

from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.meta.documents import PartitionState
from anabranch.meta.image import NO_BROKER, ClusterImage, PartitionImage

_NOBODY: frozenset[BrokerId] = frozenset()


class Brokers(NamedTuple):
    """Of which brokers partitions can be."""

    live: Collection[BrokerId]
    stopping: Collection[BrokerId] = _NOBODY
    """Of these, those that want to lead no more."""
    restarted: Collection[BrokerId] = _NOBODY
    """Of these, those that were gone since the state was written, seen or unseen."""
    emptied: Collection[BrokerId] = _NOBODY
    """Of these, those with another data folder than they had."""

    def is_steady(self, broker: BrokerId) -> bool:
        return broker in self.live and broker not in self.stopping and broker not in self.restarted


def brokers_of(
    image: ClusterImage,
    restarted: Collection[BrokerId] = _NOBODY,
    emptied: Collection[BrokerId] = _NOBODY,
) -> Brokers:
    stopping = frozenset(broker.id for broker in image.brokers.values() if broker.gives_way)
    return Brokers(image.brokers, stopping, restarted, emptied)


def is_settled(state: PartitionState | PartitionImage, brokers: Brokers) -> bool:
    """Whether the brokers give no reason to change the state: quick, most are."""
    if state.leader == NO_BROKER:
        return False
    if len(state.replicas) == 1:
        return state.leader in brokers.live
    return all(map(brokers.is_steady, state.isr))


def settle(state: PartitionState, brokers: Brokers, *, is_unclean: bool) -> PartitionState:
    """The state with these brokers; the same object if there is nothing to change.

    `is_unclean` allows a leader that was not in sync where no other is left.
    """
    if is_settled(state, brokers):
        return state
    if len(state.replicas) == 1:
        brokers = Brokers(brokers.live)
    leader, isr = _choice(state, brokers, is_unclean)
    is_elected = leader != state.leader or leader in brokers.restarted
    if not is_elected and isr == state.isr:
        return state
    return msgspec.structs.replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + is_elected),
        partition_epoch=state.partition_epoch + 1,
        isr=isr,
    )


def _choice(
    state: PartitionState, brokers: Brokers, is_unclean: bool
) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    """Who leads, and who is in sync."""
    in_sync = tuple(broker for broker in state.isr if broker not in brokers.emptied)
    if not in_sync:
        others = tuple(broker for broker in state.replicas if broker not in brokers.emptied)
        if others:  # what was in sync is gone, whoever leads
            return _of_the_others(others, brokers)
        in_sync = state.isr
    steady = tuple(filter(brokers.is_steady, in_sync))
    if steady:
        return _first(state, steady), steady
    left = tuple(broker for broker in in_sync if broker in brokers.live)
    if left:  # they stop or have restarted, and are all there is
        return _first(state, left), left
    if is_unclean:
        for broker in state.replicas:
            if broker in brokers.live:
                return broker, (broker,)
    return NO_BROKER, in_sync


def _of_the_others(others: tuple[BrokerId, ...], brokers: Brokers) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    steady = (broker for broker in others if brokers.is_steady(broker))
    live = (broker for broker in others if broker in brokers.live)
    leader = next(chain(steady, live), None)
    return (NO_BROKER, others) if leader is None else (leader, (leader,))


def _first(state: PartitionState, able: Collection[BrokerId]) -> BrokerId:
    """The leader that there is, else the first replica that can."""
    return state.leader if state.leader in able else next(filter(able.__contains__, state.replicas))


def elect_preferred(state: PartitionState, live: Collection[BrokerId]) -> PartitionState | None:
    """The state with its first replica as the leader; None if that one is away or not in sync."""
    preferred = state.replicas[0]
    if preferred == state.leader:
        return state
    if preferred not in live or preferred not in state.isr:
        return None
    return msgspec.structs.replace(
        state,
        leader=preferred,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        partition_epoch=state.partition_epoch + 1,
    )
