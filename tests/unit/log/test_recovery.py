"""After an unclean stop: what is whole stays, what is torn or flipped is cut, and all that follows it."""

import errno
import random
import shutil
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk, File
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import LEADER_EPOCHS, segment_file
from anabranch.log.transactions import AbortedTransaction
from anabranch.records.batch import HEADER_SIZE, read_header, split_batches
from tests.support.logs import (
    START_MS,
    contents,
    crash,
    fill,
    marker,
    open_log_in,
    put,
    records,
)

LEADER_EPOCH_BYTES = range(12, 16)  # the CRC does not cover them and any value is possible


def written(folder: Path, count: int, **config: int) -> list[int]:
    """A log of `count` batches of two records that was never closed; where each batch ends."""
    log = open_log_in(folder, **config)
    ends = []
    for i in range(count):
        put(log, records(f"{i}a", f"{i}b", timestamp=START_MS + i))
        ends.append(log.active.size)
    crash(log)
    return ends


def expected(batches: int) -> list[tuple[int, bytes]]:
    return [(2 * i + j, f"{i}{'ab'[j]}".encode()) for i in range(batches) for j in (0, 1)]


def recovered(folder: Path, **config: int) -> LocalLog:
    log = open_log_in(folder, clean=False, **config)
    assert log.log_end == log.active.end_offset
    assert put(log, records("next")) == log.log_end - 1
    assert contents(log)[-1] == (log.log_end - 1, b"next")
    return log


def test_everything_that_was_written_is_there(tmp_path: Path) -> None:
    written(tmp_path, 5)
    log = recovered(tmp_path)
    assert contents(log)[:-1] == expected(5)


def test_a_tail_torn_at_any_byte(tmp_path: Path) -> None:
    ends = written(tmp_path / "whole", 4)
    data = segment_file(tmp_path / "whole", 0, ".log").read_bytes()
    folder = tmp_path / "torn"
    folder.mkdir()
    for size in range(ends[1], len(data) + 1):
        segment_file(folder, 0, ".log").write_bytes(data[:size])
        log = open_log_in(folder, clean=False)
        whole = sum(end <= size for end in ends)
        assert contents(log) == expected(whole)
        assert log.log_end == 2 * whole
        assert log.active.size == ends[whole - 1]
        assert log.active.max_timestamp == START_MS + whole - 1
        crash(log)


def test_a_flipped_bit_anywhere_in_the_tail(tmp_path: Path) -> None:
    ends = written(tmp_path / "whole", 4)
    data = segment_file(tmp_path / "whole", 0, ".log").read_bytes()
    folder = tmp_path / "flipped"
    folder.mkdir()
    chance = random.Random(7)
    for at in range(ends[1], len(data)):
        batch = sum(end <= at for end in ends)
        if at - ends[batch - 1] in LEADER_EPOCH_BYTES:
            continue
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        segment_file(folder, 0, ".log").write_bytes(flipped)
        log = open_log_in(folder, clean=False)
        assert contents(log) == expected(batch), f"byte {at - ends[batch - 1]} of batch {batch}"
        assert log.log_end == 2 * batch
        crash(log)
        for path in folder.iterdir():
            path.unlink()


def test_garbage_and_zeros_after_the_last_batch(tmp_path: Path) -> None:
    for tail in (b"\x00" * 4096, b"\xff" * 200, random.Random(3).randbytes(3000), b"\x00" * 7):
        folder = tmp_path / str(len(tail))
        written(folder, 3)
        with segment_file(folder, 0, ".log").open("ab") as file:
            file.write(tail)
        assert contents(recovered(folder))[:-1] == expected(3)


def test_what_follows_damage_is_removed(tmp_path: Path) -> None:
    written(tmp_path, 6, segment_bytes=200)
    logs = sorted(tmp_path.glob("*.log"))
    assert len(logs) == 3
    flipped = bytearray(logs[1].read_bytes())
    flipped[HEADER_SIZE + 3] ^= 1
    logs[1].write_bytes(flipped)
    log = recovered(tmp_path, segment_bytes=200)
    assert contents(log)[:-1] == expected(2)
    assert [path.name for path in sorted(tmp_path.glob("*.log"))] == [f"{o:020d}.log" for o in (0, 4)]


def test_a_segment_that_is_damaged_from_its_start_is_there_once(tmp_path: Path) -> None:
    """Two Segments of one file: dropping one would take what is written to the other along."""
    written(tmp_path, 6, segment_bytes=200)
    damaged = sorted(tmp_path.glob("*.log"))[1]
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    log = recovered(tmp_path, segment_bytes=200)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert contents(log) == [*expected(2), (4, b"next")]
    log.advance_start(4)
    log.drop(log.segments[:1])
    put(log, records("more"))
    crash(log)
    again = open_log_in(tmp_path, clean=False, log_start=4)
    assert contents(again) == [(4, b"next"), (5, b"more")]


def test_only_what_lies_beyond_the_recovery_point_is_read_again(tmp_path: Path) -> None:
    written(tmp_path, 6, segment_bytes=200)
    first = sorted(tmp_path.glob("*.log"))[0]
    flipped = bytearray(first.read_bytes())
    flipped[-1] ^= 1
    first.write_bytes(flipped)
    log = open_log_in(tmp_path, clean=False, recovery_point=4, segment_bytes=200)
    assert (log.log_end, log.recovery_point) == (12, 4)


def test_what_is_written_anew_is_durable_no_more(tmp_path: Path) -> None:
    written(tmp_path, 3)
    log = open_log_in(tmp_path, clean=False, recovery_point=100)
    assert log.recovery_point == log.active.base_offset


def test_a_clean_start_believes_the_checkpoint_only_as_far_as_it_was_written(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "abc")
    log.close()
    assert open_log_in(tmp_path, recovery_point=2).recovery_point == 2


def test_a_log_start_beyond_what_is_left_is_kept(tmp_path: Path) -> None:
    written(tmp_path, 3)
    log = recovered(tmp_path, log_start=50)
    assert (log.log_start, log.log_end) == (50, 51)
    crash(log)
    again = open_log_in(tmp_path, clean=False, log_start=50)
    assert contents(again) == [(50, b"next")]


def test_an_empty_last_segment(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "ab")
    log.roll()
    log.active.file.fileno()  # the file is there, with nothing in it
    crash(log)
    assert [value for _, value in contents(recovered(tmp_path))] == [b"a", b"b", b"next"]


def test_offsets_that_jump_in_the_tail_are_damage(tmp_path: Path) -> None:
    ends = written(tmp_path, 3)
    path = segment_file(tmp_path, 0, ".log")
    data = bytearray(path.read_bytes())
    data[ends[1]] ^= 1  # the highest byte of the last batch's base offset
    path.write_bytes(data)
    assert contents(recovered(tmp_path))[:-1] == expected(2)


def gap_at(folder: Path, base: int) -> None:
    """Take the first batch of a segment away, as compaction does."""
    path = segment_file(folder, base, ".log")
    data = path.read_bytes()
    path.write_bytes(data[read_header(data).size_bytes :])


def test_gaps_that_compaction_left_are_not(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "abc")
    log.roll()
    crash(log)
    gap_at(tmp_path, 0)
    log = open_log_in(tmp_path, clean=False)
    assert contents(log) == [(1, b"b"), (2, b"c")]
    assert put(log, records("d")) == 3


def test_nothing_is_written_behind_what_may_have_been_compacted(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    for values in ("abc", "def", "gh"):
        fill(log, values)
        log.roll()
    crash(log)
    gap_at(tmp_path, 0)
    second = segment_file(tmp_path, 3, ".log")
    second.write_bytes(second.read_bytes()[:-1])
    for _ in range(2):
        log = open_log_in(tmp_path, clean=False)
        assert [value for _, value in contents(log)][:4] == [b"b", b"c", b"d", b"e"]
        put(log, records("x"))
        crash(log)
    assert contents(open_log_in(tmp_path, clean=False))[-2:] == [(5, b"x"), (6, b"x")]


def test_epochs_come_back_from_the_batches(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    for epoch in (0, 0, 2, 5):
        put(log, records("x"), leader_epoch=epoch)
    crash(log)
    (tmp_path / LEADER_EPOCHS).unlink()
    log = open_log_in(tmp_path, clean=False)
    assert [log.epochs.epoch_of(offset) for offset in range(4)] == [0, 0, 2, 5]


@pytest.mark.parametrize("left", [None, b"", b"0\n3\n0 0\n2 2\n5 "])
def test_epochs_that_a_power_cut_took_come_back_from_all_batches(tmp_path: Path, left: bytes | None) -> None:
    """Of segments too that are safe, and would not be read otherwise."""
    log = open_log_in(tmp_path, segment_bytes=150)
    for epoch in (0, 0, 2, 5):
        put(log, records("x"), leader_epoch=epoch)
    crash(log)
    path = tmp_path / LEADER_EPOCHS
    path.unlink() if left is None else path.write_bytes(left)
    log = open_log_in(tmp_path, clean=False, recovery_point=3)
    assert [log.epochs.epoch_of(offset) for offset in range(4)] == [0, 0, 2, 5]


def test_epochs_beyond_the_cut_are_forgotten(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("x"), leader_epoch=1)
    size = log.active.size
    put(log, records("x"), leader_epoch=4)
    crash(log)
    path = segment_file(tmp_path, 0, ".log")
    path.write_bytes(path.read_bytes()[:size])
    assert open_log_in(tmp_path, clean=False).epochs.latest == 1


# --- producers and transactions


def idempotent(sequence: int, *, producer: int = 7, epoch: int = 0, transactional: bool = False) -> bytearray:
    return records(
        "x",
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def last_sequences(log: LocalLog) -> dict[int, int]:
    return {producer.producer_id: producer.last_sequence for producer in log.producers}


def test_producers_come_back_without_a_snapshot(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    for sequence in range(5):
        put(log, idempotent(sequence))
    crash(log)
    assert last_sequences(open_log_in(tmp_path, clean=False)) == {7: 4}


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\x00" * 100])
def test_a_garbage_snapshot_is_passed_over(tmp_path: Path, damage: bytes) -> None:
    log = open_log_in(tmp_path)
    put(log, idempotent(0))
    log.roll()
    put(log, idempotent(1))
    log.close()
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.write_bytes(damage)
    assert last_sequences(open_log_in(tmp_path)) == {7: 1}


def test_a_snapshot_beyond_the_end_is_not_believed(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, idempotent(0))
    size = log.active.size
    put(log, idempotent(1))
    log.close()
    path = segment_file(tmp_path, 0, ".log")
    path.write_bytes(path.read_bytes()[:size])
    assert last_sequences(open_log_in(tmp_path, clean=False)) == {7: 0}


def test_snapshots_of_no_use_are_removed(tmp_path: Path) -> None:
    for round_ in range(4):
        log = open_log_in(tmp_path)
        put(log, idempotent(round_))
        log.close()
    log = open_log_in(tmp_path)
    log.roll()
    put(log, idempotent(4))
    log.close()
    open_log_in(tmp_path)
    assert sorted(p.name for p in tmp_path.glob("*.snapshot")) == [f"{o:020d}.snapshot" for o in (4, 5)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", [True, False])
def test_aborted_transactions_are_listed_once(tmp_path: Path, clean: bool, snapshots: bool) -> None:
    log = open_log_in(tmp_path)
    put(log, idempotent(0, transactional=True))
    put(log, marker(7, commit=False))
    log.close()  # a snapshot behind the marker
    log = open_log_in(tmp_path)
    put(log, idempotent(1, transactional=True))
    put(log, idempotent(0, producer=8, transactional=True))
    put(log, marker(7, commit=False))
    put(log, idempotent(2))
    if clean:
        log.close()
    else:
        crash(log)
    if not snapshots:
        for snapshot in tmp_path.glob("*.snapshot"):
            snapshot.unlink()
    log = open_log_in(tmp_path, clean=clean)
    assert log.aborted_between(0, 100) == [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 2, 4, 3)]
    assert log.producers.first_open_transaction == 3
    assert last_sequences(log) == {7: 2, 8: 0}


def test_a_transaction_that_spans_segments_is_listed_with_its_marker(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, idempotent(0, transactional=True))
    log.roll()
    put(log, marker(7, commit=False))
    crash(log)
    log = open_log_in(tmp_path, clean=False, recovery_point=1)
    assert log.aborted_between(0, 1) == [AbortedTransaction(7, 0, 1, 2)]


# --- what a crash or a person left of the indexes


GARBAGE = {
    "missing": None,
    "empty": b"",
    "zeros": b"\x00" * 96,
    "ones": b"\xff" * 96,
    "noise": random.Random(5).randbytes(96),
    "torn": b"\x00\x00\x00",
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_indexes_are_not_taken_at_their_word(tmp_path: Path, clean: bool, kind: str, garbage: str) -> None:
    log = open_log_in(tmp_path, index_interval_bytes=100, segment_bytes=2000)
    for i in range(60):
        put(log, records(str(i), timestamp=START_MS + i))
    assert len(log.segments) >= 2
    if clean:
        log.close()
    else:
        crash(log)
    for path in tmp_path.glob(f"*{kind}"):
        content = GARBAGE[garbage]
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    log = open_log_in(tmp_path, clean=clean, index_interval_bytes=100, segment_bytes=2000)
    assert log.log_end == 60
    for start in (0, 17, 33, 59):
        assert contents(log, start) == [(i, str(i).encode()) for i in range(start, 60)]
        for max_bytes in (200, 900):
            part = log.read(start, max_bytes, 60, whole_first=False)
            assert part is not None
            found_batches = list(split_batches(part.file.pread(part.size, part.position)))
            assert found_batches[0][0].base_offset == start
    for i in range(0, 60, 7):
        found = log.batch_at_time(START_MS + i)
        assert found is not None
        assert found[1].header.base_offset == i
    assert [s.max_timestamp for s in log.segments][-1] == START_MS + 59
    assert put(log, records("next")) == 60


def test_an_index_without_a_log_is_removed(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "a")
    log.close()
    for kind in (".index", ".timeindex", ".txnindex"):
        segment_file(tmp_path, 1, kind).write_bytes(b"\x00\x00\x00\x01" * 24)
    log = open_log_in(tmp_path)
    log.roll()
    assert log.active.offset_index.entries == 0
    assert not segment_file(tmp_path, 1, ".txnindex").exists()


def test_a_log_of_nothing_but_leftovers_is_an_empty_one(tmp_path: Path) -> None:
    for name in ("junk", "00000000000000000000.log.deleted", "00000000000000000000.index", "x.snapshot"):
        (tmp_path / name).write_bytes(b"\x01" * 50)
    log = open_log_in(tmp_path, clean=False)
    assert (log.log_start, log.log_end) == (0, 0)
    assert put(log, records("a")) == 0


def test_recovery_can_be_cut_off_and_begun_again(tmp_path: Path) -> None:
    written(tmp_path / "once", 8, segment_bytes=200)
    shutil.copytree(tmp_path / "once", tmp_path / "again")
    crash(open_log_in(tmp_path / "again", clean=False, segment_bytes=200))
    log = recovered(tmp_path / "again", segment_bytes=200)
    assert contents(log)[:-1] == expected(8)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_cannot_be_opened_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    """Whichever step it is that the disk refuses."""
    ends = written(tmp_path, 8, segment_bytes=400)
    last = sorted(tmp_path.glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[: ends[-1] - 5])
    fileno, steps = File.fileno, 0

    def counted(file: File) -> int:
        nonlocal steps
        if not steps:
            raise OSError(errno.EIO, "broken")
        steps -= 1
        return fileno(file)

    failures = 0
    with monkeypatch.context() as broken:
        broken.setattr(File, "fileno", counted)
        while True:
            disk, steps = DirectDisk(), failures
            try:
                log = open_log_in(tmp_path, disk=disk, clean=clean, log_start=20)
            except OSError:
                assert len(disk.handles) == 0
                failures += 1
            else:
                break
    assert failures >= 5
    assert log.log_start == 20
