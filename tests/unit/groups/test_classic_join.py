"""JoinGroup: who becomes a member, of which generation, and what it is told."""

from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import Groups, subscription


def test_a_dynamic_member_is_given_an_id_and_comes_again_with_it() -> None:
    groups = Groups()
    first = groups.join("g", client_id="app")
    assert first.code == ErrorCode.member_id_required
    assert first.id.startswith("app-")
    second = groups.join("g", first.id)
    assert second.waits
    groups.pass_ms(3000)
    assert (second.code, second.generation, second.id, second.leads) == (0, 1, first.id, True)
    assert second.answer is not None
    assert second.answer["protocol_name"] == "range"
    assert second.answer["protocol_type"] == "consumer"
    assert [member["member_id"] for member in second.answer["members"]] == [first.id]


def test_before_version_4_it_joins_at_once() -> None:
    groups = Groups()
    joined = groups.join("g", version=3)
    groups.pass_ms(3000)
    assert joined.code == 0
    assert joined.id.startswith("app-")


def test_an_id_that_was_promised_is_forgotten_after_a_session() -> None:
    groups = Groups()
    promised = groups.join("g")
    groups.pass_ms(10_000)
    assert groups.join("g", promised.id).code == ErrorCode.unknown_member_id


def test_what_cannot_be_a_join() -> None:
    groups = Groups()
    assert groups.join("").code == ErrorCode.invalid_group_id
    assert groups.join("g" * 5000).code == ErrorCode.invalid_group_id
    assert groups.join("g", session_timeout_ms=5999).code == ErrorCode.invalid_session_timeout
    assert groups.join("g", session_timeout_ms=1_800_001).code == ErrorCode.invalid_session_timeout
    assert groups.join("g", protocol_type="x" * 5000).code == ErrorCode.invalid_request
    assert groups.join("g", "never-seen").code == ErrorCode.unknown_member_id
    assert groups.join("g", protocols={}).code == ErrorCode.inconsistent_group_protocol
    assert groups.join("g", protocol_type="").code == ErrorCode.inconsistent_group_protocol
    assert not groups.groups, "nothing is left of what was refused"


def test_members_started_at_once_are_one_generation() -> None:
    groups = Groups()
    joins = []
    for _ in range(10):
        joins.append(groups.join_twice("g"))
        groups.pass_ms(500)
    groups.settle("g")
    assert {joined.generation for joined in joins} == {1}
    assert sum(joined.leads for joined in joins) == 1
    told = [len((joined.answer or {})["members"]) for joined in joins]
    assert sorted(told) == [0] * 9 + [10], "only the leader is told who is in"


def test_the_first_rebalance_is_held_open_while_members_come_up_to_the_rebalance_timeout() -> None:
    groups = Groups()
    first = groups.join_twice("g", rebalance_timeout_ms=8000)
    started_ms = groups.now_ms
    while first.waits:
        groups.join_twice("g", rebalance_timeout_ms=8000)
        groups.pass_ms(100)
    assert groups.now_ms - started_ms == 8000


def test_without_a_delay_the_first_member_has_its_generation_at_once() -> None:
    groups = Groups(initial_rebalance_delay_ms=0)
    joined = groups.join_twice("g")
    groups.pass_ms(0)
    assert joined.generation == 1


def test_the_protocol_with_most_votes_that_all_know_is_selected() -> None:
    groups = Groups()
    likes = [("range", "sticky"), ("sticky", "range"), ("sticky", "range", "roundrobin")]
    joins = [groups.join_twice("g", protocols=dict.fromkeys(names, b"")) for names in likes]
    groups.settle("g")
    assert {(joined.answer or {})["protocol_name"] for joined in joins} == {"sticky"}


def test_a_member_with_nothing_in_common_is_refused() -> None:
    groups = Groups()
    groups.make_stable("g", 2)
    assert groups.join("g", protocols={"sticky": b""}).code == ErrorCode.inconsistent_group_protocol
    assert groups.join("g", protocol_type="connect").code == ErrorCode.inconsistent_group_protocol
    assert groups["g"].state == "Stable"


def test_a_group_may_change_its_protocol_type_once_it_is_empty() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    groups.leave("g", (only.id, None))
    assert groups["g"].state == "Empty"
    assert groups.join("g", protocol_type="connect").code == ErrorCode.member_id_required


def test_a_newcomer_waits_until_the_others_have_joined_again() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    newcomer = groups.join_twice("g")
    assert groups["g"].state == "PreparingRebalance"
    assert groups.heartbeat("g", leader).code == ErrorCode.rebalance_in_progress
    again = groups.join("g", leader.id)
    assert newcomer.waits
    assert again.waits
    other = groups.join("g", follower.id)
    assert (newcomer.generation, again.generation, other.generation) == (2, 2, 2)
    assert again.leads, "who led goes on leading"


def test_who_does_not_join_again_in_time_is_out() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    newcomer = groups.join_twice("g")
    groups.join("g", follower.id)
    for _ in range(12):
        groups.heartbeat("g", leader)
        groups.pass_ms(5000)
    assert newcomer.generation == 2
    assert leader.id not in groups["g"].members
    assert groups["g"].leader == follower.id
    assert groups.heartbeat("g", leader).code == ErrorCode.unknown_member_id
    assert groups.sync("g", leader).code == ErrorCode.unknown_member_id


def test_one_who_was_promised_an_id_is_waited_for_but_not_forever() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    groups.join("g")  # promised, and never seen again
    newcomer = groups.join_twice("g")
    again = groups.join("g", only.id)
    assert again.waits
    groups.pass_ms(10_000)
    assert (newcomer.generation, again.generation) == (2, 2)


def test_a_follower_that_asks_again_with_nothing_new_is_told_what_is() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    told = groups.join("g", follower.id)
    assert (told.generation, told.leads) == (1, False)
    assert groups["g"].state == "Stable"
    changed = groups.join("g", follower.id, protocols={"range": subscription("other")})
    assert changed.waits
    assert groups["g"].state == "PreparingRebalance"
    assert groups.join("g", leader.id).generation == 2


def test_a_leader_that_joins_again_makes_a_generation() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    again = groups.join("g", leader.id)
    assert again.waits
    groups.join("g", follower.id)
    assert again.generation == 2
    assert again.leads


def test_an_answer_that_got_lost_can_be_asked_for_again() -> None:
    groups = Groups()
    joined = groups.join_twice("g")
    groups.settle("g")
    again = groups.join("g", joined.id)
    assert (again.generation, again.leads) == (1, True)
    assert again.answer is not None
    assert len(again.answer["members"]) == 1


def test_a_join_sent_twice_is_answered_twice() -> None:
    groups = Groups()
    leader, _ = groups.make_stable("g", 2)
    first = groups.join("g", leader.id)
    second = groups.join("g", leader.id)
    assert first.code == ErrorCode.rebalance_in_progress
    assert second.waits


def test_a_group_has_a_greatest_size() -> None:
    groups = Groups(max_size=2)
    groups.make_stable("g", 2)
    refused = groups.join("g")
    assert (refused.code, refused.id) == (ErrorCode.group_max_size_reached, "")
    assert groups["g"].state == "Stable"


def test_the_last_to_join_again_are_out_when_the_greatest_size_was_lowered() -> None:
    groups = Groups()
    joins = groups.make_stable("g", 3)
    groups.config = type(groups.config)(max_size=2)
    groups.restart()
    assert groups["g"].state == "PreparingRebalance"
    codes = [groups.join("g", joined.id) for joined in joins]
    assert [c.code for c in codes] == [0, 0, ErrorCode.group_max_size_reached]
    assert len(groups["g"].members) == 2


def test_a_new_member_that_waits_for_too_long_is_not_there() -> None:
    groups = Groups()
    leader, _ = groups.make_stable("g", 2, rebalance_timeout_ms=1_000_000)
    newcomer = groups.join_twice("g", rebalance_timeout_ms=1_000_000)
    for _ in range(60):
        groups.heartbeat("g", leader)
        groups.pass_ms(5000)
    assert newcomer.code == ErrorCode.unknown_member_id
