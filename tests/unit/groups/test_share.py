"""The share protocol: who reads what, when, and what is said to whom."""

from uuid import UUID

import pytest

from anabranch.groups.heartbeats import Refused
from anabranch.groups.share_records import TopicShare, read_key
from anabranch.groups.share_state import ShareKey
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.sharers import GROUP, ORDERS, Sharers


def test_partitions_are_assigned_once_their_state_is_kept():
    sharers = Sharers({"orders": 3})
    answer = sharers.beat("a", "orders")
    assert (answer["member_epoch"], answer["heartbeat_interval"]) == (2, 100)
    assert sharers.has["a"] == []
    assert sharers.group.topics.initialising == {ORDERS: TopicShare("orders", frozenset({0, 1, 2}))}
    assert [read_key(key).kind for key, _ in sharers.world.log] == [10, 11, 15, 13, 12, 14]
    sharers.initialise()
    assert not sharers.group.topics.initialising
    sharers.world.pass_time(100)
    assert sharers.beat("a")["heartbeat_interval"] == 500
    assert sharers.has["a"] == [0, 1, 2]
    keys = [ShareKey(GROUP, ORDERS, index) for index in range(3)]
    assert sharers.group.share_keys(sharers.group.topics.initialised) == keys


def test_a_sign_of_life_writes_nothing():
    sharers = Sharers({"orders": 3})
    sharers.join("a")
    written = len(sharers.world.log)
    for _ in range(5):
        assert sharers.beat("a")["assignment"] is None
        sharers.world.pass_time(1000)
    assert len(sharers.world.log) == written


def test_members_share_partitions():
    sharers = Sharers({"orders": 2})
    sharers.join("a", "b", "c", "d")
    assert sorted(p for has in sharers.has.values() for p in has) == [0, 0, 1, 1]
    assert sharers.group.state == "Stable"


def test_who_leaves_or_is_not_heard_of_is_replaced():
    sharers = Sharers({"orders": 4})
    sharers.join("a", "b", "c")
    assert sharers.ask("c", -1) == {"member_id": "c", "member_epoch": -1, "heartbeat_interval": 0}
    sharers.settle("a", "b")
    assert sorted(sharers.has["a"] + sharers.has["b"]) == [0, 1, 2, 3]
    for _ in range(46):
        sharers.world.pass_time(1000)
        sharers.beat("a")
    assert list(sharers.group.members) == ["a"]
    sharers.settle("a")
    assert sharers.has["a"] == [0, 1, 2, 3]
    assert sharers.beat("b")["error_code"] == ErrorCode.unknown_member_id
    sharers.ask("a", -1)
    assert sharers.group.state == "Empty"
    sharers.world.restart()


def test_a_topic_that_is_made_or_grows_is_read():
    sharers = Sharers({})
    sharers.beat("a", "orders")
    assert sharers.has["a"] == []
    sharers.world.topics.put("orders", 1)
    sharers.settle("a")
    sharers.initialise()
    sharers.settle("a")
    assert sharers.has["a"] == [0]
    sharers.world.topics.put("orders", 3)
    sharers.settle("a")
    assert sharers.has["a"] == [0]
    sharers.initialise()
    sharers.settle("a")
    assert sharers.has["a"] == [0, 1, 2]


def test_a_topic_that_is_deleted_is_forgotten():
    sharers = Sharers({"orders": 2})
    sharers.join("a")
    sharers.world.topics.delete("orders")
    sharers.world.carry_out(sharers.world.shard.share.forget_topics({ORDERS}, sharers.world.now_ms))
    sharers.settle("a")
    assert sharers.has["a"] == []
    assert sharers.group.topics == ({}, {}, {})


def test_epochs():
    sharers = Sharers({"orders": 2})
    sharers.join("a")
    at = sharers.epochs["a"]
    assert sharers.ask("a", at + 1)["error_code"] == ErrorCode.fenced_member_epoch
    sharers.beat("b", "orders")
    sharers.settle("a")
    assert sharers.epochs["a"] > at
    assert sharers.ask("a", sharers.group.members["a"].previous_epoch)["member_epoch"] == sharers.epochs["a"]
    assert sharers.ask("a", 0, "orders")["member_epoch"] == sharers.epochs["a"]
    sharers.ask("b", -1)
    sharers.settle("a")
    assert sharers.ask("a", at)["error_code"] == ErrorCode.fenced_member_epoch


def test_a_group_may_be_full():
    sharers = Sharers({"orders": 2}, share_max_size=1)
    sharers.join("a")
    answer = sharers.beat("b", "orders")
    assert answer["error_code"] == ErrorCode.group_max_size_reached
    assert "assignment" in sharers.beat("a")


def test_a_group_may_be_told_its_own_timeouts():
    sharers = Sharers({"orders": 2}, share_min_session_timeout_ms=1000)
    sharers.world.told[GROUP] = {"share.session.timeout.ms": "2000", "consumer.session.timeout.ms": "50000"}
    sharers.join("a")
    sharers.world.pass_time(1999)
    assert sharers.group.members
    sharers.world.pass_time(1)
    assert not sharers.group.members


@pytest.mark.parametrize("compacted", [False, True])
def test_a_restart_finds_everything(compacted):
    sharers = Sharers({"orders": 4, "other": 1})
    sharers.join("a", "b")
    sharers.beat("c", "other")
    sharers.world.restart(compacted=compacted)
    assert sharers.group.topics.initialising
    sharers.initialise()
    sharers.settle("a", "b", "c")
    assert sharers.has["c"] == [0]
    sharers.world.restart(compacted=compacted)


def test_what_is_not_written_did_not_happen():
    sharers = Sharers({"orders": 4})
    sharers.world.loses_writes = True
    assert sharers.beat("a", "orders")["error_code"] == ErrorCode.coordinator_not_available
    assert GROUP not in sharers.world.groups


# Share partitions


def begin(sharers: Sharers, shares: dict[UUID, TopicShare]) -> int:
    sharers.world.carry_out(sharers.world.shard.share.begin(GROUP, shares, "begin", sharers.world.now_ms))
    return int(sharers.world.answers.pop("begin")["epoch"])


def test_a_reset_raises_the_epoch_and_makes_the_group():
    sharers = Sharers({"orders": 4})
    first = begin(sharers, {ORDERS: TopicShare("orders", frozenset({1}))})
    sharers.initialise()
    assert begin(sharers, {ORDERS: TopicShare("orders", frozenset({1, 2}))}) > first
    sharers.world.restart()
    sharers.initialise()
    assert sharers.group.topics.initialised == {ORDERS: TopicShare("orders", frozenset({1, 2}))}
    assert sharers.group.state == "Empty"


def test_nothing_is_reset_or_deleted_while_there_are_members():
    sharers = Sharers({"orders": 4})
    sharers.join("a")
    with pytest.raises(Refused) as refused:
        begin(sharers, {ORDERS: TopicShare("orders", frozenset({1}))})
    assert refused.value.code == ErrorCode.non_empty_group
    with pytest.raises(Refused):
        sharers.world.shard.share.end(GROUP, {ORDERS}, "end", sharers.world.now_ms)


def test_a_deletion_that_is_cut_off_is_still_known():
    sharers = Sharers({"orders": 2})
    sharers.join("a")
    sharers.ask("a", -1)
    share, now_ms = sharers.world.shard.share, sharers.world.now_ms
    sharers.world.carry_out(share.end(GROUP, {ORDERS}, "end", now_ms))
    sharers.world.restart()
    assert sharers.group.topics == ({}, {}, {ORDERS: "orders"})
    sharers.beat("b", "orders")
    assert sharers.group.topics == ({ORDERS: TopicShare("orders", frozenset({0, 1}))}, {}, {})
    sharers.world.carry_out(sharers.world.shard.share.ended(GROUP, {ORDERS}, "ended", now_ms))
    assert sharers.group.topics.initialising  # that has begun anew since


def test_an_empty_share_group_stays_until_it_is_deleted():
    sharers = Sharers({"orders": 2}, retention_check_interval_ms=1000, retention_minutes=1)
    sharers.world.carry_out(sharers.world.shard.loaded(sharers.world.now_ms))
    begin(sharers, {ORDERS: TopicShare("orders", frozenset({1}))})
    sharers.world.pass_time(3_600_000)
    assert sharers.group.epoch
