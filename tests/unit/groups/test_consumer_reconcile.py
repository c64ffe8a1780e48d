"""A member's steps from what it holds to its target, one rule a test."""

from uuid import UUID

from anabranch.groups.consumer_member import Member, MemberState
from anabranch.groups.consumer_reconcile import owns_only, reconcile

T, U = UUID(int=1), UUID(int=2)


def held(*partitions, epoch=1):
    return {T: dict.fromkeys(partitions, epoch)} if partitions else {}


def meant(*partitions):
    return {T: frozenset(partitions)} if partitions else {}


def step(member, target, epoch, owned=None, free=lambda topic, partition: True):
    return reconcile(member, target, epoch, owned, free)


STABLE = Member(member_id="m", epoch=1, assigned=held(0, 1))


def test_at_its_target_nothing_happens():
    assert step(STABLE, meant(0, 1), 1) is STABLE


def test_what_is_free_is_given_at_once_with_the_epoch():
    after = step(STABLE, meant(0, 1, 2), 2)
    assert (after.state, after.epoch, after.previous_epoch) == (MemberState.STABLE, 2, 1)
    assert after.assigned == {T: {0: 1, 1: 1, 2: 2}}


def test_nothing_is_given_before_what_must_go_is_given_up():
    after = step(STABLE, meant(1, 2), 2)
    assert (after.state, after.epoch) == (MemberState.UNREVOKED, 1)
    assert (after.assigned, after.revoking) == (held(1), held(0))
    assert step(after, meant(1, 2), 2) is after  # it says nothing of what it owns
    assert step(after, meant(1, 2), 2, owned=meant(0, 1)) is after  # it says it still owns it
    done = step(after, meant(1, 2), 2, owned=meant(1))
    assert (done.state, done.epoch, done.revoking) == (MemberState.STABLE, 2, {})
    assert done.assigned == {T: {1: 1, 2: 2}}


def test_what_others_hold_is_waited_for_at_the_new_epoch():
    busy = {2, 3}

    def free(topic, partition):
        return partition not in busy

    waiting = step(STABLE, meant(0, 1, 2, 3), 2, free=free)
    assert (waiting.state, waiting.epoch) == (MemberState.UNRELEASED, 2)
    assert waiting.assigned == held(0, 1)
    assert step(waiting, meant(0, 1, 2, 3), 2, free=free) is waiting
    busy.remove(2)
    more = step(waiting, meant(0, 1, 2, 3), 2, free=free)
    assert more.state is MemberState.UNRELEASED
    assert set(more.assigned[T]) == {0, 1, 2}
    busy.clear()
    assert step(more, meant(0, 1, 2, 3), 2, free=free).state is MemberState.STABLE


def test_a_target_that_changes_its_mind_gives_back_what_was_given_up():
    revoking = step(STABLE, meant(1), 2)
    back = step(revoking, meant(0, 1), 3, owned=meant(1), free=lambda topic, partition: partition != 0)
    assert back.state is MemberState.STABLE
    assert back.epoch == 3
    assert back.assigned == {T: {0: 3, 1: 1}}


def test_who_owns_nothing_gives_nothing_up():
    after = step(STABLE, {}, 2, owned={})
    assert (after.state, after.epoch, after.assigned) == (MemberState.STABLE, 2, {})


def test_owning_less_than_assigned_is_fine():
    assert owns_only({}, held(0))
    assert owns_only(meant(0), held(0, 1))
    assert not owns_only(meant(2), held(0))
    assert not owns_only({U: frozenset({0})}, held(0))
    assert not owns_only(None, held(0))
