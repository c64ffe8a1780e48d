"""Elections as brokers come and go: by example, and at random against what must always hold."""

from random import Random

import pytest

from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.cluster.elections import Brokers, elect_preferred, is_settled, settle
from anabranch.cluster.partition_states import change_isr, new_state
from anabranch.meta.documents import PartitionState
from anabranch.meta.image import NO_BROKER

B1, B2, B3 = (BrokerId(id) for id in (1, 2, 3))
REPLICAS = (B1, B2, B3)
ALL = frozenset(REPLICAS)


def state(leader: int, leader_epoch: int, partition_epoch: int, *isr: int) -> PartitionState:
    in_sync = tuple(map(BrokerId, isr))
    return PartitionState(BrokerId(leader), LeaderEpoch(leader_epoch), partition_epoch, in_sync, REPLICAS)


def brokers(
    *live: int,
    stopping: tuple[int, ...] = (),
    restarted: tuple[int, ...] = (),
    emptied: tuple[int, ...] = (),
) -> Brokers:
    """Who was emptied has restarted."""
    of = [map(BrokerId, ids) for ids in (live, stopping, restarted + emptied, emptied)]
    return Brokers(*map(frozenset, of))


@pytest.mark.parametrize(
    ("there", "before", "after"),
    [
        (brokers(1, 2, 3), state(1, 0, 0, 1, 2, 3), state(1, 0, 0, 1, 2, 3)),
        (brokers(2, 3), state(1, 0, 0, 1, 2, 3), state(2, 1, 1, 2, 3)),
        (brokers(1, 3), state(1, 0, 0, 1, 2, 3), state(1, 0, 1, 1, 3)),
        (brokers(1, 2), state(3, 4, 9, 3), state(NO_BROKER, 5, 10, 3)),
        (brokers(1, 2), state(NO_BROKER, 5, 10, 3), state(NO_BROKER, 5, 10, 3)),
        (brokers(), state(1, 0, 0, 1, 2, 3), state(NO_BROKER, 1, 1, 1, 2, 3)),
        (brokers(1, 2, 3), state(NO_BROKER, 5, 10, 3), state(3, 6, 11, 3)),
        (brokers(2, 3), state(NO_BROKER, 1, 1, 1, 2, 3), state(2, 2, 2, 2, 3)),
        (brokers(1, 2, 3, stopping=(1,)), state(1, 0, 0, 1, 2, 3), state(2, 1, 1, 2, 3)),
        (brokers(1, 2, 3, stopping=(1,)), state(1, 0, 0, 1), state(1, 0, 0, 1)),
        (brokers(1, 2, 3, stopping=(2,)), state(1, 0, 0, 1, 2), state(1, 0, 1, 1)),
        (brokers(1, 2, 3, restarted=(1,)), state(1, 0, 0, 1, 2, 3), state(2, 1, 1, 2, 3)),
        (brokers(1, 2, 3, restarted=(1,)), state(1, 0, 0, 1), state(1, 1, 1, 1)),
        (brokers(1, 2, 3, restarted=(2,)), state(1, 0, 0, 1, 2), state(1, 0, 1, 1)),
        (brokers(1, restarted=(1,)), state(2, 0, 0, 1, 2), state(1, 1, 1, 1)),
        (brokers(1, emptied=(1,)), state(2, 0, 0, 1, 2), state(NO_BROKER, 1, 1, 2)),
        (brokers(1, 2, emptied=(1,), restarted=(2,)), state(1, 0, 0, 1, 2), state(2, 1, 1, 2)),
        (brokers(1, 2, 3, emptied=(1,), stopping=(2,)), state(1, 0, 0, 1), state(3, 1, 1, 3)),
        (brokers(1, 2, emptied=(1,), stopping=(2,)), state(1, 0, 0, 1), state(2, 1, 1, 2)),
        (brokers(1, emptied=(1,)), state(1, 0, 0, 1), state(NO_BROKER, 1, 1, 2, 3)),
        (brokers(1, 3), state(NO_BROKER, 1, 1, 2, 3), state(3, 2, 2, 3)),
        (brokers(1, 2, 3, emptied=(1, 2, 3)), state(1, 0, 0, 1), state(1, 1, 1, 1)),
    ],
)
def test_by_example(there: Brokers, before: PartitionState, after: PartitionState) -> None:
    found = settle(before, there, is_unclean=False)
    assert found == after
    assert (found is before) == (before == after)


def test_unclean_elections_are_the_last_resort() -> None:
    assert settle(state(1, 0, 0, 1), brokers(2, 3), is_unclean=True) == state(2, 1, 1, 2)
    assert settle(state(1, 0, 0, 1, 3), brokers(2, 3), is_unclean=True) == state(3, 1, 1, 3)
    assert settle(state(1, 0, 0, 1), brokers(), is_unclean=True) == state(NO_BROKER, 1, 1, 1)


def test_the_only_copy_needs_no_new_epoch_for_a_restart() -> None:
    alone = new_state((B1,))
    assert settle(alone, brokers(1, 2, restarted=(1,)), is_unclean=False) is alone
    gone = settle(alone, brokers(2), is_unclean=False)
    assert (gone.leader, gone.leader_epoch, gone.isr) == (NO_BROKER, 1, (1,))
    back = settle(gone, brokers(1, 2), is_unclean=False)
    assert (back.leader, back.leader_epoch, back.isr) == (1, 2, (1,))


def test_the_preferred_leader() -> None:
    assert elect_preferred(state(2, 3, 4, 1, 2), ALL) == state(1, 4, 5, 1, 2)
    leads = state(1, 3, 4, 1, 2)
    assert elect_preferred(leads, ALL) is leads
    assert elect_preferred(state(2, 3, 4, 2, 3), ALL) is None
    assert elect_preferred(state(2, 3, 4, 1, 2), {B2, B3}) is None


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens(seed: int) -> None:
    """One leader per epoch, always of the in-sync set; epochs only rise."""
    chance = Random(seed)
    is_unclean = seed % 3 == 0
    now = new_state(REPLICAS)
    live = set(REPLICAS)
    leaders = {now.leader_epoch: now.leader}
    for _ in range(200):
        before, restarted = now, frozenset[BrokerId]()
        kind = chance.random()
        if kind < 0.6:
            live ^= {chance.choice(REPLICAS)}
        elif kind < 0.7 and live:
            restarted = frozenset((chance.choice(sorted(live)),))
        elif now.leader != NO_BROKER and now.leader in live:
            others = [id for id in sorted(live) if id != now.leader and chance.random() < 0.5]
            isr = [now.leader, *others]
            now = change_isr(now, isr, now.leader_epoch, now.partition_epoch)
        there = Brokers(frozenset(live), restarted=restarted)
        now = settle(now, there, is_unclean=is_unclean)
        assert is_settled(now, Brokers(frozenset(live))) or now.leader == NO_BROKER
        assert leaders.setdefault(now.leader_epoch, now.leader) == now.leader
        assert now.leader_epoch >= before.leader_epoch
        assert now.partition_epoch > before.partition_epoch or now == before
        assert now.isr
        if now.leader != NO_BROKER:
            assert now.leader in now.isr
            assert now.leader in live
            assert is_unclean or set(now.isr) <= set(before.isr) | set(live)
            if not is_unclean and now.leader != before.leader:
                assert now.leader in before.isr or now.leader in live
        else:
            assert not live & set(now.isr)
        if restarted and before.leader in restarted:
            assert now.leader_epoch > before.leader_epoch
