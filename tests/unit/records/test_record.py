"""Walking the records of a batch: what is sound passes, and what is not is named with its record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt, InvalidRecord, TooLarge, UnsupportedForFormat
from anabranch.records.batch import LOG_APPEND_TIME, PULSAR_ENTRY, BatchHeader, read_header
from anabranch.records.builder import build_batch, encode_record
from anabranch.records.record import (
    MissingKeys,
    Record,
    Span,
    check_records,
    int64,
    iter_records,
    iter_spans,
    payload_of,
)
from tests.unit.records.strategies import record_lists, seeded

BASE_MS = 1_700_000_000_000


def header_for(count: int, **changes: int) -> BatchHeader:
    header = BatchHeader(1000, 0, 0, 2, 0, 0, count - 1, BASE_MS, BASE_MS + 9, -1, -1, -1, count)
    return header._replace(**changes)


def varint(number: int) -> bytes:
    """Zigzag, the plain way."""
    number = 2 * number if number >= 0 else -2 * number - 1
    encoded = b""
    while number > 127:
        encoded += bytes((number % 128 + 128,))
        number //= 128
    return encoded + bytes((number,))


def sized(body: bytes) -> bytes:
    return varint(len(body)) + body


def entry(
    *,
    time: bytes = b"\x00",
    delta: bytes = b"\x00",
    key: bytes = b"\x02k",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
) -> bytes:
    """One record; every argument is the bytes of that field."""
    return sized(b"\x00" + time + delta + key + value + headers)


GOOD = entry()

# What is wrong, the payload, the count that its header claims, what the message must say.
BROKEN = {
    "nothing": (b"", 1, "record 0 of 1: the batch ends"),
    "cut in a length": (b"\x80", 1, "the batch ends"),
    "one record too few": (GOOD, 2, "record 1 of 2: the batch ends"),
    "a byte too many": (GOOD + b"\x00", 1, "take 9 bytes, the batch holds 10"),
    "one record too many": (GOOD + entry(delta=b"\x02"), 1, "take 9 bytes, the batch holds 18"),
    "a negative length": (b"\x01" + GOOD[1:], 1, "claims -1 bytes"),
    "a length too short": (b"\x0e" + GOOD[1:], 1, "claims 7 bytes"),
    "a length too long": (b"\x12" + GOOD[1:], 1, "claims 9 bytes"),
    "a huge length": (varint(2**31 - 1) + GOOD[1:], 1, "claims 2147483647 bytes"),
    "a length of six bytes": (b"\x90\x80\x80\x80\x80\x00" + GOOD[1:], 1, "too long"),
    "a length beyond 32 bits": (b"\x90\x80\x80\x80\x10" + GOOD[1:], 1, "out of range"),
    "a timestamp of eleven bytes": (entry(time=b"\x80" * 10 + b"\x00"), 1, "too long"),
    "a timestamp beyond 64 bits": (entry(time=b"\x80" * 9 + b"\x02"), 1, "out of range"),
    "a key of -2": (entry(key=varint(-2)), 1, "its key claims -2"),
    "a key past the end": (entry(key=varint(50) + b"k"), 1, "the batch ends"),
    "a value of -2": (entry(value=varint(-2)), 1, "its value claims -2"),
    "a value past the end": (entry(value=varint(500_000) + b"v"), 1, "the batch ends"),
    "a negative header count": (entry(headers=varint(-1)), 1, "claims -1 headers"),
    "too many headers": (entry(headers=varint(2**31 - 1)), 1, "claims 2147483647 headers"),
    "headers that are not there": (entry(headers=varint(2) + b"\x02h\x02v"), 1, "the batch ends"),
    "a header without a key": (entry(headers=b"\x02\x01\x02h"), 1, "header's key claims -1"),
    "a header value of -2": (entry(headers=b"\x02\x02h" + varint(-2)), 1, "a length is -2"),
    "a negative delta": (entry(delta=varint(-1)), 1, "offset delta is -1"),
    "a repeated delta": (GOOD + GOOD, 2, "record 1 of 2: its offset delta is 0"),
    "a delta beyond the last": (GOOD + entry(delta=varint(2)), 2, "record 1 of 2: its offset delta is 2"),
    "a delta of three bytes": (GOOD + entry(delta=varint(9000)), 2, "its offset delta is 9000"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_named(what: str) -> None:
    payload, count, message = BROKEN[what]
    for form in (bytes, bytearray, memoryview):
        with pytest.raises(InvalidRecord, match=message):
            check_records(header_for(count), form(payload), require_key=False)
    with pytest.raises(Corrupt):
        list(iter_records(header_for(count), payload))
    with pytest.raises(Corrupt):
        list(iter_spans(header_for(count), payload))


def test_a_record_that_reaches_into_the_next_is_refused() -> None:
    greedy = GOOD[:-3] + b"\x0c" + GOOD[-2:]  # a value of 6 bytes where 1 is left
    with pytest.raises(InvalidRecord, match="record 0 of 2"):
        check_records(header_for(2), greedy + entry(delta=b"\x02"), require_key=False)


def test_padded_numbers_pass_as_in_kafka() -> None:
    padded = entry(time=b"\x80\x00", delta=b"\x80\x80\x80\x80\x00", key=b"\x82\x80\x00k", headers=b"\x80\x00")
    check_records(header_for(1), padded, require_key=True)
    assert list(iter_records(header_for(1), padded)) == [Record(1000, BASE_MS, b"k", b"v")]


@pytest.mark.parametrize(("count", "last_delta"), [(0, -1), (-1, -2), (2, 0), (1, 5), (2**31 - 1, 0)])
def test_count_and_offsets_must_agree(count: int, last_delta: int) -> None:
    with pytest.raises(InvalidRecord, match=f"{count} records"):
        check_records(header_for(count, last_offset_delta=last_delta), GOOD, require_key=False)


def test_a_producer_leaves_no_gaps_but_compaction_does() -> None:
    payload = entry(delta=varint(3)) + entry(delta=varint(70))
    with pytest.raises(InvalidRecord, match="record 0 of 2: its offset delta is 3"):
        check_records(header_for(2), payload, require_key=False)
    header = header_for(2, last_offset_delta=99)
    assert [record.offset for record in iter_records(header, payload)] == [1003, 1070]


def test_every_record_without_a_key_is_reported() -> None:
    payload = b"".join(
        entry(delta=varint(number), key=b"\x01" if number % 2 else b"\x00") for number in range(6)
    )
    check_records(header_for(6), payload, require_key=False)
    with pytest.raises(MissingKeys, match="3 records have no key, the first is record 1") as caught:
        check_records(header_for(6), payload, require_key=True)
    assert caught.value.indexes == [1, 3, 5]


def test_timestamps_are_deltas_unless_the_broker_set_them() -> None:
    payload = GOOD + entry(delta=b"\x02", time=varint(-5)) + entry(delta=b"\x04", time=varint(90))
    times = [record.timestamp for record in iter_records(header_for(3), payload)]
    assert times == [BASE_MS, BASE_MS - 5, BASE_MS + 90]
    appended = header_for(3, attributes=LOG_APPEND_TIME)
    assert {record.timestamp for record in iter_records(appended, payload)} == {BASE_MS + 9}
    assert {span.timestamp for span in iter_spans(appended, payload)} == {BASE_MS + 9}


def test_absurd_timestamps_wrap_as_in_java() -> None:
    header = header_for(1, base_timestamp=2**63 - 1)
    (record,) = iter_records(header, entry(time=varint(1)))
    assert record.timestamp == -(2**63)
    assert int64(-(2**63) - 1) == 2**63 - 1


def test_a_batch_without_records_reads_as_none() -> None:
    assert list(iter_records(header_for(0), b"")) == []
    with pytest.raises(Corrupt, match="0 records take 0 bytes"):
        list(iter_records(header_for(0), b"x"))


def test_spans_give_the_place_of_every_record() -> None:
    first, second = entry(), entry(delta=b"\x02", key=b"\x01", value=b"\x01")
    spans = list(iter_spans(header_for(2), first + second))
    assert spans == [
        Span(1000, BASE_MS, b"k", True, 0, len(first)),
        Span(1001, BASE_MS, None, False, len(first), len(first) + len(second)),
    ]


@seeded(200)
@given(record_lists(max_size=5), st.booleans())
def test_records_come_back_as_they_went_in(records: list[Record], as_view: bool) -> None:
    batch = build_batch(records)
    header = read_header(batch)
    payload = payload_of(header, memoryview(batch) if as_view else bytes(batch), 1 << 20)
    check_records(header, payload, require_key=False)
    assert list(iter_records(header, payload)) == records
    for record, span in zip(records, iter_spans(header, payload), strict=True):
        assert (span.offset, span.timestamp, span.key) == record[:3]
        assert span.has_value == (record.value is not None)
        encoded = encode_record(record, 0, records[0].timestamp)
        assert payload[span.start : span.end] == encoded


def test_more_records_than_numbers_of_one_or_two_bytes() -> None:
    records = [Record(number, BASE_MS + number, b"%d" % number, None) for number in range(9_000)]
    batch = build_batch(records)
    header = read_header(batch)
    payload = payload_of(header, batch, 1 << 20)
    check_records(header, payload, require_key=True)
    assert list(iter_records(header, payload)) == records


def test_payloads_are_bounded_and_must_be_records() -> None:
    batch = build_batch([Record(0, 0, None, bytes(1000))], codec=1)
    header = read_header(batch)
    with pytest.raises(TooLarge):
        payload_of(header, batch, 1000)
    with pytest.raises(UnsupportedForFormat, match="Pulsar"):
        payload_of(header._replace(attributes=PULSAR_ENTRY), batch, 10_000)
