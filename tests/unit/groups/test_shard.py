"""A shard: records find the part they belong to, timers the part that set them."""

from anabranch.groups.records import GroupMetadata, OffsetKey, write_group, write_group_key, write_offset_key
from tests.support.offsets import Line, ShardOnAList


def test_records_of_unknown_kinds_are_passed_over() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    for key in (b"", b"\0", b"\x00\x63rest", b"\xff\xff"):
        groups.log.append(Line(key, b"whatever", -1))
        groups.log.append(Line(key, None, -1))
        groups.log.append(Line(key, b"whatever", 7))
    groups.restart()
    assert groups.fetch("g", orders=[0]) == {("orders", 0): 5}


def test_offsets_find_their_group_whichever_comes_first_in_the_log() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    group = GroupMetadata("consumer", 3, None, None, groups.now_ms, ())
    line = Line(write_group_key("g"), write_group(group), -1)
    for log in ([line, *groups.log], [*groups.log, line]):
        groups.log = log
        groups.restart()
        assert groups.shard.groups["g"].protocol_type == "consumer"
        assert groups.fetch("g", orders=[0]) == {("orders", 0): 5}


def test_offsets_that_outlived_the_record_of_their_group_have_one_again() -> None:
    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])
    groups.log.append(Line(write_group_key("g"), None, -1))
    groups.restart()
    assert groups.shard.groups["g"].is_empty


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    groups = ShardOnAList()
    groups.log = [
        Line(write_group_key("g"), None, -1),
        Line(write_offset_key(OffsetKey("g", "orders", 0)), None, -1),
        Line(write_offset_key(OffsetKey("g", "orders", 0)), None, 7),
        Line(None, None, 7, commit=True),
    ]
    groups.restart()
    assert not groups.shard.groups


def test_a_loaded_shard_looks_after_old_offsets() -> None:
    groups = ShardOnAList()
    assert groups.timers == {("offsets", "expire"): groups.now_ms + 600_000}
    groups.pass_ms(600_000)
    assert groups.timers == {("offsets", "expire"): groups.now_ms + 600_000}
