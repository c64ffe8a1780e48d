"""The consumer protocol: who gets what, when, and what is said to whom."""

import pytest

from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.consumer_records import read_key
from anabranch.groups.effects import Producer
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.consumers import GROUP, World, settle
from tests.support.offsets import in_columns


def partitions(client):
    return sorted(p for indexes in client.owned.values() for p in indexes)


def test_the_first_member_gets_everything_at_once():
    world = World({"orders": 4})
    a = world.client("a", "orders")
    answer = a.beat()
    assert answer["member_epoch"] == 2
    assert partitions(a) == [0, 1, 2, 3]
    assert world.group.state == "Stable"
    assert [read_key(key).kind for key, _ in world.log] == [5, 3, 7, 6, 8]


def test_a_second_member_takes_half_and_the_rest_is_read_on():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    a.beat()
    a.beat()
    world.pass_time(500)
    b.beat()
    assert partitions(b) == []
    assert b.epoch == 3
    assert b.interval_ms == 100
    kept = frozenset(partitions(a)) & world.group.targets["a"][world.topics.by_name("orders").topic_id]
    a.beat()
    assert len(kept) == 2
    assert frozenset(partitions(a)) == kept
    assert a.epoch == 2
    assert a.interval_ms == 100
    b.beat()
    assert partitions(b) == []  # a has not said yet that it stopped
    a.beat()
    assert a.epoch == 3
    assert a.interval_ms == 500
    b.beat()
    assert sorted(partitions(a) + partitions(b)) == [0, 1, 2, 3]
    assert b.interval_ms == 500
    assert world.group.state == "Stable"


def test_a_sign_of_life_writes_nothing():
    world = World({"orders": 4})
    a = world.client("a", "orders")
    a.beat()
    written = len(world.log)
    for _ in range(5):
        assert a.beat()["assignment"] is None
        world.pass_time(1000)
    assert len(world.log) == written


def test_whoever_is_not_heard_of_loses_its_partitions_to_the_others():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    settle(a, b)
    for _ in range(46):
        world.pass_time(1000)
        a.beat()
    assert list(world.group.members) == ["a"]
    settle(a)
    assert partitions(a) == [0, 1, 2, 3]
    assert b.beat()["error_code"] == ErrorCode.unknown_member_id


def test_a_group_may_be_told_its_own_timeouts():
    bounds = {"consumer_min_session_timeout_ms": 1000, "consumer_min_heartbeat_interval_ms": 100}
    world = World({"orders": 4}, **bounds)
    world.told[GROUP] = {
        "consumer.session.timeout.ms": "2000",
        "consumer.heartbeat.interval.ms": "200",
        "consumer.assignment.interval.ms": "never",  # by somebody who knew what that means
    }
    a = world.client("a", "orders")
    a.beat()
    assert a.interval_ms == 200
    world.pass_time(1999)
    assert "a" in world.group.members
    world.pass_time(1)
    assert not world.group.members


def test_what_a_group_is_told_is_kept_within_the_bounds_of_today():
    world = World({"orders": 4}, consumer_max_session_timeout_ms=50_000)
    world.told[GROUP] = {"consumer.session.timeout.ms": "60000"}
    world.client("a", "orders").beat()
    world.pass_time(49_999)
    assert world.group.members
    world.pass_time(1)
    assert not world.group.members


def test_the_target_is_there_as_soon_as_a_member_leaves():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    settle(a, b)
    world.pass_time(500)
    b.leave()
    assert world.group.target_epoch == world.group.epoch
    a.beat()
    assert partitions(a) == [0, 1, 2, 3]


def test_a_member_that_does_not_give_up_in_time_is_fenced():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    a.beat()
    world.pass_time(500)
    b.beat()
    a.beat()
    for _ in range(61):  # it is alive, but says nothing of what it owns
        world.pass_time(1000)
        answer = world.ask(member_id="a", epoch=2)
        b.beat()
    assert answer["error_code"] == ErrorCode.unknown_member_id
    assert partitions(b) == [0, 1, 2, 3]


def test_many_that_start_together_are_assigned_a_few_times_only():
    world = World({"orders": 100})
    clients = [world.client(f"m{i:02}", "orders") for i in range(50)]
    for client in clients:
        client.beat()
        world.pass_time(1)
    settle(*clients, rounds=8)
    targets = [value for key, value in world.log if read_key(key).kind == 6]
    assert len(targets) < 10
    assert {client.count for client in clients} == {2}
    assert world.group.state == "Stable"


def test_a_restart_finds_everything_again():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders", instance_id="i", rack_id="r")
    a.beat()
    world.pass_time(500)
    b.beat()
    a.beat()
    world.restart()
    world.restart(compacted=True)
    a.beat()
    b.beat()
    assert sorted(partitions(a) + partitions(b)) == [0, 1, 2, 3]


def test_after_a_restart_members_have_one_session():
    world = World({"orders": 4})
    world.client("a", "orders").beat()
    world.pass_time(40_000)
    world.restart()
    world.pass_time(40_000)
    assert list(world.group.members) == ["a"]
    world.pass_time(5_001)
    assert world.group.is_empty


@pytest.mark.parametrize("change", ["grow", "make", "delete"])
def test_topics_that_change_are_a_new_epoch(change):
    world = World({"orders": 4, "bills": 2})
    a = world.client("a", "orders", "bills", "later")
    a.beat()
    epoch = world.group.epoch
    if change == "grow":
        world.topics.put("orders", 6)
    elif change == "make":
        world.topics.put("later", 2)
    else:
        world.topics.delete("bills")
    world.pass_time(1000)
    a.beat()
    a.beat()
    assert world.group.epoch == epoch + 1
    assert a.count == (8 if change != "delete" else 4)
    assert world.group.state == "Stable"


def test_a_subscription_that_changes_is_followed():
    world = World({"orders": 2, "bills": 2})
    a = world.client("a", "orders")
    a.beat()
    world.pass_time(100)
    bills = world.topics.by_name("bills").topic_id
    answer = world.ask(member_id="a", epoch=2, topic_names=frozenset({"bills"}))
    assert answer["member_epoch"] == 2
    assert answer["assignment"] == {"topic_partitions": []}
    answer = world.ask(member_id="a", epoch=2, owned={})
    assert answer["member_epoch"] == 3
    assert answer["assignment"] == {"topic_partitions": [{"topic_id": bills, "partitions": [0, 1]}]}


def test_what_could_not_be_written_has_not_happened():
    world = World({"orders": 4})
    world.loses_writes = True
    a = world.client("a", "orders")
    assert a.beat()["error_code"] == ErrorCode.coordinator_not_available
    assert world.groups == {}
    world.loses_writes = False
    a.beat()
    assert partitions(a) == [0, 1, 2, 3]


# --- expressions


def test_topics_are_found_by_expression():
    world = World({"orders-eu": 2, "orders-us": 2, "bills": 2})
    a = world.client("a", topic_regex="orders-.*")
    a.beat()
    assert a.count == 4
    world.topics.put("orders-jp", 3)
    world.pass_time(1000)
    a.beat()
    assert a.count == 7
    assert world.group.is_subscribed_to("orders-jp")
    world.restart()


def test_an_expression_nobody_uses_is_forgotten():
    world = World({"orders": 2})
    a, b = world.client("a", topic_regex="or.*"), world.client("b", topic_regex="o.*")
    settle(a, b)
    b.leave()
    assert set(world.group.resolved) == {"or.*"}
    world.restart()


@pytest.mark.parametrize("wrong", ["a(", "(?=a)", "\\1", "a{2000}", "(((a{99}){99}){99}){99}", "x" * 5000])
def test_what_is_no_expression_is_refused(wrong):
    world = World({"orders": 2})
    answer = world.ask(member_id="a", epoch=0, rebalance_timeout_ms=1, owned={}, topic_regex=wrong)
    assert answer["error_code"] == ErrorCode.invalid_regular_expression
    assert world.groups == {}
    assert world.timers == {}


# --- epochs


def test_epochs_that_do_not_fit_are_fenced():
    world = World({"orders": 4})
    a = world.client("a", "orders")
    a.beat()
    for epoch in (1, 3):
        assert world.ask(member_id="a", epoch=epoch)["error_code"] == ErrorCode.fenced_member_epoch
    assert world.ask(member_id="b", epoch=2)["error_code"] == ErrorCode.unknown_member_id


def test_an_answer_that_was_lost_is_given_again():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    a.beat(loses_answer=True)
    a.beat()
    assert partitions(a) == [0, 1, 2, 3]
    assert a.epoch == 2
    world.pass_time(500)
    b.beat()
    a.beat()
    a.beat(loses_answer=True)  # to epoch 3
    again = world.ask(
        member_id="a",
        epoch=2,
        rebalance_timeout_ms=60_000,
        topic_names=frozenset({"orders"}),
        owned=a.owned,
    )
    assert again["member_epoch"] == 3
    assert again["assignment"] is not None


def test_a_member_may_join_again_with_nothing():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    settle(a, b)
    a.epoch = 0
    a.beat()
    assert len(partitions(a)) == 2
    assert a.epoch == 3
    assert world.group.epoch == 3


def test_commits_are_checked_by_epoch():
    world = World({"orders": 4})
    a = world.client("a", "orders")
    a.beat()
    group = world.group

    def check(member_id, epoch, version=9):
        return group.validate_commit(member_id, epoch, None, transactional=False, version=version)

    assert check("a", 2) == ErrorCode.none
    assert check("a", 1) == ErrorCode.stale_member_epoch
    assert check("a", 2, version=8) == ErrorCode.unsupported_version
    assert check("x", 2) == ErrorCode.unknown_member_id
    assert check("", -1) == ErrorCode.unknown_member_id
    assert group.validate_fetch(None, -1) == ErrorCode.none
    assert group.validate_fetch("a", 3) == ErrorCode.stale_member_epoch
    a.leave()
    assert check("", -1) == ErrorCode.none


def test_a_commit_under_way_while_the_epoch_went_up_is_no_zombies():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    settle(a, b)
    ((topic_id, indexes),) = a.owned.items()
    kept, moved = min(indexes), min({0, 1, 2, 3} - indexes)
    assert a.epoch == 3
    assert world.group.may_commit_late("a", 2, topic_id, kept)
    assert not world.group.may_commit_late("a", 1, topic_id, kept)
    assert not world.group.may_commit_late("a", 2, topic_id, moved)
    assert not world.group.may_commit_late("b", 2, topic_id, moved)  # b got it at 3


@pytest.mark.parametrize("producer", [None, Producer(1, 0)])
def test_a_late_commit_is_taken_if_the_member_has_kept_all_that_it_commits(producer):
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders")
    settle(a, b)
    ((topic_id, indexes),) = a.owned.items()
    kept, moved = min(indexes), min({0, 1, 2, 3} - indexes)

    def commit(epoch, *partitions, topic_id=topic_id, member_id="a"):
        parts = in_columns(*((index, 7) for index in partitions))
        asked = Commit(GROUP, member_id, epoch, None, [TopicCommit("orders", topic_id, parts)], 9)
        offsets = world.shard.offsets
        if producer is None:
            world.carry_out(offsets.commit(asked, "commit", world.now_ms))
        else:
            world.carry_out(offsets.commit_in_transaction(asked, producer, "commit", world.now_ms))
        (topic,) = world.answers.pop("commit")["topics"]
        (code,) = {part["error_code"] for part in topic["partitions"]}
        return code

    stale = ErrorCode.stale_member_epoch if producer is None else ErrorCode.illegal_generation
    assert commit(3, kept) == ErrorCode.none
    assert commit(2, kept) == ErrorCode.none
    assert commit(2, kept, moved) == stale
    assert commit(2, kept, topic_id=None) == stale
    assert commit(1, kept) == stale
    assert commit(4, kept) == stale
    nobody = ErrorCode.none if producer else ErrorCode.unknown_member_id
    assert commit(-1, kept, member_id="") == nobody


# --- static members


def test_a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders", instance_id="i")
    settle(a, b)
    had, epoch = partitions(b), world.group.epoch
    assert b.leave(-2)["member_epoch"] == -2
    world.pass_time(20_000)
    a.beat()
    again = world.client("b2", "orders", instance_id="i")
    again.beat()
    assert partitions(again) == had
    assert world.group.epoch == epoch
    world.restart()


def test_a_static_member_that_stays_away_is_replaced():
    world = World({"orders": 4})
    a, b = world.client("a", "orders"), world.client("b", "orders", instance_id="i")
    settle(a, b)
    b.leave(-2)
    for _ in range(46):
        world.pass_time(1000)
        a.beat()
    settle(a)
    assert partitions(a) == [0, 1, 2, 3]


def test_an_instance_id_belongs_to_one():
    world = World({"orders": 4})
    b = world.client("b", "orders", instance_id="i")
    b.beat()
    other = world.client("c", "orders", instance_id="i")
    assert other.beat()["error_code"] == ErrorCode.unreleased_instance_id
    assert other.leave(-2)["error_code"] == ErrorCode.fenced_instance_id
    b.leave(-2)
    other.beat()
    assert other.count == 4
    late = world.ask(member_id="b", instance_id="i", epoch=2)
    assert late["error_code"] == ErrorCode.fenced_instance_id
    nobody = world.ask(member_id="b", instance_id="j", epoch=2)
    assert nobody["error_code"] == ErrorCode.unknown_member_id


# --- requests that are wrong

JOIN = {"member_id": "m", "epoch": 0, "rebalance_timeout_ms": 1, "owned": {}, "topic_names": frozenset("t")}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -3}, "MemberEpoch is invalid."),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"member_id": "m" * 5000}, "An id is longer than 4096 characters."),
    ],
)
def test_requests_that_are_wrong(asked, said):
    answer = World().ask(**{**JOIN, **asked})
    assert (answer["error_code"], answer["error_message"]) == (ErrorCode.invalid_request, said)


def test_an_assignor_that_is_not_there_is_refused():
    answer = World().ask(**JOIN, assignor="mine")
    assert answer["error_code"] == ErrorCode.unsupported_assignor


def test_a_full_group_takes_nobody():
    world = World({"t": 1}, consumer_max_size=1)
    world.client("a", "t").beat()
    assert world.client("b", "t").beat()["error_code"] == ErrorCode.group_max_size_reached


def test_old_clients_are_given_an_id():
    answer = World().ask(**{**JOIN, "member_id": "", "version": 0})
    assert len(answer["member_id"]) == 22


def test_a_member_that_reads_nothing_is_a_member():
    world = World()
    answer = world.ask(**{**JOIN, "topic_names": frozenset()})
    assert answer["member_epoch"] == 1
    world.restart()


def test_an_empty_group_may_be_forgotten():
    world = World({"orders": 2})
    a = world.client("a", topic_regex="o.*")
    a.beat()
    a.leave()
    for record in world.group.tombstones():
        world.log.append(record)
        world.shard.replay(*record)
    assert GROUP not in world.groups
    world.restart(compacted=True)


def test_a_group_is_described():
    world = World({"orders": 2, "bills": 1})
    a = world.client("a", "orders", "bills", rack_id="r", assignor="range")
    a.beat()
    world.topics.delete("bills")
    orders = {
        "topic_id": world.topics.by_name("orders").topic_id,
        "topic_name": "orders",
        "partitions": [0, 1],
    }
    told = world.shard.consumer.describe(GROUP)
    (member,) = told.pop("members")
    assert told == {
        "group_id": GROUP,
        "group_state": "Stable",
        "group_epoch": 2,
        "assignment_epoch": 2,
        "assignor_name": "range",
    }
    assert member["assignment"] == member["target_assignment"] == {"topic_partitions": [orders]}
    assert (member["rack_id"], member["member_type"], member["member_epoch"]) == ("r", 1, 2)
    assert world.shard.consumer.describe("x")["error_code"] == ErrorCode.group_id_not_found
