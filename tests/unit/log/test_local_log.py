"""The log itself: offsets, rolling, reading with limits, marks, timestamps, dropping and replacing."""

from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import OffsetOutOfRange
from anabranch.log.paths import segment_file
from anabranch.log.segment import Segment
from anabranch.log.transactions import AbortedTransaction
from anabranch.records.batch import place, read_header
from anabranch.records.builder import empty_batch
from tests.support.logs import (
    START_MS,
    SetClock,
    batches,
    contents,
    fill,
    marker,
    open_log_in,
    put,
    records,
)

DAY_MS = 86_400_000


def test_offsets_count_records(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    assert [put(log, records(*"abc")), put(log, records("d")), put(log, records(*"ef"))] == [0, 3, 4]
    assert (log.log_start, log.log_end) == (0, 6)
    assert contents(log) == [(i, letter.encode()) for i, letter in enumerate("abcdef")]


def test_a_batch_gets_its_offset_and_epoch_on_disk(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("a"), leader_epoch=3)
    put(log, records("b"), leader_epoch=7)
    assert [(h.base_offset, h.leader_epoch) for h, _ in batches(log)] == [(0, 3), (1, 7)]
    assert [log.epochs.epoch_of(o) for o in (0, 1)] == [3, 7]


# --- rolling


def test_it_rolls_before_a_segment_would_outgrow_its_size(tmp_path: Path) -> None:
    size = len(records("x" * 100))
    log = open_log_in(tmp_path, segment_bytes=size * 3)
    fill(log, ["x" * 100] * 10)
    assert [s.base_offset for s in log.segments] == [0, 3, 6, 9]
    assert all(s.size <= size * 3 for s in log.segments)
    assert len(contents(log)) == 10


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=200)
    put(log, records("x" * 1000))
    put(log, records("y"))
    assert [s.base_offset for s in log.segments] == [0, 1]
    assert [len(value or b"") for _, value in contents(log)] == [1000, 1]


def test_it_rolls_when_the_records_own_time_has_moved_on(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_ms=1000)
    put(log, records("a", timestamp=START_MS))
    put(log, records("b", timestamp=START_MS + 1000))
    assert len(log.segments) == 1
    put(log, records("c", timestamp=START_MS + 1001))
    assert [s.base_offset for s in log.segments] == [0, 2]


def test_without_timestamps_it_rolls_by_the_clock(tmp_path: Path) -> None:
    clock = SetClock()
    log = open_log_in(tmp_path, clock=clock, segment_ms=1000)
    put(log, records("a", timestamp=-1))
    clock.advance(1001)
    put(log, records("b", timestamp=-1))
    assert [s.base_offset for s in log.segments] == [0, 1]


def test_jitter_rolls_earlier_but_never_later(tmp_path: Path) -> None:
    rolled_after = set()
    for i in range(40):
        log = open_log_in(tmp_path / str(i), segment_ms=1000, segment_jitter_ms=500)
        put(log, records("a"))
        age = 0
        while len(log.segments) == 1:
            age += 10
            put(log, records("b", timestamp=START_MS + age))
        rolled_after.add(age)
    assert min(rolled_after) >= 500
    assert max(rolled_after) <= 1010
    assert len(rolled_after) > 10, "logs do not all roll at once"


def test_a_compacted_log_rolls_within_its_largest_lag(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_ms=DAY_MS, max_compaction_lag_ms=1000, cleanup_policy=("compact",))
    put(log, records("a", keys="k"))
    put(log, records("b", keys="k", timestamp=START_MS + 1001))
    assert len(log.segments) == 2


def test_it_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_index_bytes=24, index_interval_bytes=0)
    fill(log, "abcdefgh")  # the first batch of a segment has no entry; three of 8 bytes fill an index
    assert [s.base_offset for s in log.segments] == [0, 4]
    for i in range(6):  # two time entries of 12 bytes
        put(log, records("x", timestamp=START_MS + 1 + i))
    assert [s.base_offset for s in log.segments] == [0, 4, 8, 11]


def test_a_roll_leaves_a_snapshot_of_the_producers(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "ab")
    log.roll()
    assert segment_file(tmp_path, 2, ".snapshot").exists()


# --- reading


def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records(*"abc"))
    put(log, records(*"de"))
    assert [h.base_offset for h, _ in batches(log, 2)] == [0, 3]
    assert [h.base_offset for h, _ in batches(log, 4)] == [3]


def test_offsets_outside_the_log_are_refused(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, log_start=5)
    fill(log, "ab")
    for offset in (4, 8, -1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, log.log_end, whole_first=True)
    assert log.read(7, 100, log.log_end, whole_first=True) is None


@pytest.mark.parametrize("interval", [0, 4096])
def test_no_more_than_max_bytes_and_whole_batches_only(tmp_path: Path, interval: int) -> None:
    log = open_log_in(tmp_path, index_interval_bytes=interval)
    fill(log, ["x" * (10 + i) for i in range(30)])
    sizes = [h.size_bytes for h, _ in batches(log)]
    for first in range(30):
        for max_bytes in (0, sizes[first] - 1, sizes[first], sizes[first] + 1, 500, 1 << 20):
            part = log.read(first, max_bytes, log.log_end, whole_first=False)
            if max_bytes < sizes[first]:
                assert part is None
                continue
            assert part is not None
            assert part.size <= max_bytes
            ends = [sum(sizes[first : first + n]) for n in range(1, 31)]
            assert part.size in ends
            log._marks.clear()


def test_the_first_batch_comes_whole_however_large(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("x" * 1000))
    put(log, records("y"))
    assert log.read(0, 10, log.log_end, whole_first=False) is None
    part = log.read(0, 10, log.log_end, whole_first=True)
    assert part is not None
    assert part.size == read_header(part.file.pread(61, 0)).size_bytes


@pytest.mark.parametrize("limit", range(8))
def test_nothing_at_or_beyond_the_limit(tmp_path: Path, limit: int) -> None:
    log = open_log_in(tmp_path, segment_bytes=250)
    fill(log, "abcdefgh")
    seen: list[int] = []
    offset = 0
    while (part := log.read(offset, 1 << 20, limit, whole_first=True)) is not None:
        header = read_header(part.file.pread(61, part.position))
        count = part.size // header.size_bytes
        seen.extend(range(header.base_offset, header.base_offset + count))
        offset = header.base_offset + count
    assert seen == list(range(limit))


def test_a_reader_at_the_end_goes_on_after_a_roll(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("a"))
    assert contents(log) == [(0, b"a")]
    log.roll()
    put(log, records("b"))
    assert contents(log, 1) == [(1, b"b")]


def test_a_limit_at_the_end_of_a_segment_reads_all_of_it(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "ab")
    log.roll()
    fill(log, "cd")
    part = log.read(0, 1 << 20, 2, whole_first=True)
    assert part is not None
    assert part.size == log.segments[0].size
    assert log.read(2, 1 << 20, 2, whole_first=True) is None


def test_many_readers_do_not_grow_the_marks(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, ["x"] * 300)
    for offset in range(300):
        assert log.read(offset, 1, log.log_end, whole_first=True) is not None
    assert len(log._marks) <= 64


def test_reading_needs_few_descriptors(tmp_path: Path) -> None:
    disk = DirectDisk(max_open=4)
    log = open_log_in(tmp_path, disk=disk, segment_bytes=250, index_interval_bytes=0)
    fill(log, [str(i) for i in range(100)])
    assert len(log.segments) > 20
    for start in (0, 99, 50, 3):
        assert contents(log, start) == [(i, str(i).encode()) for i in range(start, 100)]
        assert len(disk.handles) <= 4


# --- timestamps


def test_the_first_batch_at_or_after_a_time(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=300, index_interval_bytes=0)
    for i in range(20):
        put(log, records(str(i), timestamp=START_MS + (i - i % 3) * 10))
    for wanted in range(0, 200, 5):
        found = log.batch_at_time(START_MS + wanted)
        expected = next((i for i in range(20) if (i - i % 3) * 10 >= wanted), None)
        assert (found and found[1].header.base_offset) == expected


def test_the_latest_record_and_the_first_of_equals(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=200)
    assert log.batch_of_max_timestamp() is None
    for timestamp in (5, 9, 7, 9, 8):
        put(log, records("x", timestamp=timestamp))
    found = log.batch_of_max_timestamp()
    assert found is not None
    assert found[1].header.base_offset == 1


def test_a_reopened_segment_knows_its_latest_timestamp(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    for timestamp in (5, 9, 7):
        put(log, records("x", timestamp=timestamp))
    log.close()
    log = open_log_in(tmp_path)
    assert (log.active.max_timestamp, log.active.offset_of_max_timestamp) == (9, 1)


def test_truncation_forgets_later_timestamps_only(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    for timestamp in (5, 9, 7, 20):
        put(log, records("x", timestamp=timestamp))
    place = log.active.find(3)
    assert place is not None
    log.active.truncate(place.position, 3)
    assert log.active.max_timestamp == 9
    place = log.active.find(1)
    assert place is not None
    log.active.truncate(place.position, 1)
    assert log.active.max_timestamp == 5


# --- transactions


def test_an_aborted_transaction_is_listed_where_it_overlaps(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put(log, records("a"))
    put(log, records("b", base_sequence=0, **fields))
    put(log, records("c"))
    put(log, marker(7, commit=False))
    put(log, records("d", base_sequence=1, **fields))
    put(log, marker(7, commit=True))
    aborted = AbortedTransaction(7, 1, 3, 4)
    assert log.aborted_between(0, 10) == [aborted]
    assert log.aborted_between(3, 10) == [aborted]
    assert log.aborted_between(4, 10) == []
    assert log.aborted_between(0, 1) == []


def test_aborted_transactions_survive_a_clean_stop(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, records("b", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    put(log, marker(7, commit=False))
    log.close()
    assert open_log_in(tmp_path).aborted_between(0, 10) == [AbortedTransaction(7, 0, 1, 2)]


def test_an_emptied_marker_still_tells_the_epoch(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    put(log, empty_batch(read_header(marker(7, commit=True, epoch=4))))
    producer = log.producers.get(7)
    assert producer is not None
    assert (producer.epoch, producer.txn_first_offset) == (4, None)


# --- history


def test_dropped_segments_are_marked_and_their_snapshots_go(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=100)
    fill(log, "abc")
    dropped = log.segments[:2]
    log.advance_start(2)
    log.drop(dropped)
    assert contents(log) == [(2, b"c")]
    names = sorted(p.name for p in tmp_path.iterdir())
    assert [n for n in names if n.endswith(".deleted") and ".log" in n] == [
        f"{i:020d}.log.{i}.deleted" for i in (0, 1)
    ]
    assert [n for n in names if n.endswith(".snapshot")] == [f"{2:020d}.snapshot"]


def test_the_active_segment_is_rolled_before_it_is_dropped(tmp_path: Path) -> None:
    log = open_log_in(tmp_path)
    fill(log, "ab")
    log.advance_start(2)
    log.drop(list(log.segments))
    assert (log.log_start, log.log_end, contents(log)) == (2, 2, [])
    assert put(log, records("c")) == 2
    assert contents(log) == [(2, b"c")]


def test_a_reader_of_a_dropped_segment_finishes(tmp_path: Path) -> None:
    disk = DirectDisk(max_open=1)
    log = open_log_in(tmp_path, segment_bytes=100, disk=disk)
    fill(log, "abc")
    part = log.read(0, 1000, 3, whole_first=True)
    assert part is not None
    log.drop(log.segments[:1])
    contents(log, 1)  # takes the only descriptor away
    assert read_header(part.file.pread(part.size, part.position)).base_offset == 0


def test_a_replacement_takes_the_place_of_what_it_replaces(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, segment_bytes=100)
    fill(log, "abcd")
    old = log.segments[:3]
    for segment in old:
        segment.rename(".deleted")
    new = Segment(DirectDisk(), tmp_path, 0, log.config)
    batch = records("C")
    place(batch, 2, 0)
    new.append(batch, 2, START_MS)
    new.end_offset = old[-1].end_offset
    log.replace(old, [new])
    assert [s.base_offset for s in log.segments] == [0, 3]
    assert contents(log) == [(2, b"C"), (3, b"d")]
    assert contents(log, 1) == [(2, b"C"), (3, b"d")]
