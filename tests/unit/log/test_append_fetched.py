"""A follower's appends: batches as they are, nothing that is damaged, and no half of a batch."""

from pathlib import Path

import pytest

from anabranch.base.errors import Corrupt, DiskFull
from anabranch.log.append_entries import append_entries
from anabranch.log.append_fetched import append_fetched
from anabranch.log.local_log import LocalLog
from anabranch.records.batch import place
from tests.support.compaction import compact_now, compacted_log
from tests.support.crashing_disk import FailingDisk
from tests.support.logs import a_disk, batches, contents, crash, fill, marker, open_log_in, put, records
from tests.support.topics import send


def raw(log: LocalLog, start: int = 0) -> bytes:
    return b"".join(bytes(batch) for header, batch in batches(log) if header.last_offset >= start)


def take(log: LocalLog, data: bytes | bytearray, epoch: int = 9) -> None:
    append_fetched(a_disk(), log, data, epoch)


def a_leader(folder: Path) -> LocalLog:
    log = open_log_in(folder, segment_bytes=400)
    fields = {"producer_epoch": 0, "transactional": True}
    for i in range(6):
        put(log, records(str(i), producer_id=i % 2, base_sequence=i // 2, **fields), leader_epoch=i // 2)
        put(log, marker(i % 2, commit=i % 3 > 0), leader_epoch=i // 2)
        append_entries(log, [send(i, messages=3)], i // 2, 1)
    return log


@pytest.mark.parametrize("piece", [100, 333, 1 << 20])
@pytest.mark.parametrize("segment_bytes", [100, 500, 1 << 20])
def test_a_follower_has_what_its_leader_has(tmp_path: Path, piece: int, segment_bytes: int) -> None:
    leader = a_leader(tmp_path / "leader")
    follower = open_log_in(tmp_path / "follower", segment_bytes=segment_bytes)
    everything = raw(leader)
    while follower.log_end < leader.log_end:
        at = len(raw(follower))
        before, size = follower.log_end, piece
        while follower.log_end == before:
            take(follower, everything[at : at + size])
            size *= 2
    for _ in range(2):
        assert raw(follower) == everything
        assert follower.has_entries
        assert follower.aborted_between(0, 100) == leader.aborted_between(0, 100)
        assert [follower.epochs.end_of(e, 99) for e in range(4)] == [
            leader.epochs.end_of(e, 99) for e in range(4)
        ]
        assert {p.producer_id: p.last_sequence for p in follower.producers} == {0: 2, 1: 2}
        crash(follower)
        follower = open_log_in(tmp_path / "follower", clean=False, segment_bytes=segment_bytes)


def damaged(data: bytes, at: int) -> bytearray:
    changed = bytearray(data)
    changed[at] ^= 0x40
    return changed


def test_nothing_of_what_is_damaged_is_written(tmp_path: Path) -> None:
    leader = a_leader(tmp_path / "leader")
    follower = open_log_in(tmp_path / "follower")
    first = len(batches(leader)[0][1])
    everything = raw(leader)
    for at in (first - 1, first + 11, first + 16, first + 17, first + 30, len(everything) - 1):
        with pytest.raises(Corrupt):
            take(follower, damaged(everything, at))
        assert (follower.log_end, follower.active.size) == (0, 0)
    take(follower, everything[: len(everything) - 1])
    assert follower.log_end < leader.log_end, "the last one is not whole"


def test_what_does_not_follow_is_refused(tmp_path: Path) -> None:
    leader = a_leader(tmp_path / "leader")
    follower = open_log_in(tmp_path / "follower")
    pieces = [bytes(batch) for _, batch in batches(leader)]
    take(follower, b"".join(pieces[:8]))
    for wrong in (pieces[7], pieces[9] + pieces[8], pieces[8] + pieces[8]):
        with pytest.raises(Corrupt):
            take(follower, wrong)
    late = records("of an older leader")
    place(late, 50, 0)
    with pytest.raises(Corrupt, match="epoch"):
        take(follower, late)
    assert raw(follower) == b"".join(pieces[:8])


def test_batches_of_an_epoch_that_was_not_asked_for_are_left_out(tmp_path: Path) -> None:
    leader = a_leader(tmp_path / "leader")
    follower = open_log_in(tmp_path / "follower")
    take(follower, raw(leader), epoch=1)
    assert follower.epochs.latest == 1
    assert follower.log_end == leader.epochs.end_of(1, leader.log_end)[1]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_gaps_are_no_damage(tmp_path: Path, policy: str) -> None:
    """Also in the last segment, and if the topic is compacted no more."""
    leader = compacted_log(tmp_path / "leader")
    for i in range(20):
        put(leader, records(str(i), keys=[str(i % 3) if i else "only here"]))
    leader.roll()
    put(leader, records("x", keys=["active"]))
    compact_now(leader)
    follower = open_log_in(tmp_path / "follower", cleanup_policy=(policy,))
    take(follower, raw(leader))
    crash(follower)
    again = open_log_in(tmp_path / "follower", clean=False, cleanup_policy=(policy,))
    assert raw(again) == raw(leader)
    assert [offset for offset, _ in contents(again)] == [0, 17, 18, 19, 20]


def test_offsets_that_are_too_far_from_where_the_segment_begins(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    far = []
    for offset in (1 << 40, (1 << 40) + (1 << 31), (1 << 40) + (1 << 31) + 1):
        far.append(records(str(offset)))
        place(far[-1], offset, 0)
    take(log, b"".join(far))
    assert [s.base_offset for s in log.segments] == [0, 1 << 40, (1 << 40) + (1 << 31)]
    before = raw(log)
    crash(log)
    assert raw(open_log_in(tmp_path, clean=False)) == before


def test_a_reader_at_the_end_goes_on_behind_a_gap_in_the_next_segment(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=100)
    put(log, records("a"))
    assert log.read(0, 1 << 20, 1, whole_first=True) is not None
    after = records("behind what was compacted away")
    place(after, 7, 0)
    take(log, after)
    assert [segment.base_offset for segment in log.segments] == [0, 7]
    assert log.read(1, 1 << 20, log.log_end, whole_first=True) is not None


def test_a_leader_that_begins_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    leader = open_log_in(tmp_path / "leader")
    fill(leader, "ab")
    put(leader, records("c", "d", "e"))
    leader.advance_start(3)
    follower = open_log_in(tmp_path / "follower", log_start=3)
    take(follower, raw(leader))
    assert (follower.log_start, follower.log_end) == (3, 5)
    assert contents(follower) == [(3, b"d"), (4, b"e")]
    crash(follower)
    assert contents(open_log_in(tmp_path / "follower", clean=False, log_start=3)) == [(3, b"d"), (4, b"e")]


def test_a_disk_that_is_full_half_way(tmp_path: Path) -> None:
    leader = a_leader(tmp_path / "leader")
    disk = FailingDisk(900)
    follower = open_log_in(tmp_path / "follower", disk=disk, segment_bytes=300)
    with pytest.raises(DiskFull):
        take(follower, raw(leader))
    assert 0 < follower.log_end < leader.log_end
    assert raw(leader).startswith(raw(follower))
    disk.room_bytes = 1 << 20
    take(follower, raw(leader, follower.log_end))
    assert raw(follower) == raw(leader)
