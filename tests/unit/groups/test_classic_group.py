"""A classic group as offsets, listings and restarts see it."""

import pytest

from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.records import GroupMetadata, MemberMetadata
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import Groups, subscription


def commit(group: ClassicGroup, member_id: str, epoch: int, *, transactional: bool = False) -> int:
    return group.validate_commit(member_id, epoch, None, transactional=transactional, version=9)


def test_who_may_commit() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    group = groups["g"]
    assert commit(group, only.id, 1) == 0
    assert commit(group, only.id, 2) == ErrorCode.illegal_generation
    assert commit(group, "x", 1) == ErrorCode.unknown_member_id
    assert commit(group, "", -1) == ErrorCode.unknown_member_id, "it has members"
    assert commit(group, "", -1, transactional=True) == 0
    joined = groups.join("g", only.id)
    assert commit(group, joined.id, 2) == ErrorCode.rebalance_in_progress
    assert commit(group, joined.id, 2, transactional=True) == 0
    assert commit(ClassicGroup("new"), "", -1) == 0, "a client without a group"


def test_a_member_may_commit_while_it_is_asked_to_join_again() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    groups.join_twice("g")
    assert groups["g"].state == "PreparingRebalance"
    assert commit(groups["g"], only.id, 1) == 0


def test_offsets_age_when_nobody_reads() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1, protocols={"range": subscription("t", "u")})
    group = groups["g"]
    assert group.is_subscribed_to("u")
    assert not group.is_subscribed_to("v")
    assert group.ages_from(5) == 5
    groups.join("g", only.id)
    assert group.ages_from(5) is None, "in a rebalance nothing ages"
    groups.leave("g", (only.id, None))
    assert not group.is_subscribed_to("t")
    assert group.ages_from(5) == groups.now_ms
    assert ClassicGroup("simple").ages_from(5) == 5


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\0\0\0\5", b"\0\1\0\0\0\1\0\1\xff"])
def test_a_subscription_that_cannot_be_read_keeps_every_offset_young(metadata: bytes) -> None:
    groups = Groups()
    groups.make_stable("g", 1, protocols={"range": metadata})
    assert groups["g"].is_subscribed_to("anything")
    assert groups["g"].ages_from(5) is None


def test_a_description() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    described = groups.part.describe("g") or {}
    member = described["members"][0]
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
    assert (member["client_id"], member["client_host"]) == ("app", "/127.0.0.1")
    assert (member["member_metadata"], member["member_assignment"]) == (subscription("t"), b"0")
    groups.join("g", only.id)
    described = groups.part.describe("g") or {}
    assert (described["group_state"], described["protocol_data"]) == ("CompletingRebalance", "")
    assert described["members"][0]["member_metadata"] == b""
    assert groups.part.describe("other") is None


def test_a_restart_finds_the_generation_and_its_members() -> None:
    groups = Groups()
    leader, follower = groups.make_stable("g", 2)
    groups.restart()
    group = groups["g"]
    assert (group.state, group.generation, group.leader, group.protocol) == ("Stable", 1, leader.id, "range")
    assert groups.heartbeat("g", follower).code == 0
    assert (groups.sync("g", leader).answer or {})["assignment"] == b"0"
    assert group.is_subscribed_to("t")


def test_after_a_restart_members_have_one_session_to_be_heard_of() -> None:
    groups = Groups()
    leader, _ = groups.make_stable("g", 2)
    groups.pass_ms(9000)
    groups.restart()
    groups.pass_ms(9000)
    groups.heartbeat("g", leader)
    groups.pass_ms(1000)
    assert list(groups["g"].members) == [leader.id]


def test_after_a_restart_an_unfinished_generation_is_joined_again() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    joined = groups.join("g", only.id)
    assert joined.generation == 2
    groups.restart()
    assert groups.sync("g", joined, {}).code == ErrorCode.illegal_generation
    assert groups.join("g", only.id).generation == 2


def test_after_a_restart_an_empty_group_goes_on_counting() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    groups.leave("g", (only.id, None))
    groups.restart()
    assert (groups["g"].state, groups["g"].generation) == ("Empty", 2)
    joined = groups.join_twice("g")
    groups.settle("g")
    assert joined.generation == 3


def test_a_static_member_that_took_over_is_found_again() -> None:
    groups = Groups()
    joined = groups.join("g", instance_id="i")
    groups.settle("g")
    groups.sync("g", joined, {joined.id: b"all"})
    back = groups.join("g", instance_id="i", protocols={"range": subscription("t"), "sticky": b""})
    assert [protocol.name for protocol in groups["g"].members[back.id].protocols] == ["range", "sticky"]
    groups.restart()
    assert groups["g"].static == {"i": back.id}
    assert groups["g"].members[back.id].assignment == b"all"


def test_a_deleted_group_is_forgotten() -> None:
    groups = Groups()
    (only,) = groups.make_stable("g", 1)
    groups.leave("g", (only.id, None))
    for key, value in groups["g"].tombstones():
        groups.log.append((key, value))
        groups.part.replay(key, value)
    assert "g" not in groups.groups
    groups.restart()
    assert "g" not in groups.groups


def test_what_older_brokers_wrote_is_understood() -> None:
    group = ClassicGroup("g")
    member = MemberMetadata("m", None, "app", "/h", -1, 30_000, b"", b"a")
    group.restore(GroupMetadata("consumer", 4, "range", "gone", -1, (member,)))
    assert group.members["m"].rebalance_timeout_ms == 30_000
    assert group.leader == "m"
    group.restore(GroupMetadata("consumer", 5, None, None, -1, ()))
    assert group.ages_from(7) == 7, "nobody knows since when it is empty"


def test_states_follow_one_another_as_the_table_says() -> None:
    group = ClassicGroup("g")
    with pytest.raises(AssertionError):
        group.go(type(group.state).STABLE, 0)
