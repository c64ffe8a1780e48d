"""A full disk: an append that does not fit is refused, nothing else changes, and it works again later."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from anabranch.base.disk import File
from anabranch.base.errors import DiskFull
from tests.support.crashing_disk import FailingDisk
from tests.support.logs import batches, contents, crash, fill, marker, open_log_in, put, records


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The kernel writes as much as fits and then fails, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Files that are open stay so, no other can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_half_a_batch_is_never_left_behind(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("a"))
    size = log.active.size
    for extra in (0, 1, 40, 70):
        with file_size_limit(size + extra), pytest.raises(DiskFull):
            put(log, records("x" * 100))
        assert (log.log_end, log.active.size) == (1, size)
        assert os.path.getsize(log.active.file.path) == size
    assert put(log, records("b")) == 1
    crash(log)
    assert contents(open_log_in(tmp_path, clean=False)) == [(0, b"a"), (1, b"b")]


def test_at_every_byte(tmp_path: Path) -> None:
    """However many bytes are left, what was acknowledged is there, before a restart and after one."""
    for room in range(0, 2000, 23):
        folder = tmp_path / str(room)
        disk = FailingDisk(room)
        log = open_log_in(folder, disk=disk, segment_bytes=300, index_interval_bytes=50)
        stored = []
        for i in range(20):
            try:
                offset = put(log, records(str(i), producer_id=7, producer_epoch=0, base_sequence=len(stored)))
            except DiskFull:
                continue
            stored.append((offset, str(i).encode()))
        assert [offset for offset, _ in stored] == list(range(len(stored)))
        assert contents(log) == stored
        disk.room_bytes = 1 << 20
        assert put(log, records("more")) == len(stored)
        crash(log)
        again = open_log_in(folder, clean=False, segment_bytes=300)
        assert contents(again) == [*stored, (len(stored), b"more")]
        known = again.producers.get(7)
        assert (known.last_sequence if known else -1) == len(stored) - 1


def test_a_roll_that_fails_is_tried_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log_in(tmp_path, disk=disk, segment_bytes=200)
    fill(log, "ab")
    disk.room_bytes = 0
    for _ in range(3):
        with pytest.raises(DiskFull):
            put(log, records("c"))
    disk.room_bytes = 1 << 20
    assert put(log, records("c")) == 2
    assert [header.base_offset for header, _ in batches(log)] == [0, 1, 2]


def test_a_roll_that_could_not_reserve_its_room_leaves_no_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller batch still goes into the one before; it must be there when the log is opened again."""
    log = open_log_in(tmp_path, preallocate=True, segment_bytes=250)

    def full(self: File, size: int) -> None:
        raise DiskFull("no room to reserve")

    put(log, records("a"))
    with monkeypatch.context() as patched:
        patched.setattr(File, "reserve", full)
        with pytest.raises(DiskFull):
            put(log, records("x" * 150))
        assert put(log, records("b")) == 1
    log.close()
    assert contents(open_log_in(tmp_path)) == [(0, b"a"), (1, b"b")]


def test_old_segments_can_go_when_there_is_no_room(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log_in(tmp_path, disk=disk, segment_bytes=150)
    fill(log, "abcdef")
    disk.room_bytes = 0
    dropped = log.segments[:2]
    log.advance_start(dropped[-1].end_offset)
    log.drop(dropped)
    assert contents(log) == [(4, b"e"), (5, b"f")]
    for segment in dropped:
        segment.remove()


def test_what_is_in_the_log_is_acknowledged_and_its_producer_known(tmp_path: Path) -> None:
    """The epoch's file cannot be written; telling the producer that would have it send the batch again."""
    log = open_log_in(tmp_path)
    with no_descriptors():
        assert put(log, records("a", producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=5) == 0
    known = log.producers.get(7)
    assert known is not None
    assert known.last_sequence == 0
    log.close()
    assert open_log_in(tmp_path).epochs.epoch_of(0) == 5, "saved when that was possible again"


def test_aborted_transactions_are_listed_in_order_however_late_they_are_saved(tmp_path: Path) -> None:
    fields = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log = open_log_in(tmp_path)
    expected = []
    for producer, may_open in ((1, True), (2, False), (3, False), (4, True), (5, False)):
        first = put(log, records("a", producer_id=producer, **fields))
        with nullcontext() if may_open else no_descriptors():
            put(log, marker(producer, commit=False))
        expected.append((producer, first))
    assert [(e.producer_id, e.first_offset) for e in log.aborted_between(0, log.log_end)] == expected
    log.close()
    again = open_log_in(tmp_path)
    assert [(e.producer_id, e.first_offset) for e in again.aborted_between(0, again.log_end)] == expected


def test_a_list_of_aborted_transactions_that_cannot_be_read_yet(tmp_path: Path) -> None:
    fields = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log = open_log_in(tmp_path)
    put(log, records("a", producer_id=1, **fields))
    put(log, marker(1, commit=False))
    log.close()
    log = open_log_in(tmp_path)
    put(log, records("a", producer_id=2, **fields))
    with no_descriptors():
        put(log, marker(2, commit=False))
    assert [e.producer_id for e in log.aborted_between(0, log.log_end)] == [1, 2]


def test_a_sparse_index_is_still_right(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log_in(tmp_path, disk=disk, index_interval_bytes=0)
    for i in range(40):
        batch = records(str(i))
        disk.room_bytes = len(batch) + (8 if i % 3 == 0 else 0)
        put(log, batch)
    assert 5 < log.active.offset_index.entries < 39
    for start in range(40):
        assert contents(log, start)[0] == (start, str(start).encode())
