"""The ISR of a leader: the pictures in its module, and what it must not be taken in by."""

import pytest
from msgspec.structs import replace

from anabranch.base.ids import BrokerId
from anabranch.partition.in_sync import InSync, Lag
from tests.support.images import partition_image

ME, B2, B3 = BrokerId(1), BrokerId(2), BrokerId(3)
LAG = Lag(10.0, 4000)
EVER = float("-inf")


def in_sync(*isr: int, start: int = 0) -> InSync:
    return InSync(ME, partition_image(replicas=(1, 2, 3), in_sync=isr or (1, 2, 3)), start, 0.0)


def left(leader: InSync, end: int, now_s: float, heard_since_s: float = EVER, lag: Lag = LAG) -> list[int]:
    return [one.replica for one in leader.check(end, lag, now_s, heard_since_s)]


def test_under_load_nobody_is_at_the_end_and_all_keep_up() -> None:
    leader = in_sync(1, 2)
    for second in range(100):  # it asks for where the end was a second ago
        leader.asked(B2, max(0, second - 1) * 10, 0, second * 10, float(second))
        assert left(leader, second * 10 + 5, second + 0.5) == []


def test_a_follower_that_asks_no_more_leaves() -> None:
    leader = in_sync()
    for replica in (B2, B3):
        leader.asked(replica, 5, 0, 5, 1.0)
    leader.asked(B2, 6, 0, 6, 9.0)
    assert left(leader, 6, 10.9) == []
    assert left(leader, 6, 11.1) == [B3]
    assert leader.counted == {ME, B2, B3}, "until it is confirmed"
    assert left(leader, 6, 30.0) == [], "one request at a time"


def test_a_follower_that_gets_ever_further_behind_leaves() -> None:
    leader = in_sync(1, 2)
    for second in range(11):
        leader.asked(B2, second * 10, 0, second * 20, float(second))
    assert left(leader, 220, 11.0) == []
    assert left(leader, 220, 11.1) == [B2]


def test_who_has_all_there_is_stays_however_long_it_is_silent() -> None:
    leader = in_sync(1, 2)
    leader.asked(B2, 5, 0, 5, 1.0)
    assert left(leader, 5, 1000.0) == []
    assert left(leader, 6, 1001.0) == [B2]


def test_who_was_not_heard_from_since_the_election_has_the_whole_time() -> None:
    leader = in_sync(1, 2)
    assert left(leader, 5, 10.0) == []
    assert left(leader, 5, 10.1) == [B2]


def test_a_burst_is_not_behind_and_who_does_not_fetch_it_in_an_interval_is() -> None:
    leader = in_sync(1, 2)
    leader.asked(B2, 100, 0, 100, 1.0)
    assert left(leader, 100, 1.5) == []
    assert left(leader, 100_100, 2.5) == [], "there was no time to fetch it"
    leader.asked(B2, 96_100, 0, 100_100, 3.0)
    assert left(leader, 200_000, 3.5) == []
    assert left(leader, 200_000, 4.5) == [B2]


def test_messages_do_not_count_if_they_are_not_to() -> None:
    leader, lag = in_sync(1, 2), Lag(10.0, -1)
    leader.asked(B2, 0, 0, 0, 1.0)
    for tenths in range(10, 100):
        assert left(leader, 1 << 40, tenths / 10, lag=lag) == []


def test_a_leader_that_stood_still_blames_nobody() -> None:
    leader = in_sync()
    for replica in (B2, B3):
        leader.asked(replica, 5, 0, 5, 1.0)
    assert left(leader, 9000, 2.0) == []
    assert left(leader, 9000, 100.0, heard_since_s=100.0) == []
    assert left(leader, 9000, 101.0, heard_since_s=100.0) == [B2, B3], "by messages, after another interval"


def test_the_way_back() -> None:
    leader = in_sync(1, 2, start=50)
    leader.asked(B3, 10, 0, 100, 1.0)
    assert not leader.keeps_up(B3, 100, LAG, 1.0)
    leader.asked(B3, 100, 0, 120, 2.0)
    assert leader.keeps_up(B3, 120, LAG, 2.0)
    assert leader.join(B3)
    assert not leader.join(B3)
    assert leader.counted == {ME, B2, B3}
    assert not leader.ask_to_add(B3, high_watermark=110)
    leader.asked(B3, 120, 0, 130, 2.1)
    assert leader.ask_to_add(B3, high_watermark=110)
    assert not leader.ask_to_add(B3, high_watermark=110)
    assert (leader.isr, leader.counted) == ({ME, B2}, {ME, B2, B3})
    written = replace(leader.state, isr=(ME, B2, B3), partition_epoch=leader.state.partition_epoch + 1)
    assert leader.changed(written, 3.0)
    assert not leader.changed(written, 3.0)
    assert (leader.isr, leader.asked_for) == ({ME, B2, B3}, None)


def test_nobody_returns_before_the_epoch_began_though_the_watermark_is_lower() -> None:
    leader = in_sync(1, 2, start=50)
    leader.asked(B3, 49, 0, 49, 1.0)
    assert not leader.ask_to_add(B3, high_watermark=10)
    leader.asked(B3, 50, 0, 50, 1.0)
    assert leader.ask_to_add(B3, high_watermark=10)


def test_what_is_refused_counts_no_more() -> None:
    leader = in_sync(1, 2)
    leader.asked(B3, 5, 0, 5, 1.0)
    leader.join(B3)
    assert leader.ask_to_add(B3, 5)
    leader.refused()
    assert leader.counted == {ME, B2}


def test_who_joins_and_stops_holds_up_the_watermark_no_longer_than_the_lag() -> None:
    leader = in_sync(1, 2)
    leader.asked(B3, 5, 0, 5, 1.0)
    leader.join(B3)
    leader.asked(B2, 9, 0, 9, 11.0)
    assert left(leader, 9, 11.0) == []
    assert left(leader, 9, 11.1) == []
    assert leader.counted == {ME, B2}


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_state_that_is_older_or_known_changes_nothing(epoch: int) -> None:
    state = partition_image(replicas=(1, 2, 3), epoch=1)
    leader = InSync(ME, state, 0, 0.0)
    assert not leader.changed(replace(state, partition_epoch=epoch), 1.0)


def test_replicas_come_and_go() -> None:
    leader = in_sync()
    assert leader.changed(replace(leader.state, replicas=(ME, B3), isr=(ME, B3), partition_epoch=7), 5.0)
    assert set(leader.followers) == {B3}
    assert leader.changed(replace(leader.state, replicas=(ME, B3, BrokerId(4)), partition_epoch=8), 5.0)
    assert not leader.keeps_up(BrokerId(4), 10, LAG, 5.0)
    assert left(leader, 10, 9.0) == []
