"""Damaged batches: whatever is cut or flipped, reading ends in one of our errors or in records.

The CRC would catch nearly all of it, so here it is not looked at: this is what a hostile producer
can send, with a CRC to match.
"""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import AnabranchError, Corrupt, InvalidRecord
from anabranch.records.batch import BatchHeader, crc_of, split_batches
from anabranch.records.builder import build_batch, recompress, retain
from anabranch.records.compression import NAMES
from anabranch.records.record import Record, check_records, iter_records, iter_spans, payload_of
from tests.unit.records.strategies import CODECS, FIELDS, record_lists, seeded

LIMIT_BYTES = 100_000
SAMPLE = [
    Record(0, 1_000, b"key", b"value " * 20, ((b"header", b"content"), (b"null", None))),
    Record(1, 1_007, None, b"", ()),
    Record(2, 900, b"", None, ()),
]


def read_everything(data: bytes | bytearray) -> list[tuple[BatchHeader, list[Record]]]:
    """All that we ever do with a batch."""
    found = []
    for header, batch in split_batches(data):
        payload = payload_of(header, batch, LIMIT_BYTES)
        assert len(payload) <= LIMIT_BYTES
        records = list(iter_records(header, payload))
        assert len(records) == header.count
        spans = list(iter_spans(header, payload))
        recompress(batch, 1, None, LIMIT_BYTES)
        retain(header, payload, spans[::2], delete_horizon_ms=5)
        found.append((header, records))
    return found


def check_everything(data: bytes | bytearray) -> None:
    for header, batch in split_batches(data):
        payload = payload_of(header, batch, LIMIT_BYTES)
        try:
            check_records(header, payload, require_key=False)
        except InvalidRecord:
            continue
        records = list(iter_records(header, payload))  # what a producer may send, we can read
        assert [record.offset - header.base_offset for record in records] == list(range(header.count))


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_every_truncation(codec: int) -> None:
    batch = build_batch(SAMPLE, codec=codec)
    for end in range(1, len(batch)):
        with pytest.raises(Corrupt):
            read_everything(batch[:end])
        cut = batch[:end]
        if end > 61:  # the same, with a length that admits it
            struct.pack_into(">i", cut, 8, end - 12)
            with pytest.raises(Corrupt):
                read_everything(cut)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_every_flipped_bit(codec: int) -> None:
    batch = build_batch(SAMPLE, codec=codec)
    for place in range(len(batch)):
        for bit in range(8):
            batch[place] ^= 1 << bit
            crc_is_right = crc_of(batch) == struct.unpack_from(">I", batch, 17)[0]
            assert crc_is_right == (place < 17)  # base offset, length, epoch, magic: nothing covers them
            for use in (read_everything, check_everything):
                with contextlib.suppress(AnabranchError):
                    use(batch)
            batch[place] ^= 1 << bit
    assert read_everything(batch)[0][1] == SAMPLE


@seeded(200)
@given(record_lists(max_size=4), FIELDS, st.sampled_from(CODECS), st.data())
def test_random_damage(records: list[Record], fields: dict[str, Any], codec: int, data: Any) -> None:
    batch = build_batch(records, codec=codec, **fields)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(batch) - 1))
        end = data.draw(st.integers(start, min(start + 9, len(batch))))
        batch[start:end] = data.draw(st.binary(max_size=9))
    for use in (read_everything, check_everything):
        with contextlib.suppress(AnabranchError):
            use(batch)


@seeded(300)
@given(st.binary(max_size=120), st.integers(-2, 8), st.integers(-2, 8))
def test_random_records(payload: bytes, count: int, last_delta: int) -> None:
    header = BatchHeader(0, 0, 0, 2, 0, 0, last_delta, 0, 0, -1, -1, -1, count)
    try:
        sound = True
        check_records(header, payload, require_key=False)
    except InvalidRecord:
        sound = False
    try:
        records = list(iter_records(header, payload))
    except Corrupt:
        assert not sound
    else:
        assert len(records) == max(count, 0)
