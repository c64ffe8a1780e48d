"""Static members: who bears an instance id, and what it may do without a rebalance."""

from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import Groups, Request, subscription


def stable(groups: Groups, *instances: str, version: int = 9) -> list[Request]:
    joins = [groups.join("g", instance_id=name, version=version) for name in instances]
    groups.settle("g")
    leader = next(joined for joined in joins if joined.leads)
    given = {joined.id: name.encode() for joined, name in zip(joins, instances, strict=True)}
    for joined, name in zip(joins, instances, strict=True):
        groups.sync("g", joined, given if joined is leader else None, instance_id=name)
    assert groups["g"].state == "Stable"
    return joins


def test_it_joins_at_once_under_an_id_that_bears_its_name() -> None:
    groups = Groups()
    (joined,) = stable(groups, "i")
    assert joined.id.startswith("i-")


def test_coming_back_causes_no_rebalance() -> None:
    groups = Groups()
    _, follower = stable(groups, "a", "b")
    back = groups.join("g", instance_id="b")
    assert (back.code, back.generation) == (0, 1)
    assert back.id != follower.id
    assert groups["g"].state == "Stable"
    synced = groups.sync("g", back, instance_id="b")
    assert (synced.answer or {})["assignment"] == b"b"
    assert groups.heartbeat("g", follower, instance_id="b").code == ErrorCode.fenced_instance_id
    assert groups.sync("g", follower, instance_id="b").code == ErrorCode.fenced_instance_id
    assert groups.join("g", follower.id, instance_id="b").code == ErrorCode.fenced_instance_id
    left = groups.leave("g", (follower.id, "b")).answer or {}
    assert left["members"][0]["error_code"] == ErrorCode.fenced_instance_id
    commit = groups["g"].validate_commit(follower.id, 1, "b", transactional=False, version=9)
    assert commit == ErrorCode.fenced_instance_id


def test_a_leader_that_comes_back_does_not_assign_again() -> None:
    groups = Groups()
    stable(groups, "a", "b")
    back = groups.join("g", instance_id="a")
    assert back.leads
    assert back.answer is not None
    assert back.answer["skip_assignment"] is True
    assert len(back.answer["members"]) == 2
    assert groups["g"].leader == back.id


def test_before_version_9_it_is_told_that_somebody_else_leads() -> None:
    groups = Groups()
    leader, _ = stable(groups, "a", "b", version=8)
    back = groups.join("g", instance_id="a", version=8)
    assert (back.answer or {})["leader"] == leader.id != back.id
    assert (back.answer or {})["members"] == []
    assert groups["g"].leader == back.id


def test_coming_back_with_other_topics_keeps_the_assignment_as_kafka_does() -> None:
    groups = Groups()
    stable(groups, "a")
    back = groups.join("g", instance_id="a", protocols={"range": subscription("other")})
    assert back.generation == 1
    assert groups["g"].members[back.id].metadata("range") == subscription("other")


def test_coming_back_with_another_protocol_is_a_rebalance() -> None:
    groups = Groups()
    both = {"range": b"", "sticky": b""}
    joins = [groups.join("g", instance_id=name, protocols=both) for name in "ab"]
    groups.settle("g")
    leader, follower = sorted(joins, key=lambda joined: not joined.leads)
    groups.sync("g", leader, {})
    groups.sync("g", follower)
    assert groups["g"].protocol == "range"
    back = groups.join("g", instance_id="b", protocols={"sticky": b""})
    assert back.waits
    assert groups["g"].state == "PreparingRebalance"
    groups.join("g", leader.id, instance_id="a", protocols=both)
    assert (back.answer or {})["protocol_name"] == "sticky"


def test_coming_back_in_the_middle_of_a_rebalance() -> None:
    groups = Groups()
    leader, follower = stable(groups, "a", "b")
    waiting = groups.join("g", leader.id, instance_id="a")
    assert waiting.waits
    twin = groups.join("g", instance_id="a")
    assert waiting.code == ErrorCode.fenced_instance_id
    assert twin.waits
    groups.join("g", follower.id, instance_id="b")
    assert (twin.generation, twin.leads) == (2, True)


def test_coming_back_while_assignments_are_made() -> None:
    groups = Groups()
    joins = [groups.join("g", instance_id=name) for name in "ab"]
    groups.settle("g")
    leader, follower = sorted(joins, key=lambda joined: not joined.leads)
    name = "b" if leader is joins[0] else "a"
    waiting = groups.sync("g", follower, instance_id=name)
    groups.join("g", instance_id=name)
    assert waiting.code == ErrorCode.fenced_instance_id
    assert groups["g"].state == "PreparingRebalance"


def test_it_may_be_away_for_its_session_without_a_rebalance() -> None:
    groups = Groups()
    leader, _ = stable(groups, "a", "b")
    groups.pass_ms(9000)
    groups.heartbeat("g", leader, instance_id="a")
    assert groups["g"].state == "Stable"
    groups.pass_ms(1000)
    assert list(groups["g"].static) == ["a"], "and no longer"
    assert groups["g"].state == "PreparingRebalance"


def test_one_who_is_away_stays_a_member_when_others_rebalance() -> None:
    groups = Groups()
    joins = [groups.join("g", instance_id=n, rebalance_timeout_ms=5000) for n in "ab"]
    groups.settle("g")
    leader, away = sorted(joins, key=lambda joined: not joined.leads)
    groups.sync("g", leader, {})
    groups.sync("g", away)
    again = groups.join("g", leader.id, instance_id="a", rebalance_timeout_ms=5000)
    groups.pass_ms(5000)
    assert again.generation == 2
    assert away.id in groups["g"].members


def test_static_members_are_removed_by_instance() -> None:
    groups = Groups()
    stable(groups, "a", "b")
    answer = groups.leave("g", ("", "a"), ("", "x"), ("", None)).answer or {}
    assert [member["error_code"] for member in answer["members"]] == [
        0,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert list(groups["g"].static) == ["b"]


def test_a_takeover_that_cannot_be_written_did_not_happen() -> None:
    groups = Groups()
    leader, _ = stable(groups, "a", "b")
    groups.losing = True
    refused = groups.join("g", instance_id="a")
    assert refused.code == ErrorCode.not_coordinator
    assert groups.heartbeat("g", leader, instance_id="a").code == 0
    groups.losing = False
    assert groups.join("g", instance_id="a").code == 0


def test_a_takeover_that_cannot_be_written_leaves_the_session_watched() -> None:
    groups = Groups()
    stable(groups, "a")
    groups.losing = True
    groups.join("g", instance_id="a")
    groups.losing = False
    groups.pass_ms(30_000)
    assert groups["g"].state == "Empty"


def test_everybody_away_and_then_gone() -> None:
    groups = Groups()
    joins = [
        groups.join("g", instance_id=n, rebalance_timeout_ms=500, session_timeout_ms=20_000) for n in "ab"
    ]
    groups.settle("g")
    leader, away = sorted(joins, key=lambda joined: not joined.leads)
    groups.sync("g", leader, {})
    groups.sync("g", away)
    groups.leave("g", (leader.id, "a"))
    groups.pass_ms(19_000)
    assert groups["g"].state == "PreparingRebalance"
    groups.pass_ms(10_000)
    assert groups["g"].state == "Empty"
