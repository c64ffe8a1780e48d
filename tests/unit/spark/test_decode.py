"""Columns made of batches hold what the record-by-record reader finds in them."""

import random
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from anabranch.base.errors import AnabranchError, Corrupt, UnsupportedForFormat
from anabranch.client.visible import Aborted, visible_batches, whole_batches
from anabranch.records.batch import HEADER_SIZE, read_header
from anabranch.records.builder import build_batch, seal
from anabranch.records.control import Marker, marker_batch
from anabranch.records.record import Record, iter_records, payload_of
from anabranch.spark.column_types import TYPES, arrow_schema
from anabranch.spark.columns import to_arrow
from anabranch.spark.decode import plain_parts, read_fields

SCHEMA = arrow_schema(tuple(TYPES))
BASE_MS = 1_700_000_000_000


def rows_of(buffer: bytes, aborted: tuple[Aborted, ...] = ()) -> pa.RecordBatch:
    stored = list(visible_batches(buffer, list(whole_batches(buffer)), aborted))
    ((data, regions),) = plain_parts(buffer, stored)
    return to_arrow(read_fields(data, regions), "orders", 3, SCHEMA)


def random_record(rng: random.Random, offset: int) -> Record:
    def some(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 5, 63, 64, 200, most)))

    headers = tuple((b"h%d" % n, some(70)) for n in range(rng.choice((0, 0, 0, 1, 2, 5))))
    return Record(offset, BASE_MS + rng.randrange(-5000, 90_000_000), some(80), some(9000), headers)


def random_batch(rng: random.Random, base: int, codec: int) -> bytes:
    offset = base
    records = []
    for _ in range(rng.randrange(1, 100)):
        records.append(random_record(rng, offset))
        offset += rng.choice((1, 1, 1, 2, 300))
    time = BASE_MS + 7 if rng.random() < 0.3 else None
    return bytes(build_batch(records, base_offset=base, codec=codec, append_time_ms=time))


@pytest.mark.parametrize("codecs", [(0,), (1,), (2,), (3,), (4,), (0, 4, 0, 3)])
def test_columns_hold_what_the_records_say(codecs: tuple[int, ...]) -> None:
    rng = random.Random(len(codecs) * 31 + codecs[0])
    batches = [random_batch(rng, n * 100_000, codecs[n % len(codecs)]) for n in range(12)]
    expected = []
    for batch in batches:
        header = read_header(batch)
        kind = 1 if header.attributes & 8 else 0
        for record in iter_records(header, payload_of(header, batch, 1 << 30)):
            headers = [{"key": name.decode(), "value": content} for name, content in record.headers]
            row = {"key": record.key, "value": record.value, "topic": "orders", "partition": 3}
            row |= {"offset": record.offset, "timestamp": record.timestamp, "timestampType": kind}
            expected.append(row | {"headers": headers or None})
    found = rows_of(b"".join(batches))
    found = found.set_column(5, "timestamp", pa.compute.divide(found["timestamp"].view(pa.int64()), 1000))
    assert found.to_pylist() == expected


@pytest.mark.parametrize("sizes", [(5,), (5, 1000), (5, 5, 5, 6), (0, 63, 64, 8192)])
@pytest.mark.parametrize("run", [1, 63, 64, 65, 300])
def test_runs_of_records_of_one_length(sizes: tuple[int, ...], run: int) -> None:
    """Long ones are found together, and where one ends and another begins does not matter."""
    batches = []
    for number in range(3):
        base = number * 10_000
        records = [
            Record(base + at, BASE_MS, None, bytes([at & 255]) * sizes[(at // run) % len(sizes)])
            for at in range(1200)
        ]
        batches.append((records, bytes(build_batch(records, base_offset=base))))
    found = rows_of(b"".join(batch for _, batch in batches))
    expected = [record for records, _ in batches for record in records]
    assert found["offset"].to_pylist() == [record.offset for record in expected]
    assert found["value"].to_pylist() == [record.value for record in expected]


@pytest.mark.parametrize("at", [0, 1, 63, 64, 500, 998, 999])
def test_a_length_that_lies_inside_a_run(at: int) -> None:
    sound = bytes(build_batch([Record(number, BASE_MS, None, b"v" * 100) for number in range(1000)]))
    ((data, regions),) = plain_parts(sound, whole_batches(sound))
    begin = regions[0].start if at == 0 else int(read_fields(data, regions).ends[at - 1])
    for change in (1, 2, 3, 64, 128, 255):
        payload = bytearray(sound[regions[0].start :])
        payload[begin - regions[0].start] ^= change
        with pytest.raises(Corrupt):
            rows_of(bytes(seal(read_header(sound), payload)))


@pytest.mark.parametrize("count", [-5, -1, 0, 2, 1000])
def test_a_count_that_lies(count: int) -> None:
    sound = bytes(build_batch([Record(0, BASE_MS, None, b"v")]))
    header = read_header(sound)._replace(count=count)
    with pytest.raises(Corrupt):
        rows_of(bytes(seal(header, sound[HEADER_SIZE:])))


def test_short_runs_do_not_cost_the_square_of_their_number() -> None:
    def seconds(records: int) -> float:
        sizes = [20 + (number // 65) % 2 for number in range(records)]
        batch = build_batch([Record(n, BASE_MS, None, b"v" * size) for n, size in enumerate(sizes)])
        ((data, regions),) = plain_parts(bytes(batch), whole_batches(bytes(batch)))
        started = time.process_time()
        read_fields(data, regions)
        return time.process_time() - started

    few = min(seconds(20_000) for _ in range(3))
    assert min(seconds(160_000) for _ in range(3)) < 8 * 3 * few


def test_every_column_has_its_type() -> None:
    found = rows_of(bytes(build_batch([Record(0, BASE_MS, b"k", b"v")])))
    assert found.schema == SCHEMA
    assert found.to_pylist()[0]["headers"] is None


def test_control_batches_and_aborted_transactions_are_left_out() -> None:
    def data(offset: int, producer: int, transactional: bool = True) -> bytes:
        records = [Record(offset, BASE_MS, None, b"%d" % offset)]
        return bytes(
            build_batch(records, producer_id=producer, producer_epoch=0, transactional=transactional)
        )

    def marker(offset: int, producer: int, commit: bool) -> bytes:
        ends = Marker(commit, 0)
        return bytes(
            marker_batch(ends, producer_id=producer, producer_epoch=0, timestamp=BASE_MS, base_offset=offset)
        )

    buffer = b"".join(
        [
            data(0, 7),
            data(1, 8),
            marker(2, 7, False),
            data(3, 7),
            marker(4, 8, True),
            data(5, 9, transactional=False),
            marker(6, 7, True),
        ]
    )
    assert rows_of(buffer)["offset"].to_pylist() == [0, 1, 3, 5]
    assert rows_of(buffer, (Aborted(7, 0),))["offset"].to_pylist() == [1, 3, 5]
    assert rows_of(buffer, (Aborted(7, 0), Aborted(8, 1)))["offset"].to_pylist() == [3, 5]


def test_a_batch_cut_short_waits_for_the_next_fetch() -> None:
    batch = bytes(build_batch([Record(0, BASE_MS, b"k", b"v" * 100)]))
    for end in range(len(batch)):
        assert [one.header.count for one in whole_batches(batch + batch[:end])] == [1]


def test_what_is_damaged_is_named() -> None:
    batch = bytearray(build_batch([Record(0, BASE_MS, b"k", b"v")]))
    batch[-1] ^= 1
    with pytest.raises(Corrupt, match="checksum"):
        list(whole_batches(batch))
    batch[16] = 1
    with pytest.raises(UnsupportedForFormat):
        list(whole_batches(batch))


@pytest.mark.parametrize("is_even", [False, True])
def test_damaged_records_never_give_anything_but_an_error(is_even: bool) -> None:
    rng = random.Random(5)
    alike = [Record(number, BASE_MS, None, b"v" * 20) for number in range(200)]
    sound = bytes(build_batch(alike)) if is_even else random_batch(rng, 0, 0)
    header = read_header(sound)
    damaged = 0
    for _ in range(3000):
        payload = bytearray(sound[61:])
        for _ in range(rng.randrange(1, 4)):
            payload[rng.randrange(len(payload))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        try:
            rows_of(bytes(seal(header, payload)))
        except AnabranchError:
            damaged += 1
    assert damaged > 100


def test_names_of_headers_that_are_no_text_are_shown_as_java_shows_them() -> None:
    found = rows_of(bytes(build_batch([Record(0, BASE_MS, None, None, ((b"\xff", b"x"),))])))
    assert found.to_pylist()[0]["headers"] == [{"key": "�", "value": b"x"}]


def test_what_becomes_large_comes_in_parts() -> None:
    records = [Record(offset, BASE_MS, None, bytes(20 << 20), ()) for offset in range(5)]
    batches = [bytes(build_batch([record], base_offset=record.offset, codec=4)) for record in records]
    buffer = b"".join(batches)
    assert len(buffer) < 1 << 16
    parts = list(plain_parts(buffer, whole_batches(buffer)))
    assert [len(regions) for _, regions in parts] == [4, 1]
    found = [offset for data, regions in parts for offset in read_fields(data, regions).offsets.tolist()]
    assert found == list(range(5))


def test_only_some_records() -> None:
    buffer = bytes(build_batch([Record(n, BASE_MS, None, b"%d" % n) for n in range(10)]))
    ((data, regions),) = plain_parts(buffer, whole_batches(buffer))
    fields = read_fields(data, regions)
    some = fields.only(np.asarray(fields.offsets >= 7))
    assert to_arrow(some, "t", 0, arrow_schema(["value"])).to_pylist() == [
        {"value": b"%d" % n} for n in (7, 8, 9)
    ]
