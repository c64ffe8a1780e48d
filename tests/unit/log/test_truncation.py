"""Cutting a log: killed at every step, while it is read, synced and compacted."""

import os
import shutil
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anabranch.base.errors import DiskFull, Unavailable
from anabranch.log import compaction_swap, producer_replay, truncation
from anabranch.log.cleaner import Cleaner, Message
from anabranch.log.compaction import Job, compact
from anabranch.log.local_log import LocalLog
from anabranch.log.segment import Segment
from anabranch.log.truncation import finish_cut, truncate_fully_and_start_at, truncate_to
from tests.support.compaction import compact_now, compacted_log, job_for, keyed, view_now, worker_here
from tests.support.crashing_disk import Crash, CrashingDisk, FailingDisk, RefusingDisk
from tests.support.logs import a_disk, batches, contents, crash, fill, marker, open_log_in, put, records

SMALL = {"segment_bytes": 400, "index_interval_bytes": 50}
Cut = Callable[[CrashingDisk, LocalLog], list[Segment]]
CUTS: dict[str, tuple[Cut, int]] = {
    "inside a segment": (lambda disk, log: truncate_to(disk, log, 9), 9),
    "inside the last": (lambda disk, log: truncate_to(disk, log, 21), 21),
    "where one begins": (lambda disk, log: truncate_to(disk, log, log.segments[2].base_offset), -1),
    "all": (lambda disk, log: truncate_to(disk, log, 0), 0),
    "fully, further back": (lambda disk, log: truncate_fully_and_start_at(disk, log, 5), 5),
    "fully, further on": (lambda disk, log: truncate_fully_and_start_at(disk, log, 100), 100),
}


def a_log(folder: Path) -> LocalLog:
    """Several segments of three epochs, with producers and an aborted transaction in each."""
    log = open_log_in(folder, **SMALL)
    fields = {"producer_epoch": 0, "transactional": True}
    for i in range(8):
        put(log, records(str(i), producer_id=i % 3, base_sequence=i // 3, **fields), leader_epoch=i // 3)
        put(log, marker(i % 3, commit=i % 2 == 0), leader_epoch=i // 3)
        put(log, records("x" * i), leader_epoch=i // 3)
    log.recovery_point = log.log_end
    return log


def state(log: LocalLog) -> tuple[object, ...]:
    """What a log can say of itself."""
    return (
        [bytes(batch) for _, batch in batches(log)],
        [log.epochs.end_of(epoch, log.log_end) for epoch in range(4)],
        log.aborted_between(0, log.log_end),
        log.producers.first_open_transaction,
        sorted((p.producer_id, p.last_sequence, p.last_offset) for p in log.producers),
    )


@pytest.mark.parametrize("name", CUTS)
def test_killed_at_every_step(tmp_path: Path, name: str) -> None:
    """The log is then as one that was never longer than it is, and that is not shorter than the cut."""
    cut, target = CUTS[name]
    original = a_log(tmp_path / "original")
    whole = [(header, bytes(batch)) for header, batch in batches(original)]
    end, point = original.log_end, original.recovery_point
    expected_end = original.segments[2].base_offset if target < 0 else target
    crash(original)
    steps, done = -1, False
    while not done:
        steps += 1
        folder = tmp_path / str(steps)
        shutil.copytree(tmp_path / "original", folder)
        disk = CrashingDisk()
        log = open_log_in(folder, disk=disk, recovery_point=point, **SMALL)
        disk.arm(steps)
        try:
            cut(disk, log)
            done = True
        except Crash:
            assert steps < 200
        crash(log)
        again = open_log_in(folder, clean=False, recovery_point=point, **SMALL)
        left = [bytes(batch) for _, batch in batches(again)]
        if done:
            assert again.log_end == expected_end
        assert left == [batch for header, batch in whole if header.last_offset < again.log_end][: len(left)]
        kept = {header.last_offset + 1 for header, _ in whole}
        assert again.log_end in {0, expected_end, *kept}, f"step {steps}"
        if not name.startswith("fully"):
            assert expected_end <= again.log_end <= end
            naive = open_log_in(tmp_path / f"naive-{steps}", **SMALL)
            for header, batch in whole:
                if header.last_offset < again.log_end:
                    put(naive, bytearray(batch), header.leader_epoch)
            assert state(again) == state(naive), f"step {steps}"
        elif not left:
            assert again.epochs.latest == -1
            assert list(again.producers) == []
        fill(again, ["more"])
        assert contents(again)[-1] == (again.log_end - 1, b"more")
        crash(again)
        shutil.rmtree(folder)
    assert steps > 2


@pytest.mark.parametrize("name", CUTS)
def test_refused_at_every_step_nothing_is_appended_before_it_is_cut(tmp_path: Path, name: str) -> None:
    cut, _ = CUTS[name]
    original = a_log(tmp_path / "original")
    point = original.recovery_point
    crash(original)
    shutil.copytree(tmp_path / "original", tmp_path / "whole")
    whole = open_log_in(tmp_path / "whole", recovery_point=point, **SMALL)
    cut(CrashingDisk(), whole)
    steps, is_refused = 0, True
    while is_refused:
        folder = tmp_path / str(steps)
        shutil.copytree(tmp_path / "original", folder)
        disk = RefusingDisk()
        log = open_log_in(folder, disk=disk, recovery_point=point, **SMALL)
        known = state(log)[3:]
        disk.arm(steps)
        steps += 1
        try:
            cut(disk, log)
        except DiskFull:
            assert (log.cuts, state(log)[3:]) == (0, known)
            for append in (lambda log=log: put(log, records("x")), log.roll):
                with pytest.raises(DiskFull):
                    append()
            finish_cut(disk, log)
        is_refused = disk.has_refused
        disk.arm(1 << 60)
        assert log.cut_due is None
        assert finish_cut(disk, log) == []
        assert (log.log_end, log.cuts, state(log)) == (whole.log_end, 1, state(whole)), f"step {steps}"
        put(log, records("more"), 3)
        left = state(log)
        crash(log)
        assert state(open_log_in(folder, clean=False, recovery_point=log.recovery_point, **SMALL)) == left
    assert steps > 2


def test_a_disk_that_refuses_leaves_a_log_that_can_be_cut_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log_in(tmp_path, disk=disk)
    put(log, records("0", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    fill(log, "abcdefgh")
    put(log, marker(1, commit=False))
    before = contents(log)
    disk.room_bytes = 0
    with pytest.raises(DiskFull):
        truncate_to(disk, log, 9)
    assert contents(log) == before
    disk.room_bytes = 1 << 20
    truncate_to(disk, log, 9)
    assert (log.log_end, contents(log)) == (9, before)
    assert log.producers.first_open_transaction == 0
    assert log.aborted_between(0, 9) == []


def test_a_disk_that_refuses_for_long_leaves_no_name_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path)

    def refuse(_: Segment) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(Segment, "seal", refuse)
    for attempt in [lambda: truncate_to(a_disk(), log, 9), *[lambda: finish_cut(a_disk(), log)] * 30]:
        with pytest.raises(DiskFull):
            attempt()
    monkeypatch.undo()
    for segment in finish_cut(a_disk(), log):
        segment.remove()
    assert log.log_end == 9
    assert [name for name in os.listdir(tmp_path) if ".deleted" in name] == []


def test_a_disk_that_refuses_takes_no_epochs(tmp_path: Path) -> None:
    """A follower is told where to cut by the epochs that it has, the second time as the first."""
    disk = FailingDisk()
    log = open_log_in(tmp_path, disk=disk)
    for epoch in (5, 5, 6, 6):
        put(log, records(str(epoch)), epoch)
    known = [log.epochs.end_of(epoch, log.log_end) for epoch in (5, 6)]
    disk.room_bytes = 0
    with pytest.raises(DiskFull):
        truncate_to(disk, log, 2)
    assert [log.epochs.end_of(epoch, log.log_end) for epoch in (5, 6)] == known
    disk.room_bytes = 1 << 30
    truncate_to(disk, log, 2)
    assert (log.log_end, log.epochs.end_of(5, 2), log.epochs.latest) == (2, (5, 2), 5)


def test_a_range_that_was_read_before_never_gives_what_came_after(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "abcdef")
    below, across = (log.read(0, 1 << 20, limit, whole_first=True) for limit in (3, 6))
    assert below is not None
    assert across is not None
    kept = below.file.pread(below.size, below.position)
    truncate_to(a_disk(), log, 3)
    fill(log, "DEF")
    assert below.file.pread(below.size, below.position) == kept
    assert across.file.pread(across.size, across.position) == kept, "what was cut is missing, nothing else"
    assert [value for _, value in contents(log)] == [b"a", b"b", b"c", b"D", b"E", b"F"]


def test_a_batch_is_cut_whole(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("a", "b"))
    put(log, records("c", "d", "e"))
    assert truncate_to(a_disk(), log, 5) == []
    assert log.cuts == 0
    truncate_to(a_disk(), log, 4)
    assert (log.log_end, contents(log)) == (2, [(0, b"a"), (1, b"b")])


def test_a_cut_in_a_gap_ends_there_after_a_restart_too(tmp_path: Path) -> None:
    """What compaction took below the cut was somebody's: its offsets are not given out again."""
    log = compacted_log(tmp_path)
    for value in "abcd":
        put(log, records(value, keys=["a" if value == "a" else "k"]))
    log.roll()
    put(log, records("e", keys=["e"]))
    assert [s.base_offset for s in log.segments] == [0, 4]
    compact_now(log)
    assert contents(log) == [(0, b"a"), (3, b"d"), (4, b"e")]
    truncate_to(a_disk(), log, 2)
    assert log.log_end == 2
    crash(log)
    again = open_log_in(tmp_path, clean=False)
    assert (again.log_end, contents(again)) == (2, [(0, b"a")])


async def test_a_compaction_begun_before_is_not_put_in_place_after(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=300)
    for i in range(20):
        put(log, records(str(i), keys=[str(i % 3)]))
    log.roll()

    async def worker(job: Job) -> AsyncGenerator[Message, None]:
        async for message in worker_here(job):
            if "replaced" in message and not log.cuts:
                truncate_to(a_disk(), log, 10)
            yield message

    with ThreadPoolExecutor(1) as threads, pytest.raises(Unavailable, match="was cut"):
        await Cleaner(a_disk(), threads, worker).clean(log, job_for(log), lambda gone: None)
    assert [offset for offset, _, _ in keyed(log)] == list(range(10))
    crash(log)
    again = compacted_log(tmp_path, clean=False)
    assert [offset for offset, _, _ in keyed(again)] == list(range(10))
    assert [p for p in os.listdir(tmp_path) if p.endswith((".cleaned", ".swap"))] == []


def test_a_replacement_that_is_ready_is_not_there_after_a_kill(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=300)
    for i in range(20):
        put(log, records(str(i), keys=[str(i % 3)]))
    log.roll()
    groups: list[list[int]] = []
    compact(a_disk(), job_for(log), lambda size: None, groups.append)
    for group in groups:
        compaction_swap.promote(a_disk(), tmp_path, group[0])
    truncate_to(a_disk(), log, 10)
    crash(log)
    assert [offset for offset, _, _ in keyed(compacted_log(tmp_path, clean=False))] == list(range(10))


@pytest.mark.parametrize(("cut", "stays"), [(9, False), (10, True)])
def test_a_view_that_has_taken_up_what_was_cut_is_given_up(tmp_path: Path, cut: int, stays: bool) -> None:
    log = open_log_in(tmp_path)
    for i in range(20):
        put(log, records(str(i), keys=[str(i % 3)]))
    view_now(log, end=10)
    view = log.view
    assert view is not None
    truncate_to(a_disk(), log, cut)
    assert log.view is (view if stays else None)
    for i in range(20):
        put(log, records(str(i), keys=["new"]))
    crash(log)
    view.close()
    again = open_log_in(tmp_path, clean=False)
    assert (again.view is not None) is stays


def test_times_of_what_is_left(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, index_interval_bytes=0)
    for i, at in enumerate((100, 900, 300, 2000, 400)):
        put(log, records(str(i), timestamp=at))
    log.close()
    log = open_log_in(tmp_path, index_interval_bytes=0)
    log.roll()
    truncate_to(a_disk(), log, 3)
    assert [segment.max_timestamp for segment in log.segments] == [900, -1]
    log.close()
    log = open_log_in(tmp_path)
    assert log.segments[0].max_timestamp == 900
    assert log.batch_at_time(1000) is None


def test_a_cut_keeps_every_batch_of_a_producer_that_may_come_again(tmp_path: Path) -> None:
    """Snapshots have the last one of each only, and one was taken behind these."""
    log = open_log_in(tmp_path, segment_bytes=200)
    for i in range(6):
        put(log, records(str(i), producer_id=1, producer_epoch=0, base_sequence=i))
    put(log, records("z"))
    assert last_offsets(log) == [0, 1, 2, 3, 4, 5]
    truncate_to(a_disk(), log, 6)
    assert last_offsets(log) == [0, 1, 2, 3, 4, 5]
    truncate_to(a_disk(), log, 4)
    assert last_offsets(log) == [0, 1, 2, 3]


def tail(log: LocalLog) -> list[int]:
    """What producers have in flight when their leader is lost, and where logs may be cut."""
    ends = []
    for i in range(5):
        ends.append(log.log_end)
        put(log, records("x", producer_id=1, producer_epoch=0, base_sequence=9 + i))
    ends.append(log.log_end)
    put(log, marker(2, commit=True, epoch=1, coordinator=3))
    put(log, records("x", producer_id=2, producer_epoch=1, base_sequence=0, transactional=True))
    ends.append(log.log_end)
    put(log, records("x", producer_id=3, producer_epoch=0, base_sequence=0))
    return ends[::-1]


def test_a_cut_of_what_was_not_replicated_reads_no_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be millions of them since the last snapshot, and nothing else goes on meanwhile."""
    log = open_log_in(tmp_path)
    for i in range(9):
        put(log, records("a", producer_id=1, producer_epoch=0, base_sequence=i))
        put(log, records("b", producer_id=2, producer_epoch=0, base_sequence=i, transactional=True))
    ends = tail(log)
    monkeypatch.setattr(truncation, "restore_producers", None)
    for number, end in enumerate(ends):
        truncate_to(a_disk(), log, end)
        shutil.copytree(tmp_path, tmp_path / f"{number}")
        replayed = open_log_in(tmp_path / f"{number}", clean=False)
        assert state(log) == state(replayed)
        assert [p.epoch for p in log.producers] == [p.epoch for p in replayed.producers]
        shutil.rmtree(tmp_path / f"{number}")


def test_a_disk_that_does_not_give_the_batches_leaves_the_producers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path)
    log.producers.safe_below(log.log_end)
    known = state(log)

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no descriptor")

    monkeypatch.setattr(producer_replay, "_replay", refuse)
    with pytest.raises(OSError, match="no descriptor"):
        truncate_to(a_disk(), log, 9)
    monkeypatch.undo()
    assert state(log) == known
    finish_cut(a_disk(), log)
    left = state(log)
    crash(log)
    assert state(open_log_in(tmp_path, clean=False, **SMALL)) == left


def last_offsets(log: LocalLog) -> list[int]:
    """Of the batches of producer 1 that would be known again."""
    producer = log.producers.get(1)
    assert producer is not None
    return [batch.last_offset for batch in producer.batches]
