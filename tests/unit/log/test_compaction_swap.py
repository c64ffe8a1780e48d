"""Replacing segments, cut off at every step: no record that counts is lost, none comes twice."""

import itertools
import shutil
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.log import compaction_swap
from anabranch.log.compaction import compact
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import segment_file
from anabranch.log.transactions import AbortedTransaction
from tests.support.compaction import compacted_log, job_for, keyed
from tests.support.crashing_disk import Crash, CrashingDisk
from tests.support.logs import crash, marker, open_log_in, put, records

Records = list[tuple[int, str, str | None]]


def a_log(folder: Path) -> LocalLog:
    """Several segments, keys that are superseded across them, an aborted transaction."""
    log = compacted_log(folder, segment_bytes=500)
    for i in range(12):
        put(log, records(str(i), keys=[str(i % 5)]))
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put(log, records("aborted", keys=["1"], base_sequence=0, **fields))
    put(log, marker(7, commit=False))
    for i in range(12, 20):
        put(log, records(str(i), keys=[str(i % 5)]))
    log.roll()
    put(log, records("x", keys=["active"]))
    return log


def latest(found: Records) -> dict[str, tuple[int, str | None]]:
    return {key: (offset, value) for offset, key, value in found}


def compact_up_to(steps: int, folder: Path) -> int:
    """All of compaction, the worker's part and the broker's, killed after `steps`.  How many it took."""
    disk = CrashingDisk()
    log = compacted_log(folder, segment_bytes=500, disk=disk)
    segments = {segment.base_offset: segment for segment in log.segments}

    def put_in_place(bases: list[int]) -> None:
        compaction_swap.promote(disk, folder, bases[0])
        compaction_swap.swap_in(disk, log, [segments[base] for base in bases])

    disk.arm(steps)
    try:
        compact(disk, job_for(log), lambda size: None, put_in_place)
    finally:
        crash(log)
    return disk.steps


def test_cut_off_at_every_step(tmp_path: Path) -> None:
    original = a_log(tmp_path / "original")
    before = [each for each in keyed(original) if each[2] != "aborted"]
    original.close()
    shutil.copytree(tmp_path / "original", tmp_path / "finished")
    everything = compact_up_to(1 << 30, tmp_path / "finished")
    after = keyed(open_log_in(tmp_path / "finished"))
    assert len(after) < len(before)
    for steps, clean in itertools.product(range(everything + 1), (True, False)):
        folder = tmp_path / f"{steps}-{clean}"
        shutil.copytree(tmp_path / "original", folder)
        try:
            compact_up_to(steps, folder)
        except Crash:
            assert steps < everything
        log = open_log_in(folder, clean=clean, segment_bytes=500)
        aborted = log.aborted_between(0, log.log_end)
        found = [each for each in keyed(log) if not (aborted and each[2] == "aborted")]
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets)), f"step {steps}"
        assert set(after) <= set(found) <= set(before), f"step {steps}"
        assert latest(found) == latest(before)
        assert log.log_end == original.log_end
        assert aborted in ([], [AbortedTransaction(7, 12, 13, 14)])
        leftovers = [p.name for p in folder.iterdir() if p.name.endswith((".cleaned", ".swap", ".deleted"))]
        assert leftovers == []
        crash(log)
        shutil.rmtree(folder)


def test_recovery_itself_cut_off_at_every_step(tmp_path: Path) -> None:
    log = a_log(tmp_path / "original")
    before = keyed(log)
    job = job_for(log)
    log.close()
    groups: list[list[int]] = []
    compact(DirectDisk(), job, lambda size: None, groups.append)
    compaction_swap.promote(DirectDisk(), tmp_path / "original", groups[0][0])
    for steps in itertools.count():
        folder = tmp_path / str(steps)
        shutil.copytree(tmp_path / "original", folder)
        disk = CrashingDisk()
        disk.arm(steps)
        try:
            compaction_swap.finish(disk, folder)
        except Crash:
            done = False
        else:
            done = True
        found = keyed(open_log_in(folder, segment_bytes=500))
        assert latest(found) == latest(before)
        if done:
            break
    assert steps > 3


@pytest.mark.parametrize("kind", [".index.swap", ".timeindex.swap", ".log.cleaned", ".txnindex.cleaned"])
def test_leftovers_that_do_not_count(tmp_path: Path, kind: str) -> None:
    log = a_log(tmp_path)
    before = keyed(log)
    log.close()
    segment_file(tmp_path, 0, kind).write_bytes(b"half of something")
    assert keyed(open_log_in(tmp_path, segment_bytes=500)) == before
    assert not segment_file(tmp_path, 0, kind).exists()


@pytest.mark.parametrize("content", [b"", b"\x00" * 200, b"\xff" * 61])
def test_a_swap_that_cannot_be_read_does_not_hang(tmp_path: Path, content: bytes) -> None:
    log = a_log(tmp_path)
    log.close()
    segment_file(tmp_path, 3, ".log.swap").write_bytes(content)
    open_log_in(tmp_path, clean=False, segment_bytes=500)


def test_a_discarded_replacement_leaves_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    compact(DirectDisk(), job_for(log), lambda size: None, lambda bases: None)
    for segment in log.segments:
        compaction_swap.discard(DirectDisk(), tmp_path, segment.base_offset)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_an_index_whose_new_name_a_power_cut_took(tmp_path: Path, kind: str) -> None:
    """The .log has its new name, so the replacement counts, and with it the index that was made for it."""
    log = a_log(tmp_path)
    before = latest(keyed(log))
    log.close()
    replaced: list[list[int]] = []
    compact(DirectDisk(), job_for(log), lambda size: None, replaced.append)
    base = replaced[0][0]
    compaction_swap.promote(DirectDisk(), tmp_path, base)
    made = segment_file(tmp_path, base, kind + ".swap").read_bytes()
    segment_file(tmp_path, base, kind + ".swap").rename(segment_file(tmp_path, base, kind + ".cleaned"))
    again = open_log_in(tmp_path, segment_bytes=500)
    assert segment_file(tmp_path, base, kind).read_bytes() == made
    assert latest(keyed(again)) == before
