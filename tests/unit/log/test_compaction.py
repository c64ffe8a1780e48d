"""Compaction over files, by Kafka's rules: which records stay, at which offsets, in which batches."""

import logging
from pathlib import Path

import pytest

from anabranch.base.errors import Corrupt
from anabranch.log.compaction import Job
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import segment_file
from anabranch.log.transactions import AbortedTransaction
from anabranch.records.batch import DELETE_HORIZON, HEADER_SIZE, PULSAR_ENTRY, crc_of, read_header
from tests.support.compaction import compact_now, compacted_log, job_for, keyed
from tests.support.logs import START_MS, batches, contents, marker, open_log_in, put, records

DAY_MS = 86_400_000


def one(log: LocalLog, key: str, value: str | None, **fields: object) -> int:
    return put(log, records(value, keys=[key], **fields))  # type: ignore[arg-type]


def files(folder: Path, ending: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(ending))


# --- keys


def test_the_last_record_of_a_key_stays_where_it_was(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("a", "3")):
        one(log, key, value)
    log.roll()
    compact_now(log)
    assert keyed(log) == [(1, "b", "1"), (3, "c", "1"), (4, "a", "3")]
    assert (log.log_start, log.log_end) == (0, 5)


def test_the_active_segment_is_left_alone_and_does_not_count(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1")
    log.roll()
    one(log, "a", "2")
    one(log, "a", "3")
    compact_now(log)
    assert keyed(log) == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_within_a_batch_too(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, records(*"12345", keys=list("abaca")))
    log.roll()
    compact_now(log)
    assert keyed(log) == [(1, "b", "2"), (3, "c", "4"), (4, "a", "5")]
    (header, _), *_ = batches(log)
    assert (header.base_offset, header.last_offset, header.count) == (0, 4, 3)


@pytest.mark.parametrize("codec", range(5))
def test_batches_keep_their_codec(tmp_path: Path, codec: int) -> None:
    log = compacted_log(tmp_path)
    put(log, records(*(["x" * 500] * 3), keys=list("aba"), codec=codec))
    log.roll()
    compact_now(log)
    (header, _), *_ = batches(log)
    assert header.codec == codec
    assert keyed(log) == [(1, "b", "x" * 500), (2, "a", "x" * 500)]


def test_records_without_a_key_go(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, records("1", "2", "3", keys=["a", None, "b"]))
    log.roll()
    assert compact_now(log).keyless == 1
    assert keyed(log) == [(0, "a", "1"), (2, "b", "3")]


def test_timestamps_and_headers_are_not_touched(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1", timestamp=START_MS + 5)
    one(log, "b", "1", timestamp=START_MS + 9)
    one(log, "a", "2", timestamp=START_MS + 7)
    log.roll()
    compact_now(log)
    assert [h.max_timestamp for h, _ in batches(log)] == [START_MS + 9, START_MS + 7]
    assert log.segments[0].max_timestamp == START_MS + 9


def test_reads_between_the_gaps(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=400, index_interval_bytes=0)
    for i in range(50):
        one(log, str(i % 7), str(i))
    log.roll()
    compact_now(log)
    left = keyed(log)
    assert [offset for offset, _, _ in left] == list(range(43, 50))
    for start in range(50):
        assert [o for o, _ in contents(log, start)] == [o for o, _, _ in left if o >= start]


def test_only_dirty_records_supersede(tmp_path: Path) -> None:
    """What was cleaned before is copied without being looked up again; it still gives way."""
    log = compacted_log(tmp_path)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2")):
        one(log, key, value)
    log.roll()
    compact_now(log)
    one(log, "b", "2")
    one(log, "c", "1")
    log.roll()
    summary = compact_now(log, first_dirty=3)
    assert summary.keys == 2
    assert keyed(log) == [(2, "a", "2"), (3, "b", "2"), (4, "c", "1")]


# --- tombstones


def test_a_tombstone_stays_until_its_horizon(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=1000)
    one(log, "a", "1")
    one(log, "a", None, timestamp=START_MS - 5)
    one(log, "z", "1")
    log.roll()
    compact_now(log)
    assert keyed(log) == [(1, "a", None), (2, "z", "1")]
    (header, batch), *_ = batches(log)
    assert header.delete_horizon_ms == START_MS + 1000
    assert header.max_timestamp == START_MS - 5
    assert crc_of(batch) == header.crc
    compact_now(log, now_ms=START_MS + 999)
    assert keyed(log) == [(1, "a", None), (2, "z", "1")]
    (header, _), *_ = batches(log)
    assert header.delete_horizon_ms == START_MS + 1000, "a horizon is set once"
    compact_now(log, now_ms=START_MS + 1000)
    assert keyed(log) == [(2, "z", "1")]


def test_a_batch_of_values_gets_no_horizon(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, records("1", "2", keys=["a", "b"]))
    log.roll()
    compact_now(log)
    assert all(not header.attributes & DELETE_HORIZON for header, _ in batches(log))


def test_a_value_after_the_tombstone_wins(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", None)
    one(log, "a", "2")
    log.roll()
    compact_now(log)
    assert keyed(log) == [(1, "a", "2")]


def test_a_horizon_far_away_fits_the_header(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=(1 << 63) - 1)
    one(log, "a", None)
    log.roll()
    compact_now(log)
    assert keyed(log) == [(0, "a", None)]


# --- producers


def test_the_last_batch_of_a_producer_stays_even_if_empty(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    producer = {"producer_id": 7, "producer_epoch": 2}
    one(log, "a", "1", base_sequence=0, **producer)
    one(log, "a", "2", base_sequence=1, **producer)
    one(log, "a", "3")
    one(log, "z", "1")
    log.roll()
    compact_now(log)
    assert keyed(log) == [(2, "a", "3"), (3, "z", "1")]
    (header, _), *_ = batches(log)
    assert (header.base_offset, header.count, header.producer_id, header.last_sequence) == (1, 0, 7, 1)
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    log.close()
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    known = open_log_in(tmp_path).producers.get(7)
    assert known is not None
    assert (known.epoch, known.last_sequence, known.last_offset) == (2, 1, 1)


def test_of_a_forgotten_producer_nothing_stays(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1", producer_id=7, producer_epoch=0, base_sequence=0)
    one(log, "a", "2")
    one(log, "z", "1")
    log.roll()
    log.producers.expire(START_MS + DAY_MS)
    compact_now(log)
    assert [header.base_offset for header, _ in batches(log)] == [1, 2]


def test_the_last_batch_of_what_is_cleaned_stays(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=150)
    one(log, "a", "1")
    one(log, "b", "1")
    put(log, records("keyless"))
    log.roll()
    compact_now(log)
    assert [(h.base_offset, h.count) for h, _ in batches(log)] == [(0, 1), (1, 1), (2, 0)]


# --- transactions


def in_transaction(log: LocalLog, key: str, value: str, sequence: int, producer: int = 7) -> int:
    return one(
        log,
        key,
        value,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def test_aborted_records_go_and_supersede_nothing(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1")
    in_transaction(log, "a", "aborted", 0)
    put(log, marker(7, commit=False))
    in_transaction(log, "b", "committed", 1)
    put(log, marker(7, commit=True))
    one(log, "z", "1")
    log.roll()
    compact_now(log)
    assert keyed(log) == [(0, "a", "1"), (3, "b", "committed"), (5, "z", "1")]
    assert [h.base_offset for h, _ in batches(log) if h.is_control] == [2, 4]
    assert log.aborted_between(0, 10) == [AbortedTransaction(7, 1, 2, 3)]


def test_a_marker_stays_until_its_transaction_is_gone_and_its_horizon_passed(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=1000)
    in_transaction(log, "a", "aborted", 0)
    put(log, marker(7, commit=False))
    in_transaction(log, "b", "committed", 1)
    put(log, marker(7, commit=True))
    in_transaction(log, "c", "last", 2)
    put(log, marker(7, commit=True))
    one(log, "z", "1")
    log.roll()

    def markers() -> list[tuple[int, int | None]]:
        return [(h.base_offset, h.delete_horizon_ms) for h, _ in batches(log) if h.is_control]

    compact_now(log)  # the aborted data goes, its marker is needed by who reads it just now
    assert markers() == [(1, None), (3, None), (5, None)]
    compact_now(log)
    assert markers() == [(1, START_MS + 1000), (3, None), (5, None)]
    assert log.aborted_between(0, 10) == []
    compact_now(log, now_ms=START_MS + 999)
    assert markers()[0] == (1, START_MS + 1000)
    compact_now(log, now_ms=START_MS + 1000)
    assert markers() == [(3, None), (5, None)]
    one(log, "b", "superseded")
    log.roll()
    compact_now(log, now_ms=START_MS + 2000)  # the committed record goes
    assert markers() == [(3, None), (5, None)]
    compact_now(log, now_ms=START_MS + 2000)
    assert markers() == [(3, START_MS + 3000), (5, None)]
    compact_now(log, now_ms=START_MS + 3000)
    assert markers() == [(5, None)]


def test_nothing_beyond_the_last_stable_offset(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1")
    log.roll()
    in_transaction(log, "a", "open", 0)
    one(log, "a", "2")
    log.roll()
    one(log, "a", "3")
    log.roll()
    job = job_for(log)
    assert (job.bases, job.end) == ([0], 1)
    compact_now(log)
    assert [offset for offset, _, _ in keyed(log)] == [0, 1, 2, 3]


def test_a_transaction_over_several_segments(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    in_transaction(log, "a", "aborted", 0)
    log.roll()
    in_transaction(log, "b", "aborted", 1)
    one(log, "b", "kept")
    log.roll()
    put(log, marker(7, commit=False))
    one(log, "c", "kept")
    compact_now(log)  # the marker is in the active segment
    assert keyed(log) == [(2, "b", "kept"), (4, "c", "kept")]
    log.roll()
    compact_now(log)
    assert keyed(log) == [(2, "b", "kept"), (4, "c", "kept")]
    log.close()
    assert keyed(open_log_in(tmp_path)) == [(2, "b", "kept"), (4, "c", "kept")]


def test_the_emptied_last_batch_of_a_producer_keeps_its_marker(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=0)
    in_transaction(log, "a", "1", 0)
    put(log, marker(7, commit=True))
    one(log, "a", "2")
    one(log, "z", "2")
    log.roll()
    for _ in range(4):
        compact_now(log)
    assert [(h.base_offset, h.count) for h, _ in batches(log)] == [(0, 0), (1, 1), (2, 1), (3, 1)]
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    log.close()
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    assert open_log_in(tmp_path).producers.first_open_transaction is None


def test_a_producer_known_by_a_marker_only_keeps_it(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=0)
    put(log, marker(7, commit=False, epoch=5))
    one(log, "z", "1")
    log.roll()
    compact_now(log)
    compact_now(log, now_ms=START_MS + 1)
    (header, _), *_ = batches(log)
    assert (header.base_offset, header.count, header.producer_epoch) == (0, 0, 5)


# --- segments


def test_small_segments_are_merged_up_to_their_size(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=1000)
    for i in range(60):
        one(log, str(i % 10), str(i))
        if i % 2:
            log.roll()
    compact_now(log)
    assert len(log.segments) < 8
    assert all(segment.size <= 1000 for segment in log.segments)
    assert [value for _, _, value in keyed(log)] == [str(i) for i in range(50, 60)]
    assert files(tmp_path, ".cleaned") == files(tmp_path, ".swap") == []
    bases = {segment.base_offset for segment in log.segments}
    assert {int(name[:20]) for name in files(tmp_path, ".snapshot")} <= bases


def test_a_segment_of_which_nothing_is_left(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=200)
    for value in "1234":
        one(log, "a", value)
        log.roll()
    compact_now(log)
    assert keyed(log) == [(3, "a", "4")]
    log.close()
    log = open_log_in(tmp_path, clean=False)
    assert keyed(log) == [(3, "a", "4")]
    assert (log.log_start, log.log_end) == (0, 4)


def test_what_would_not_change_is_not_written(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1")
    one(log, "b", "1")
    log.roll()
    before = segment_file(tmp_path, 0, ".log").stat().st_ino
    compact_now(log)
    assert segment_file(tmp_path, 0, ".log").stat().st_ino == before
    assert files(tmp_path, ".cleaned") == []


def test_the_files_date_is_that_of_the_last_original(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1", timestamp=-1)
    one(log, "a", "2", timestamp=-1)
    log.roll()
    from anabranch.base.disk import DirectDisk

    DirectDisk().set_modified_ms(segment_file(tmp_path, 0, ".log"), START_MS)
    compact_now(log)
    assert DirectDisk().modified_ms(segment_file(tmp_path, 0, ".log")) == START_MS


def test_indexes_of_the_result_are_kafkas(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, index_interval_bytes=100)
    for i in range(40):
        one(log, str(i % 20), str(i), timestamp=START_MS + i)
    log.roll()
    compact_now(log)
    segment = log.segments[0]
    assert segment.offset_index.entries > 3
    for i in range(segment.offset_index.entries):
        relative, position = segment.offset_index.entry(i)
        header = read_header(segment.file.pread(HEADER_SIZE, position))
        assert header.last_offset == relative + segment.base_offset
    assert segment.time_index.last == (START_MS + 39, 39)


# --- limits


def small(job: Job) -> Job:
    return job._replace(dedupe_bytes=24 * 64)  # 48 keys


def test_a_full_table_cleans_as_far_as_it_got(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=2000)
    for i in range(400):
        one(log, str(i % 100), str(i))
    log.roll()
    cleaned_to = 0
    rounds = 0
    while cleaned_to < 400:
        summary = compact_now(log, first_dirty=cleaned_to, change=small)
        assert summary.cleaned_to > cleaned_to
        cleaned_to = summary.cleaned_to
        rounds += 1
    assert rounds > 4
    assert [value for _, _, value in keyed(log)] == [str(i) for i in range(300, 400)]


def test_a_full_table_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=1000)
    put(log, records("old", keys=["0"]))
    put(log, records(*([None] * 100), keys=[str(i) for i in range(100)]))
    log.roll()
    summary = compact_now(log, change=small)
    assert summary.cleaned_to == 49
    assert [offset for offset, _, _ in keyed(log)] == list(range(1, 101))
    (header, _), *_ = batches(log)
    assert header.delete_horizon_ms is None, "tombstones that have not done their work have no horizon yet"
    compact_now(log, first_dirty=49, change=small)
    compact_now(log, first_dirty=97, change=small)
    (header, _), *_ = batches(log)
    assert header.delete_horizon_ms == START_MS + 1000


# --- damage


def test_a_batch_that_cannot_be_read_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = compacted_log(tmp_path)
    one(log, "a", "1")
    put(log, records("broken", "x", keys=["a", "b"]))
    one(log, "b", "2")
    log.roll()
    path = segment_file(tmp_path, 0, ".log")
    data = bytearray(path.read_bytes())
    at = log.segments[0].find(1)
    assert at is not None
    data[at.position + HEADER_SIZE + 9] ^= 0xFF
    path.write_bytes(data)
    broken = bytes(data[at.position : at.position + at.header.size_bytes])
    with caplog.at_level(logging.WARNING):
        summary = compact_now(log)
    assert summary.unreadable == 1
    assert [batch for header, batch in batches(log) if header.base_offset == 1] == [broken]
    assert [header.base_offset for header, _ in batches(log)] == [0, 1, 3]


def test_a_length_that_leads_nowhere_ends_it_and_harms_nothing(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for value in "12":
        one(log, "a", value)
    log.roll()
    path = segment_file(tmp_path, 0, ".log")
    data = bytearray(path.read_bytes())
    data[8:12] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(Corrupt):
        compact_now(log)
    assert path.read_bytes() == data


def test_what_is_no_entry_stays(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    entry = records("x")
    entry[21] |= PULSAR_ENTRY >> 8
    entry[17:21] = crc_of(entry).to_bytes(4, "big")
    put(log, entry)
    one(log, "a", "1")
    one(log, "a", "2")
    log.roll()
    assert compact_now(log).unreadable == 1
    assert [h.base_offset for h, _ in batches(log)] == [0, 2]


def test_the_log_stays_sound_for_recovery(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=600)
    for i in range(100):
        one(log, str(i % 13), str(i))
    log.roll()
    compact_now(log)
    left = keyed(log)
    log.close()
    again = open_log_in(tmp_path, clean=False, cleanup_policy=("compact",), segment_bytes=600)
    assert keyed(again) == left
    assert again.log_end == 100
