"""Batches we make: every field where it belongs, and rewriting changes only what it must."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt, InvalidConfig, TooLarge, UnsupportedForFormat
from anabranch.records import batch as layout
from anabranch.records.batch import BatchHeader, crc_of, read_header, split_batches
from anabranch.records.builder import (
    Alike,
    build_batch,
    build_keyed,
    empty_batch,
    encode_alike,
    recompress,
    retain,
    seal_keyed,
)
from anabranch.records.compression import GZIP, LZ4, NAMES, NONE, ZSTD
from anabranch.records.record import Record, check_records, iter_records, iter_spans, payload_of
from tests.unit.records.strategies import CODECS, FIELDS, INT64, LIMIT_BYTES, record_lists, seeded

TEXT = b"some text that repeats, some text that repeats"
RECORDS = [Record(100 + number, 5_000 + number, b"k%d" % number, TEXT * 9) for number in range(10)]


def records_of(batch: bytes | bytearray) -> list[Record]:
    header = read_header(batch)
    assert crc_of(batch) == header.crc
    assert header.size_bytes == len(batch)
    return list(iter_records(header, payload_of(header, batch, LIMIT_BYTES)))


@seeded(200)
@given(record_lists(dense=False), FIELDS, st.sampled_from(CODECS), st.integers(0, 9), st.integers(0, 9))
def test_every_field_comes_back(
    records: list[Record], fields: dict[str, Any], codec: int, before: int, after: int
) -> None:
    base, last = records[0].offset - before, records[-1].offset + after
    batch = build_batch(records, base_offset=base, last_offset=last, codec=codec, **fields)
    ((header, whole),) = split_batches(batch)
    assert whole == batch
    append_time, horizon = fields["append_time_ms"], fields["delete_horizon_ms"]
    assert header == BatchHeader(
        base_offset=base,
        length=len(batch) - 12,
        leader_epoch=fields["leader_epoch"],
        magic=2,
        crc=crc_of(batch),
        attributes=header.attributes,
        last_offset_delta=last - base,
        base_timestamp=records[0].timestamp if horizon is None else horizon,
        max_timestamp=max(r.timestamp for r in records) if append_time is None else append_time,
        producer_id=fields["producer_id"],
        producer_epoch=fields["producer_epoch"],
        base_sequence=fields["base_sequence"],
        count=len(records),
    )
    assert header.codec == codec
    assert bool(header.attributes & layout.LOG_APPEND_TIME) == (append_time is not None)
    assert header.is_transactional == fields["transactional"]
    assert header.is_control == fields["control"]
    assert header.delete_horizon_ms == horizon
    assert header.attributes >> 7 == 0
    expected = records if append_time is None else [r._replace(timestamp=append_time) for r in records]
    assert records_of(batch) == expected


@seeded()
@given(record_lists(), FIELDS, st.sampled_from(CODECS), st.sampled_from(CODECS))
def test_recompressing_changes_the_codec_alone(
    records: list[Record], fields: dict[str, Any], old: int, new: int
) -> None:
    batch = build_batch(records, codec=old, **fields)
    again = recompress(memoryview(batch), new, None, LIMIT_BYTES)
    before, after = read_header(batch), read_header(again)
    assert after.codec == new
    assert after.attributes & ~layout.CODEC_MASK == before.attributes & ~layout.CODEC_MASK
    changed = {"length": after.length, "crc": after.crc, "attributes": after.attributes}
    assert before._replace(**changed) == after
    assert records_of(again) == records_of(batch)


def test_recompressing_keeps_bits_we_do_not_know() -> None:
    batch = build_batch(RECORDS, codec=GZIP)
    header = read_header(batch)
    odd = header._replace(attributes=header.attributes | -0x8000 | 0x2000)
    batch[: layout.HEADER_SIZE] = layout.HEADER.pack(*odd)
    assert read_header(recompress(batch, ZSTD, None, LIMIT_BYTES)).attributes == -0x8000 | 0x2000 | ZSTD


def test_recompressing_refuses_what_it_should() -> None:
    batch = build_batch(RECORDS, codec=GZIP)
    with pytest.raises(TooLarge):
        recompress(batch, ZSTD, None, 1000)
    with pytest.raises(InvalidConfig):
        recompress(batch, ZSTD, 99, LIMIT_BYTES)
    with pytest.raises(UnsupportedForFormat):
        recompress(batch, 5, None, LIMIT_BYTES)
    batch[90] ^= 0xFF
    with pytest.raises(Corrupt):
        recompress(batch, ZSTD, None, LIMIT_BYTES)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_retaining_keeps_offsets_and_producer(codec: int) -> None:
    batch = build_batch(
        RECORDS,
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=50,
        transactional=True,
        leader_epoch=4,
    )
    header = read_header(batch)
    payload = payload_of(header, batch, LIMIT_BYTES)
    spans = list(iter_spans(header, payload))
    kept = retain(header, payload, [spans[2], spans[5]])
    after = read_header(kept)
    assert records_of(kept) == [RECORDS[2], RECORDS[5]]
    assert after._replace(length=header.length, crc=header.crc, count=10, max_timestamp=5_009) == header
    assert (after.count, after.max_timestamp, after.last_sequence) == (2, 5_005, 59)


def test_retaining_everything_gives_the_same_batch() -> None:
    for codec in CODECS:
        batch = build_batch(RECORDS, codec=codec)
        header = read_header(batch)
        payload = payload_of(header, batch, LIMIT_BYTES)
        assert retain(header, payload, list(iter_spans(header, payload))) == batch


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = build_batch(RECORDS, codec=LZ4)
    header = read_header(batch)
    payload = payload_of(header, batch, LIMIT_BYTES)
    spans = list(iter_spans(header, payload))[:3]
    marked = retain(header, payload, spans, delete_horizon_ms=999_999)
    after = read_header(marked)
    assert after.delete_horizon_ms == 999_999
    assert after.max_timestamp == 5_002
    assert records_of(marked) == RECORDS[:3]
    payload = payload_of(after, marked, LIMIT_BYTES)
    again = retain(after, payload, list(iter_spans(after, payload))[1:], delete_horizon_ms=123)
    assert read_header(again).delete_horizon_ms == 999_999
    assert records_of(again) == RECORDS[1:3]


@seeded()
@given(record_lists(dense=False), INT64, INT64 | st.none())
def test_any_horizon_keeps_the_records(records: list[Record], horizon: int, append_time: int | None) -> None:
    batch = build_batch(records, append_time_ms=append_time)
    header = read_header(batch)
    payload = payload_of(header, batch, LIMIT_BYTES)
    marked = retain(header, payload, list(iter_spans(header, payload)), horizon)
    assert records_of(marked) == records_of(batch)
    assert read_header(marked).delete_horizon_ms == horizon


def test_record_attributes_survive_a_horizon() -> None:
    batch = build_batch([Record(0, 5, b"k", b"v")])
    batch[layout.HEADER_SIZE + 1] = 0xFE  # nobody defines these bits; they are not ours to drop
    header = read_header(batch)
    payload = payload_of(header, batch, LIMIT_BYTES)
    marked = retain(header, payload, list(iter_spans(header, payload)), 1_000)
    assert marked[layout.HEADER_SIZE + 1] == 0xFE


def test_nothing_kept_leaves_an_empty_batch() -> None:
    batch = build_batch(
        RECORDS,
        codec=ZSTD,
        producer_id=7,
        producer_epoch=3,
        base_sequence=50,
        delete_horizon_ms=77,
        transactional=True,
    )
    header = read_header(batch)
    empty = retain(header, payload_of(header, batch, LIMIT_BYTES), [])
    assert empty == empty_batch(header)
    after = read_header(empty)
    assert len(empty) == layout.HEADER_SIZE
    assert (after.base_offset, after.last_offset, after.count) == (100, 109, 0)
    assert (after.producer_id, after.producer_epoch, after.last_sequence) == (7, 3, 59)
    assert (after.codec, after.delete_horizon_ms, after.is_transactional) == (NONE, None, True)
    assert after.base_timestamp == after.max_timestamp == 5_009
    assert records_of(empty) == []


def test_a_record_outside_its_batch_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="before"):
        build_batch([Record(5, 0, None, None)], base_offset=6)
    with pytest.raises(AssertionError, match="after"):
        build_batch([Record(5, 0, None, None)], base_offset=0, last_offset=4)


def test_what_is_built_is_what_a_producer_may_send() -> None:
    batch = build_batch([record._replace(offset=number) for number, record in enumerate(RECORDS)])
    header = read_header(batch)
    check_records(header, payload_of(header, batch, LIMIT_BYTES), require_key=True)


KEYED = st.lists(
    st.tuples(st.binary(max_size=600), st.none() | st.binary(max_size=600)), min_size=1, max_size=600
)


@seeded(100)
@given(KEYED, INT64, st.integers(-1, 5))
def test_keys_and_values_of_one_time_are_a_batch_like_any_other(
    pairs: list[tuple[bytes, bytes | None]], time_ms: int, producer_id: int
) -> None:
    records = [Record(number, time_ms, key, value) for number, (key, value) in enumerate(pairs)]
    has_producer = producer_id >= 0
    epoch = 3 if has_producer else -1
    assert build_keyed(pairs, time_ms, producer_id=producer_id, producer_epoch=epoch) == build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, transactional=has_producer
    )


INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
NUMBERS = st.lists(st.tuples(INT32, INT64), min_size=1, max_size=4)
TEXTS = st.binary(max_size=300)


@seeded(100)
@given(NUMBERS, NUMBERS, st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), st.sampled_from([1, 63, 64, 65, 600, 8192]))
def test_records_that_are_alike_are_what_they_are_one_by_one(
    some: list[tuple[int, int]], others: list[tuple[int, int]], texts: tuple[bytes, ...], size: int
) -> None:
    numbers = (some * size)[:size]
    before, between, after, tail = texts
    pairs = []
    parts: list[bytes] = []
    for run in (numbers, others):
        indexes, offsets = [index for index, _ in run], [offset for _, offset in run]
        keys = Alike(before, "i", (indexes,), between)
        values = Alike(after, "qi", (offsets, indexes), tail)
        parts += encode_alike(len(parts), keys, values)
        pairs += [
            (before + struct.pack(">i", index) + between, after + struct.pack(">qi", offset, index) + tail)
            for index, offset in run
        ]
    assert len(parts) == len(pairs)
    assert seal_keyed(parts, len(parts), 9) == build_keyed(pairs, 9)


def test_of_no_records_that_are_alike_there_are_none() -> None:
    assert encode_alike(5, Alike(b"k", "i", ([],)), Alike(b"v", "i", ([],))) == []
