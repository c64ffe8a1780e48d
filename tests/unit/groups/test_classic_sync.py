"""SyncGroup, Heartbeat, LeaveGroup and the timers: from a join to the next one."""

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import Groups


def test_everybody_gets_what_the_leader_says() -> None:
    groups = Groups()
    joins = [groups.join_twice("g") for _ in range(3)]
    groups.settle("g")
    leader, *followers = sorted(joins, key=lambda joined: not joined.leads)
    early = groups.sync("g", followers[0])
    assert early.waits
    led = groups.sync("g", leader, {leader.id: b"a", followers[0].id: b"b"})
    late = groups.sync("g", followers[1])
    assert [(s.answer or {})["assignment"] for s in (led, early, late)] == [b"a", b"b", b""]
    assert (led.answer or {})["protocol_name"] == "range"
    assert groups["g"].state == "Stable"


def test_nobody_is_told_of_an_assignment_that_may_be_lost() -> None:
    """Only errors are told all the same: they promise nothing."""
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    groups.has_lost = True
    assert groups.sync("g", follower).code == ErrorCode.not_coordinator
    assert groups.heartbeat("g", leader, may_hold=False).code == ErrorCode.not_coordinator
    assert groups.sync("g", follower, generation=7).code == ErrorCode.illegal_generation


def test_a_sync_of_the_wrong_kind() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    assert groups.sync("g", only, generation=7).code == ErrorCode.illegal_generation
    assert groups.sync("g", only, member_id="x").code == ErrorCode.unknown_member_id
    assert groups.sync("g", only, instance_id="i").code == ErrorCode.unknown_member_id
    assert groups.sync("g", only, protocol="sticky").code == ErrorCode.inconsistent_group_protocol
    assert groups.sync("g", only, protocol_type="connect").code == ErrorCode.inconsistent_group_protocol
    assert groups.sync("g", only, protocol_type=None, protocol=None).code == 0
    assert groups.sync("other", only).code == ErrorCode.unknown_member_id
    assert groups.sync("", only).code == ErrorCode.invalid_group_id


def test_a_sync_during_a_rebalance() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    groups.join("g", leader.id)
    assert groups.sync("g", follower).code == ErrorCode.rebalance_in_progress


def test_who_waits_for_its_assignment_joins_again_when_somebody_comes() -> None:
    groups = Groups()
    joins = [groups.join_twice("g") for _ in range(2)]
    groups.settle("g")
    leader, follower = sorted(joins, key=lambda joined: not joined.leads)
    waiting = groups.sync("g", follower)
    groups.join_twice("g")
    assert waiting.code == ErrorCode.rebalance_in_progress
    assert groups.sync("g", leader, {}).code == ErrorCode.rebalance_in_progress


def test_a_leader_that_dies_before_it_assigns() -> None:
    groups = Groups()
    joins = [groups.join_twice("g") for _ in range(2)]
    groups.settle("g")
    leader, follower = sorted(joins, key=lambda joined: not joined.leads)
    waiting = groups.sync("g", follower)
    groups.pass_ms(10_000)
    assert waiting.code == ErrorCode.rebalance_in_progress
    again = groups.join("g", follower.id)
    assert (again.generation, again.leads) == (2, True)
    assert leader.id not in groups["g"].members


def test_a_leader_that_heartbeats_and_never_assigns() -> None:
    groups = Groups()
    joins = [groups.join_twice("g", rebalance_timeout_ms=30_000) for _ in range(2)]
    groups.settle("g")
    leader, follower = sorted(joins, key=lambda joined: not joined.leads)
    waiting = groups.sync("g", follower)
    for _ in range(6):
        groups.heartbeat("g", leader)
        groups.pass_ms(5000)
    assert waiting.code == ErrorCode.rebalance_in_progress
    assert list(groups["g"].members) == [follower.id]


def test_a_member_that_joins_and_never_syncs() -> None:
    groups = Groups()
    joins = [groups.join_twice("g", rebalance_timeout_ms=30_000) for _ in range(2)]
    groups.settle("g")
    leader, follower = sorted(joins, key=lambda joined: not joined.leads)
    groups.sync("g", leader, {leader.id: b"a", follower.id: b"b"})
    assert groups["g"].state == "Stable"
    for _ in range(6):
        groups.heartbeat("g", leader)
        groups.heartbeat("g", follower)
        groups.pass_ms(5000)
    assert list(groups["g"].members) == [leader.id]
    assert groups["g"].state == "PreparingRebalance"
    assert groups.join("g", leader.id).generation == 2


def test_assignments_that_cannot_be_written_are_not_given() -> None:
    groups = Groups()
    joins = [groups.join_twice("g") for _ in range(2)]
    groups.settle("g")
    leader, follower = sorted(joins, key=lambda joined: not joined.leads)
    waiting = groups.sync("g", follower)
    groups.losing = True
    led = groups.sync("g", leader, {leader.id: b"a"})
    assert led.code == waiting.code == ErrorCode.not_coordinator
    assert groups["g"].state == "CompletingRebalance"
    groups.losing = False
    assert groups.join("g", leader.id).generation == 1, "it finds its generation again"
    assert groups.sync("g", leader, {leader.id: b"a", follower.id: b"b"}).code == 0
    assert (groups.sync("g", follower).answer or {})["assignment"] == b"b"


def test_heartbeats() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    assert groups.heartbeat("g", only).code == 0
    assert groups.heartbeat("g", only, generation=2).code == ErrorCode.illegal_generation
    assert groups.heartbeat("g", only, member_id="x").code == ErrorCode.unknown_member_id
    assert groups.heartbeat("g", only, instance_id="x").code == ErrorCode.unknown_member_id
    assert groups.heartbeat("other", only).code == ErrorCode.unknown_member_id
    assert groups.heartbeat("", only).code == ErrorCode.invalid_group_id


def test_a_session_ends_without_a_sign_of_life() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    for _ in range(4):
        groups.pass_ms(5000)
        groups.heartbeat("g", leader)
    assert list(groups["g"].members) == [leader.id]
    assert groups.heartbeat("g", follower).code == ErrorCode.unknown_member_id


@pytest.mark.parametrize("moved_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_ends_no_session_and_keeps_none(moved_ms: int) -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    groups.pass_ms(5000)
    for member in (leader, follower):
        assert groups.heartbeat("g", member).code == 0
    groups.now_ms += moved_ms
    groups.timers = {timer: at_ms + moved_ms for timer, at_ms in groups.timers.items()}
    groups.pass_ms(8000)  # they were looked at, and neither is overdue
    assert len(groups["g"].members) == 2
    for _ in range(6):
        groups.heartbeat("g", leader)
        groups.pass_ms(5000)
    assert list(groups["g"].members) == [leader.id]


def test_a_commit_is_a_sign_of_life() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    for _ in range(4):
        groups.pass_ms(5000)
        assert groups["g"].validate_commit(only.id, 1, None, transactional=False, version=9) == 0
        groups["g"].heard_of(only.id, groups.now_ms)
    assert groups["g"].state == "Stable"


def test_members_that_wait_for_others_do_not_time_out() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    waiting = groups.join("g", leader.id)
    for _ in range(5):
        groups.pass_ms(9000)
        groups.heartbeat("g", follower)
    assert waiting.waits
    groups.join("g", follower.id)
    assert waiting.generation == 2


def test_leaving_one_by_one() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    left = groups.leave("g", (leader.id, None))
    assert left.answer == {
        "error_code": 0,
        "members": [{"member_id": leader.id, "group_instance_id": None, "error_code": 0}],
    }
    assert groups["g"].state == "PreparingRebalance"
    assert groups["g"].leader == follower.id
    groups.leave("g", (follower.id, None))
    assert groups["g"].state == "Empty"
    assert groups["g"].generation == 2
    assert groups["g"].leader is None


def test_many_leave_in_one_request() -> None:
    groups = Groups()
    joins = groups.make_stable("g", 3)
    promised = groups.join("g")
    left = groups.leave("g", *((joined.id, None) for joined in joins[:2]), ("x", None), (promised.id, None))
    codes = [member["error_code"] for member in (left.answer or {})["members"]]
    assert codes == [0, 0, ErrorCode.unknown_member_id, 0]
    assert groups.join("g", joins[2].id).generation == 2


def test_one_who_was_promised_an_id_leaves_without_a_rebalance() -> None:
    groups = Groups()
    groups.make_stable("g", 1)
    promised = groups.join("g")
    groups.leave("g", (promised.id, None))
    assert groups["g"].state == "Stable"


def test_leaving_what_is_not_there() -> None:
    groups = Groups()
    answer = groups.leave("g", ("x", None), ("", "i")).answer or {}
    assert answer["error_code"] == 0
    assert [member["error_code"] for member in answer["members"]] == [ErrorCode.unknown_member_id] * 2
    assert groups.leave("", ("x", None)).code == ErrorCode.invalid_group_id


def test_whoever_waits_and_leaves_is_told() -> None:
    groups = Groups()
    leader, _ = groups.make_stable("g", 2)
    waiting = groups.join("g", leader.id)
    groups.leave("g", (leader.id, None))
    assert waiting.code == ErrorCode.unknown_member_id
