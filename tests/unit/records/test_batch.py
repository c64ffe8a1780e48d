"""The envelope: its 61 bytes, its place in a log, and cutting a buffer into batches."""

import pytest

from anabranch.base.errors import Corrupt
from anabranch.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    crc_of,
    place,
    read_header,
    split_batches,
    stamp,
)
from anabranch.records.builder import build_batch
from anabranch.records.record import Record

RECORDS = [Record(0, 1_000, b"k", b"v"), Record(1, 1_005, b"k", b"v")]


def test_the_header_has_61_bytes_in_kafkas_order() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=0,
        leader_epoch=2,
        producer_id=3,
        producer_epoch=4,
        base_sequence=5,
        transactional=True,
    )
    assert HEADER_SIZE == 61
    expected = (
        "0000000000000000" "00000044" "00000002" "02" f"{crc_of(batch):08x}" "0010" "00000001"
        "00000000000003e8" "00000000000003ed" "0000000000000003" "0004" "00000005" "00000002"
    )  # fmt: skip
    assert batch[:61].hex() == expected.replace("00000044", f"{len(batch) - 12:08x}")


def test_placing_changes_nothing_that_the_crc_covers() -> None:
    batch = build_batch(RECORDS)
    before = read_header(batch)
    place(batch, 500, 9)
    after = read_header(batch)
    assert (after.base_offset, after.last_offset, after.leader_epoch) == (500, 501, 9)
    assert after.crc == before.crc == crc_of(batch)
    assert after.size_bytes == len(batch)


def test_stamping_sets_the_brokers_time_and_a_new_crc() -> None:
    batch = build_batch(RECORDS)
    stamp(batch, 77_777)
    header = read_header(batch)
    assert header.attributes & LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 77_777)
    assert header.crc == crc_of(batch)


def test_sequence_numbers_wrap_to_zero() -> None:
    header = BatchHeader(0, 49, 0, 2, 0, 0, 2, 0, 0, 1, 0, 2**31 - 2, 3)
    assert header.last_sequence == 0
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_batches_are_split_where_they_say() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1], codec=1)
    found = list(split_batches(bytes(first + second)))
    assert [bytes(batch) for _, batch in found] == [first, second]
    assert [header.count for header, _ in found] == [2, 1]
    assert list(split_batches(b"")) == []


def test_a_batch_that_is_cut_short_or_lies_is_corrupt() -> None:
    batch = build_batch(RECORDS)
    for cut in (1, 11, 60, 61, len(batch) - 1):
        with pytest.raises(Corrupt):
            list(split_batches(batch[:cut]))
    for length in (-1, 0, 48, -(2**31), 2**31 - 1):
        lying = bytearray(batch)
        lying[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(Corrupt, match=f"claims {length} bytes"):
            list(split_batches(lying))
