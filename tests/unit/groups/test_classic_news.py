"""Heartbeats that are held: members hear of a rebalance when it begins, and together."""

from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import Groups


def test_a_held_heartbeat_is_answered_after_a_while() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1, session_timeout_ms=45_000)
    held = groups.heartbeat("g", only, may_hold=True)
    groups.pass_ms(2999)
    assert held.waits
    groups.pass_ms(1)
    assert held.code == 0


def test_it_is_held_for_a_third_of_the_session_at_most() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1, session_timeout_ms=6000)
    held = groups.heartbeat("g", only, may_hold=True)
    groups.pass_ms(2000)
    assert held.code == 0


def test_the_first_after_a_restart_is_answered_at_once() -> None:
    groups = Groups()
    joins = groups.make_stable("g", 2, session_timeout_ms=6000)
    for _ in range(3):
        groups.heartbeat("g", joins[0], may_hold=True)
        groups.pass_ms(1500)
        groups.restart()
        assert [groups.heartbeat("g", joined, may_hold=True).code for joined in joins] == [0, 0]
    assert groups.heartbeat("g", joins[0], may_hold=True).waits


def test_holding_does_not_make_a_session_longer() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    groups.heartbeat("g", only, may_hold=True)
    groups.pass_ms(10_000)
    assert groups["g"].state == "Empty"


def test_a_rebalance_is_told_shortly_after_it_begins() -> None:
    groups = Groups()
    joins = groups.make_stable("g", 3)
    held = [groups.heartbeat("g", joined, may_hold=True) for joined in joins]
    newcomer = groups.join_twice("g")
    assert all(heartbeat.waits for heartbeat in held)
    groups.pass_ms(200)
    assert [heartbeat.code for heartbeat in held] == [ErrorCode.rebalance_in_progress] * 3
    for joined in joins:
        groups.join("g", joined.id)
    assert newcomer.generation == 2


def test_ten_who_come_at_once_are_one_generation() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    held = groups.heartbeat("g", only, may_hold=True)
    newcomers = []
    for _ in range(10):
        newcomers.append(groups.join_twice("g"))
        groups.pass_ms(60)
    assert held.waits
    groups.pass_ms(200)
    again = groups.join("g", only.id)
    assert {joined.generation for joined in (again, *newcomers)} == {2}


def test_news_are_not_kept_back_for_ever() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    held = groups.heartbeat("g", only, may_hold=True)
    for _ in range(10):
        groups.join_twice("g")
        groups.pass_ms(100)
    assert held.code == ErrorCode.rebalance_in_progress


def test_one_that_arrives_before_the_news_hears_them_with_the_others() -> None:
    groups = Groups()
    first, second = groups.make_stable("g", 2)
    groups.heartbeat("g", first, may_hold=True)
    groups.join_twice("g")
    late = groups.heartbeat("g", second, may_hold=True)
    assert late.waits
    groups.pass_ms(200)
    assert late.code == ErrorCode.rebalance_in_progress


def test_with_nobody_to_tell_there_is_nothing_to_wait_for() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    groups.join_twice("g")
    told = groups.heartbeat("g", only, may_hold=True)
    assert told.code == ErrorCode.rebalance_in_progress


def test_whoever_is_out_is_told_so() -> None:
    groups = Groups()
    joined = groups.join("g", instance_id="i")
    groups.settle("g")
    groups.sync("g", joined, {})
    held = groups.heartbeat("g", joined, instance_id="i", may_hold=True)
    groups.join("g", instance_id="i")
    assert held.code == ErrorCode.fenced_instance_id
    (other,) = groups.make_stable("h", 1)
    held = groups.heartbeat("h", other, may_hold=True)
    groups.leave("h", (other.id, None))
    assert held.code == ErrorCode.unknown_member_id


def test_a_second_heartbeat_sets_the_first_free() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    first = groups.heartbeat("g", only, may_hold=True)
    second = groups.heartbeat("g", only, may_hold=True)
    assert first.code == 0
    assert second.waits
