"""What a follower does with its leader's answers, and what it asks next."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.errors import Corrupt
from anabranch.base.ids import TopicName
from anabranch.log.local_log import LocalLog
from anabranch.partition.following import Following
from anabranch.partition.replica import Replica
from anabranch.records.batch import place
from tests.support.logs import a_disk, contents, open_log_in, put, records

NAME = TopicName.from_kafka("orders")


def a_following(log: LocalLog, epoch: int = 5, high_watermark: int = 0) -> Following:
    return Following(Replica(NAME, 0, ("id", 0), log, high_watermark), epoch, a_disk())


def a_log(folder: Path, *epochs: int, **config: Any) -> LocalLog:
    """A batch of one record of each epoch, and what it is of as its value."""
    log = open_log_in(folder, **config)
    for epoch in epochs:
        put(log, records(f"{epoch}"), epoch)
    return log


def fetched(offset: int, *values: str, epoch: int) -> bytes:
    batch = records(*values)
    place(batch, offset, epoch)
    return bytes(batch)


def answer(
    records: bytes = b"",
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> Any:
    return SimpleNamespace(
        records=records or None,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        diverging_epoch=diverging and SimpleNamespace(epoch=diverging[0], end_offset=diverging[1]),
    )


def test_it_asks_from_its_end_on_and_names_its_last_epoch(tmp_path: Path) -> None:
    asked = a_following(a_log(tmp_path, 1, 1, 4)).asked(1000)
    assert asked == {
        "partition": 0,
        "current_leader_epoch": 5,
        "fetch_offset": 3,
        "last_fetched_epoch": 4,
        "log_start_offset": 0,
        "partition_max_bytes": 1000,
    }
    assert a_following(open_log_in(tmp_path / "empty")).asked(1)["last_fetched_epoch"] == -1


def test_records_are_appended_and_the_high_watermark_is_no_further_than_the_log(tmp_path: Path) -> None:
    following = a_following(a_log(tmp_path, 1))
    assert following.answered(answer(fetched(1, "a", "b", epoch=3), high_watermark=9)) is None
    assert contents(following.replica.log) == [(0, b"1"), (1, b"a"), (2, b"b")]
    assert following.replica.log.epochs.end_of(1, 3) == (1, 1)
    assert following.replica.high_watermark == 3
    following.answered(answer(high_watermark=2))
    assert following.replica.high_watermark == 3


@pytest.mark.parametrize(
    "spoilt",
    [
        fetched(0, "before", epoch=3),
        fetched(1, "older", epoch=0),
        fetched(1, "a", epoch=3)[:-1] + b"?",
    ],
)
def test_what_does_not_follow_is_not_taken(tmp_path: Path, spoilt: bytes) -> None:
    following = a_following(a_log(tmp_path, 1))
    with pytest.raises(Corrupt):
        following.answered(answer(spoilt, high_watermark=2))
    assert (following.replica.log.log_end, following.replica.high_watermark) == (1, 0)


def test_a_batch_of_a_later_epoch_is_for_the_next_one_to_take(tmp_path: Path) -> None:
    following = a_following(a_log(tmp_path, 1), epoch=3)
    following.answered(answer(fetched(1, "a", epoch=3) + fetched(2, "b", epoch=4)))
    assert following.replica.log.log_end == 2


@pytest.mark.parametrize(
    ("diverging", "kept"),
    [
        ((2, 4), 3),  # ours of epoch 2 ended before the leader's
        ((1, 1), 1),  # the leader's ended before ours
        ((0, 0), 0),  # nothing in common: all of ours is later
        ((2, 2), 2),
    ],
)
def test_it_is_cut_where_the_histories_part(tmp_path: Path, diverging: tuple[int, int], kept: int) -> None:
    following = a_following(a_log(tmp_path, 1, 1, 2, 4, 4), high_watermark=5)
    assert following.answered(answer(diverging=diverging, high_watermark=2)) is not None
    assert following.replica.log.log_end == kept
    assert following.replica.high_watermark == kept


def test_segments_that_were_cut_off_are_the_callers(tmp_path: Path) -> None:
    following = a_following(a_log(tmp_path, 1, 1, 4, 4, segment_bytes=100))
    dropped = following.answered(answer(diverging=(1, 1))) or []
    assert [segment.base_offset for segment in dropped] == [1, 2, 3]
    assert {int(path.name[:20]) for path in tmp_path.glob("*.deleted")} == {1, 2, 3}


def test_the_log_starts_where_the_leaders_does(tmp_path: Path) -> None:
    following = a_following(a_log(tmp_path, 1, 1, 1), high_watermark=3)
    following.answered(answer(high_watermark=3, log_start=2))
    assert following.replica.log.log_start == 2
    following.answered(answer(high_watermark=3, log_start=1))
    assert following.replica.log.log_start == 2
    following.answered(answer(high_watermark=3, log_start=9))  # not known to be ours: out of range comes next
    assert following.replica.log.log_start == 2


def test_a_leader_that_has_left_the_follower_behind(tmp_path: Path) -> None:
    following = a_following(a_log(tmp_path, 1, 1), high_watermark=2)
    dropped = following.begin_within(10, 20)
    log = following.replica.log
    assert (log.log_start, log.log_end, log.epochs.latest) == (10, 10, -1)
    assert following.replica.high_watermark == 10
    assert dropped is not None
    assert len(dropped) == 1
    following.answered(answer(fetched(10, "a", epoch=5), high_watermark=11))
    assert contents(log) == [(10, b"a")]


def test_a_leader_that_ends_before_the_follower(tmp_path: Path) -> None:
    following = a_following(a_log(tmp_path, 1, 1, 1), high_watermark=3)
    assert following.begin_within(0, 1) == []
    assert following.replica.log.log_end == following.replica.high_watermark == 1
    assert following.begin_within(0, 5) is None
    assert following.replica.log.log_end == 1


def test_a_leader_that_ends_before_the_follower_begins(tmp_path: Path) -> None:
    following = a_following(a_log(tmp_path, 1, 1, 1), high_watermark=3)
    following.replica.log.advance_start(2)
    assert following.begin_within(0, 1) is not None
    log = following.replica.log
    assert (log.log_start, log.log_end, following.replica.high_watermark) == (1, 1, 1)


def test_what_an_empty_log_had_before_is_no_reason_to_part_for_ever(tmp_path: Path) -> None:
    """All of it was deleted; its last epoch is none that a leader without those records knows."""
    following = a_following(a_log(tmp_path, 1, 5, 5), epoch=7, high_watermark=3)
    log = following.replica.log
    log.advance_start(3)
    assert (log.log_start, log.log_end, log.epochs.latest) == (3, 3, 5)
    following.answered(answer(diverging=(4, 2)))
    assert following.asked(1)["last_fetched_epoch"] == -1
    assert following.begin_within(0, 2) is not None
    assert following.asked(1)["fetch_offset"] == 2
