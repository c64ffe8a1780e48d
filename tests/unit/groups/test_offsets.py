"""Committed offsets: who may commit, what is kept, what transactions change, when they are forgotten."""

from uuid import UUID

import pytest

from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.parts import NoSubscriptions
from anabranch.groups.records import (
    CommittedOffset,
    GroupMetadata,
    MemberMetadata,
    OffsetKey,
    write_group,
    write_group_key,
)
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import subscription
from tests.support.offsets import START_MS, Line, ShardOnAList, in_columns

MINUTE_MS = 60_000
CHECK_MS = 600_000


def classic_group(
    groups: ShardOnAList, group_id: str, *topics: str, protocol_type: str = "consumer", since_ms: int = 1
) -> None:
    """Bring a group into the log: stable with member `m` in generation 3 if there are topics, else empty."""
    members = (
        (MemberMetadata("m", None, "app", "/", 60_000, 1_000_000_000, subscription(*topics), b""),)
        if topics
        else ()
    )
    protocol = "range" if topics else None
    leader = "m" if topics else None
    group = GroupMetadata(protocol_type, 3, protocol, leader, since_ms, members)
    groups.log.append(Line(write_group_key(group_id), write_group(group), -1))
    groups.restart()


class Moved(NoSubscriptions):
    """Subscriptions of topics that are not open, and where they were moved to."""

    def __init__(self) -> None:
        self.to: list[int] = []

    def moved(self, name: OffsetKey, committed: CommittedOffset) -> None:
        self.to.append(committed.offset)


# Committing and fetching


def test_what_is_committed_is_fetched_and_survives_a_restart() -> None:
    groups = ShardOnAList()
    codes = groups.commit("g", orders=[(0, 5), (1, 6)], bills=[(0, 7)], metadata="why")
    assert set(codes.values()) == {ErrorCode.none}
    for _ in range(2):
        assert groups.fetch("g", orders=[0, 1], bills=[0]) == {
            ("orders", 0): 5,
            ("orders", 1): 6,
            ("bills", 0): 7,
        }
        assert groups.fetch("g", everything=True) == groups.fetch("g", orders=[0, 1], bills=[0])
        part = groups.fetch_whole("g", orders=[0])["topics"][0]["partitions"][0]
        assert (part["metadata"], part["committed_leader_epoch"]) == ("why", 3)
        groups.compacted()
        groups.restart()


@pytest.mark.parametrize("retention_ms", [-1, 60_000])
@pytest.mark.parametrize("topic_id", [None, UUID(int=7)])
@pytest.mark.parametrize("metadata", ["", None, "why", "warum \u00fc \U0001f600"])
def test_what_a_commit_leaves_is_what_a_restart_finds(
    metadata: str | None, topic_id: UUID | None, retention_ms: int
) -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 1)], producer=5)
    groups.commit(
        "g", orders=[(0, 5), (1, 6), (0, 8)], metadata=metadata, topic_id=topic_id, retention_ms=retention_ms
    )
    before = list(groups.shard.offsets.committed("g"))
    groups.restart()
    assert list(groups.shard.offsets.committed("g")) == before
    groups.end(5, commit=True)  # written before the commit, so it does not count
    assert list(groups.shard.offsets.committed("g")) == before


@pytest.mark.parametrize("topic_id", [None, UUID(int=7)])
@pytest.mark.parametrize("metadata", ["", None, "why"])
def test_many_offsets_at_once_are_what_each_of_them_is_alone(
    metadata: str | None, topic_id: UUID | None
) -> None:
    together, apart = ShardOnAList(), ShardOnAList()
    offsets = {"orders": [(index % 70, 1_000 + index) for index in range(100)], "bills": [(3, 1), (1, 2)]}
    codes = together.commit("g", **offsets, metadata=metadata, topic_id=topic_id)
    assert codes == dict.fromkeys([(t, i) for t, each in offsets.items() for i, _ in each], ErrorCode.none)
    for topic, each in offsets.items():
        for one in each:
            apart.commit("g", **{topic: [one]}, metadata=metadata, topic_id=topic_id)
    assert together.log == apart.log
    kept = list(together.shard.offsets.committed("g"))
    assert kept == list(apart.shard.offsets.committed("g"))
    together.restart()
    assert list(together.shard.offsets.committed("g")) == kept


def test_of_many_offsets_in_a_row_the_newest_count_when_a_transaction_ends() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(index, 1) for index in range(9)], producer=5)
    groups.commit("g", orders=[(index, 2) for index in range(4, 9)])
    groups.commit("g", orders=[(index, 3) for index in range(7, 9)], producer=5)
    groups.end(5, commit=True)
    for _ in range(2):
        assert groups.fetch("g", orders=list(range(9))) == {
            ("orders", index): 1 if index < 4 else 2 if index < 7 else 3 for index in range(9)
        }
        groups.restart()


def test_the_last_commit_counts_even_if_it_goes_back() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 9)])
    groups.commit("g", orders=[(0, 4), (0, 2)])
    assert groups.fetch("g", orders=[0]) == {("orders", 0): 2}


@pytest.mark.parametrize("way", ["plain", "with a retention", "in a transaction"])
def test_a_subscription_is_told_that_it_was_moved_back_however_that_was_done(way: str) -> None:
    moved = Moved()
    groups = ShardOnAList(moved)
    for offset in (5, 9, 4, 6):
        if way == "in a transaction":
            groups.commit("g", orders=[(0, offset)], producer=1)
            groups.end(1, commit=True)
        else:
            groups.commit("g", orders=[(0, offset)], retention_ms=60_000 if way != "plain" else -1)
    assert moved.to == [4]
    groups.restart()
    assert moved.to == [4], "what was done about it then is not done again"


def test_what_was_never_committed_is_no_error() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    assert groups.fetch("g", orders=[1], other=[0]) == {("orders", 1): -1, ("other", 0): -1}
    assert groups.fetch("nobody", orders=[0]) == {("orders", 0): -1}
    assert groups.fetch("nobody", everything=True) == {}


def test_metadata_is_limited_by_its_length_in_java() -> None:
    groups = ShardOnAList(metadata_max_bytes=4)
    assert groups.commit("g", orders=[(0, 1)], metadata="abcd") == {("orders", 0): ErrorCode.none}
    assert groups.commit("g", orders=[(0, 2)], metadata="äöüß") == {("orders", 0): ErrorCode.none}
    too_large = {("orders", 0): ErrorCode.offset_metadata_too_large}
    assert groups.commit("g", orders=[(0, 3)], metadata="abcde") == too_large
    assert groups.commit("g", orders=[(0, 3)], metadata="😀😀😀") == too_large
    assert groups.fetch("g", orders=[0]) == {("orders", 0): 2}
    assert groups.commit("g", orders=[(0, 4)], metadata=None) == {("orders", 0): ErrorCode.none}


def test_nothing_is_known_of_a_topic_whose_offsets_are_all_refused() -> None:
    groups = ShardOnAList(metadata_max_bytes=4)
    topics = [
        TopicCommit("orders", None, in_columns((0, 1), (1, 1), metadata="abcde")),
        TopicCommit("bills", None, in_columns((0, 7))),
    ]
    request = Commit("g", "", -1, None, topics, 8)
    groups.carry_out(groups.shard.offsets.commit(request, "token", groups.now_ms))
    for _ in range(2):
        assert [topic["name"] for topic in groups.fetch_whole("g", everything=True)["topics"]] == ["bills"]
        groups.restart()


def test_an_offset_of_a_topic_that_was_made_again_is_not_of_this_topic() -> None:
    groups = ShardOnAList()
    old, new = UUID(int=1), UUID(int=2)
    groups.commit("g", orders=[(0, 5)], topic_id=old)
    assert groups.fetch("g", orders=[0], topic_id=old) == {("orders", 0): 5}
    assert groups.fetch("g", orders=[0], topic_id=new) == {("orders", 0): -1}
    assert groups.fetch("g", orders=[0]) == {("orders", 0): 5}, "asked for by name, nobody can tell"


# Who may


def test_a_client_without_a_group_makes_one_by_committing() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    group = groups.shard.groups["g"]
    assert (group.kind, group.state, group.protocol_type) == ("classic", "Empty", "")


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)]
)
def test_a_member_of_no_group(version: int, code: ErrorCode) -> None:
    groups = ShardOnAList()
    refused = groups.commit("g", orders=[(0, 5)], member_id="m", epoch=3, version=version)
    assert refused == {("orders", 0): code}
    assert not groups.log
    assert not groups.shard.groups


def test_members_of_a_stable_group() -> None:
    groups = ShardOnAList()
    classic_group(groups, "g", "orders")

    def code(**who: object) -> ErrorCode:
        return groups.commit("g", orders=[(0, 5)], **who)[("orders", 0)]  # type: ignore[arg-type]

    assert code(member_id="m", epoch=3) == ErrorCode.none
    assert code(member_id="m", epoch=2) == ErrorCode.illegal_generation
    assert code(member_id="x", epoch=3) == ErrorCode.unknown_member_id
    assert code() == ErrorCode.unknown_member_id, "whoever is in no group must not, while somebody is"


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    groups = ShardOnAList()
    classic_group(groups, "g", "orders")
    member = groups.shard.groups["g"].members["m"]  # type: ignore[attr-defined]
    before_ms = member.session_ends_ms
    groups.pass_ms(1000)
    groups.commit("g", orders=[(0, 5)], member_id="m", epoch=3)
    assert member.session_ends_ms == before_ms + 1000


# Transactions


def test_a_pending_offset_counts_when_its_transaction_commits() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    groups.commit("g", orders=[(0, 8)], producer=1)
    for _ in range(2):
        assert groups.fetch("g", orders=[0]) == {("orders", 0): 5}
        unstable = {("orders", 0): ErrorCode.unstable_offset_commit, ("orders", 1): -1}
        assert groups.fetch("g", orders=[0, 1], stable=True) == unstable
        assert groups.fetch("g", everything=True, stable=True) == {
            ("orders", 0): ErrorCode.unstable_offset_commit
        }
        groups.restart()
    groups.end(1, commit=True)
    for _ in range(2):
        assert groups.fetch("g", orders=[0], stable=True) == {("orders", 0): 8}
        groups.compacted()
        groups.restart()


def test_a_pending_offset_is_forgotten_when_its_transaction_aborts() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    groups.commit("g", orders=[(1, 8)], bills=[(0, 1)], producer=1)
    groups.end(1, commit=False)
    for _ in range(2):
        asked = groups.fetch("g", orders=[0, 1], bills=[0], stable=True)
        assert asked == {("orders", 0): 5, ("orders", 1): -1, ("bills", 0): -1}
        groups.restart()


def test_transactions_of_two_producers_do_not_touch_each_other() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 1)], producer=1)
    groups.commit("g", orders=[(0, 2)], producer=2)
    groups.end(1, commit=True)
    assert groups.fetch("g", orders=[0]) == {("orders", 0): 1}
    assert groups.fetch("g", orders=[0], stable=True) == {("orders", 0): ErrorCode.unstable_offset_commit}
    groups.end(2, commit=False)
    assert groups.fetch("g", orders=[0], stable=True) == {("orders", 0): 1}
    groups.end(3, commit=True)
    assert groups.fetch("g", orders=[0], stable=True) == {("orders", 0): 1}


def test_a_plain_commit_after_a_pending_one_stays_whenever_the_transaction_ends() -> None:
    """Or compaction, which keeps the last record of the key, would change what a restart finds."""
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 8)], producer=1)
    groups.commit("g", orders=[(0, 5)])
    groups.end(1, commit=True)
    for _ in range(2):
        assert groups.fetch("g", orders=[0], stable=True) == {("orders", 0): 5}
        groups.compacted()
        groups.restart()


def test_a_transaction_may_go_on_in_the_next_generation_but_not_with_a_wrong_one() -> None:
    groups = ShardOnAList()
    classic_group(groups, "g", "orders")
    assert groups.commit("g", orders=[(0, 1)], producer=1) == {("orders", 0): ErrorCode.none}
    wrong = groups.commit("g", orders=[(0, 1)], producer=1, member_id="m", epoch=2)
    assert wrong == {("orders", 0): ErrorCode.illegal_generation}
    unknown = groups.commit("other", orders=[(0, 1)], producer=1, member_id="m", epoch=2, version=10)
    assert unknown == {("orders", 0): ErrorCode.illegal_generation}


# Deleting


def test_a_deleted_offset_is_gone_and_so_is_a_pending_one() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5), (1, 6)])
    groups.commit("g", orders=[(0, 8), (2, 9)], producer=1)
    assert set(groups.delete_codes("g", orders=[0, 2, 3]).values()) == {ErrorCode.none}
    groups.end(1, commit=True)
    for _ in range(2):
        assert groups.fetch("g", everything=True) == {("orders", 1): 6}
        groups.restart()


def test_nothing_is_written_for_what_was_not_there() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    size = len(groups.log)
    groups.delete_codes("g", orders=[7], other=[0])
    assert len(groups.log) == size


def test_offsets_of_a_topic_in_use_stay() -> None:
    groups = ShardOnAList()
    classic_group(groups, "g", "orders")
    groups.commit("g", orders=[(0, 5)], bills=[(0, 5)], member_id="m", epoch=3)
    assert groups.delete_codes("g", orders=[0], bills=[0]) == {
        ("orders", 0): ErrorCode.group_subscribed_to_topic,
        ("bills", 0): ErrorCode.none,
    }
    assert groups.fetch("g", everything=True) == {("orders", 0): 5}


def test_offsets_of_groups_that_are_not_there_or_not_consumers() -> None:
    groups = ShardOnAList()
    classic_group(groups, "g", "orders", protocol_type="connect")
    assert groups.delete("g", orders=[0])["error_code"] == ErrorCode.non_empty_group
    assert groups.delete("nobody", orders=[0])["error_code"] == ErrorCode.group_id_not_found


def test_offsets_of_a_deleted_topic_go_from_every_group() -> None:
    groups = ShardOnAList()
    groups.commit("a", orders=[(0, 5)], bills=[(0, 1)])
    groups.commit("b", orders=[(1, 6)])
    groups.commit("b", orders=[(2, 7)], producer=1)
    groups.carry_out(groups.shard.offsets.forget_topics(["orders", "unheard-of"]))
    groups.end(1, commit=True)
    assert groups.fetch("a", everything=True) == {("bills", 0): 1}
    assert groups.fetch("b", everything=True) == {}


def test_a_group_is_forgotten_with_all_it_has() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    groups.commit("g", orders=[(0, 7), (1, 7)], producer=1)
    groups.commit("h", orders=[(0, 9)], producer=1)
    assert len(groups.shard.offsets.tombstones("g")) == 2


# Forgetting


def test_an_offset_is_forgotten_after_its_retention_and_its_group_with_the_last() -> None:
    groups = ShardOnAList(retention_minutes=60)
    groups.commit("g", orders=[(0, 5)])
    groups.pass_ms(30 * MINUTE_MS)
    groups.commit("g", orders=[(1, 6)])
    groups.pass_ms(30 * MINUTE_MS)
    assert groups.fetch("g", everything=True) == {("orders", 1): 6}
    groups.pass_ms(30 * MINUTE_MS)
    assert groups.fetch("g", everything=True) == {}
    assert not groups.shard.groups
    groups.restart()
    assert not groups.shard.groups


def test_a_client_may_ask_for_a_retention_of_its_own() -> None:
    groups = ShardOnAList(retention_minutes=60)
    groups.commit("g", orders=[(0, 5)], retention_ms=5 * MINUTE_MS)
    groups.commit("h", orders=[(0, 5)], retention_ms=300 * MINUTE_MS)
    groups.restart()
    groups.pass_ms(CHECK_MS)
    assert groups.fetch("g", everything=True) == {}
    groups.pass_ms(200 * MINUTE_MS)
    assert groups.fetch("h", everything=True) == {("orders", 0): 5}
    groups.pass_ms(100 * MINUTE_MS)
    assert groups.fetch("h", everything=True) == {}


@pytest.mark.parametrize(("retention_ms", "is_forgotten"), [(2**63 - 1, False), (-(2**63), True)])
def test_a_retention_beyond_what_a_record_can_say(retention_ms: int, is_forgotten: bool) -> None:
    groups = ShardOnAList(retention_minutes=60)
    assert groups.commit("g", orders=[(0, 5)], retention_ms=retention_ms) == {("orders", 0): ErrorCode.none}
    groups.pass_ms(CHECK_MS)
    assert groups.fetch("g", everything=True) == ({} if is_forgotten else {("orders", 0): 5})


def test_offsets_of_a_group_with_members_age_only_in_topics_it_has_left() -> None:
    groups = ShardOnAList(retention_minutes=60)
    classic_group(groups, "g", "orders")
    groups.commit("g", orders=[(0, 5)], bills=[(0, 6)], member_id="m", epoch=3)
    groups.pass_ms(2 * 60 * MINUTE_MS)
    assert groups.fetch("g", everything=True) == {("orders", 0): 5}


def test_offsets_of_a_group_that_became_empty_age_from_then() -> None:
    groups = ShardOnAList(retention_minutes=60)
    groups.commit("g", orders=[(0, 5)])
    classic_group(groups, "g", since_ms=START_MS + 45 * MINUTE_MS)
    groups.pass_ms(100 * MINUTE_MS)
    assert groups.fetch("g", everything=True) == {("orders", 0): 5}
    groups.pass_ms(20 * MINUTE_MS)
    assert groups.fetch("g", everything=True) == {}
    assert not groups.shard.groups


def test_nothing_is_forgotten_that_a_transaction_is_about_to_replace() -> None:
    groups = ShardOnAList(retention_minutes=60)
    groups.commit("g", orders=[(0, 5)])
    groups.commit("g", orders=[(0, 7)], producer=1)
    groups.pass_ms(90 * MINUTE_MS)
    assert groups.fetch("g", everything=True) == {("orders", 0): 5}
    groups.end(1, commit=False)
    groups.pass_ms(CHECK_MS)
    assert groups.fetch("g", everything=True) == {}


def test_a_group_is_kept_while_a_transaction_has_begun_to_commit_for_it() -> None:
    groups = ShardOnAList(retention_minutes=60)
    groups.commit("g", orders=[(0, 7)], producer=1)
    groups.pass_ms(90 * MINUTE_MS)
    assert "g" in groups.shard.groups
    groups.end(1, commit=False)
    groups.pass_ms(CHECK_MS)
    assert "g" not in groups.shard.groups


def test_many_old_offsets_are_forgotten_a_batch_at_a_time() -> None:
    groups = ShardOnAList(retention_minutes=60)
    for group in range(3):
        groups.commit(f"g{group}", orders=[(index, 1) for index in range(4000)])
    written = len(groups.log)
    groups.pass_ms(60 * MINUTE_MS)
    assert len(groups.log) - written == 5000
    groups.pass_ms(10_000)
    assert len(groups.log) - written == 12_003, "every offset and every group"
    assert not groups.shard.groups
