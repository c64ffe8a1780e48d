"""Batches made of columns hold, record by record, what the columns say."""

import random

import numpy as np
import pyarrow as pa
import pytest

from anabranch.base.errors import Invalid
from anabranch.client.producer import Writer
from anabranch.records.batch import crc_of, read_header
from anabranch.records.record import Header, Record, check_records, iter_records, payload_of
from anabranch.spark.encode import Rows, encode, encode_headers, no_headers
from anabranch.spark.partitioner import Partitioner, murmur2

BASE_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Some = bytes | None


def column(values: list[Some]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def records_of(batches: list[bytearray]) -> list[Record]:
    records = []
    for batch in batches:
        header = read_header(batch)
        assert header.crc == crc_of(batch)
        payload = payload_of(header, batch, 1 << 30)
        check_records(header, payload, require_key=False)
        records += list(iter_records(header, payload))
    return records


@pytest.mark.parametrize("codec", range(5))
def test_records_hold_what_the_columns_say(codec: int) -> None:
    rng = random.Random(codec)

    def some(most: int) -> Some:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 63, 64, 300, most)))

    count = 700
    keys, values = [some(80) for _ in range(count)], [some(9000) for _ in range(count)]
    times = [BASE_MS + rng.randrange(-(10**6), 10**9) for _ in range(count)]
    headers: list[tuple[Header, ...]] = [
        tuple((b"h%d" % n, some(70)) for n in range(rng.choice((0, 0, 1, 3)))) for _ in range(count)
    ]
    shown = [[{"key": name.decode(), "value": content} for name, content in one] for one in headers]
    encoded = encode_headers(pa.array([one or None for one in shown], HEADERS))
    rows = Rows(column(keys), column(values), np.array(times), encoded)
    batches = encode(rows, Writer(7, 2, True), 100, 50_000, codec)
    found = records_of(batches)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in found] == list(
        zip(keys, values, times, headers, strict=True)
    )
    heads = [read_header(batch) for batch in batches]
    assert len(heads) > 10
    assert [head.base_sequence for head in heads] == [
        100 + sum(before.count for before in heads[:n]) for n in range(len(heads))
    ]
    assert all(head.is_transactional and (head.producer_id, head.producer_epoch) == (7, 2) for head in heads)


def test_a_row_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    rows = Rows(column([None] * 3), column([b"a", b"b" * 5000, b"c"]), np.array([BASE_MS] * 3), no_headers(3))
    batches = encode(rows, Writer(), -1, 1024, 0)
    assert [read_header(batch).count for batch in batches] == [1, 1, 1]
    assert {read_header(batch).base_sequence for batch in batches} == {-1}


def test_a_slice_of_a_column_is_that_slice() -> None:
    whole = column([b"%d" % n for n in range(10)])
    rows = Rows(whole[3:6], whole[4:7], np.array([BASE_MS] * 3), no_headers(3))
    found = records_of(encode(rows, Writer(), -1, 1 << 20, 0))
    assert [(record.key, record.value) for record in found] == [(b"3", b"4"), (b"4", b"5"), (b"5", b"6")]


def test_a_header_needs_a_key() -> None:
    with pytest.raises(Invalid, match="no key"):
        encode_headers(pa.array([[{"key": None, "value": b"x"}]], HEADERS))


# From the tests of Kafka's own client: UtilsTest.testMurmur2.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_keys_are_hashed_as_kafkas_java_client_does() -> None:
    assert murmur2(column(list(KNOWN))).view(np.int32).tolist() == list(KNOWN.values())
    assert murmur2(column([b"", *KNOWN])[1:]).view(np.int32).tolist() == list(KNOWN.values())


def test_rows_without_keys_fill_a_batch_and_then_go_to_the_next_partition() -> None:
    chosen = Partitioner(1000, 2).choose(column([None] * 20), np.full(20, 200, np.int64), 4)
    assert chosen.tolist() == [2] * 4 + [3] * 5 + [0] * 5 + [1] * 5 + [2]
