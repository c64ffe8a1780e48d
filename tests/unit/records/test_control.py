"""Transaction markers: the bytes that Kafka writes, and nothing foreign when they are damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt
from anabranch.records.batch import read_header
from anabranch.records.control import Marker, marker_batch, read_marker
from anabranch.records.record import Record, iter_records, payload_of
from tests.unit.records.strategies import seeded


@seeded()
@given(st.booleans(), st.integers(-1, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_a_marker_comes_back(commit: bool, epoch: int, producer_id: int, producer_epoch: int) -> None:
    marker = Marker(commit, epoch)
    batch = marker_batch(
        marker,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=123,
        base_offset=9,
        leader_epoch=2,
    )
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.count, header.leader_epoch, header.codec) == (9, 1, 2, 0)
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert (header.base_sequence, header.last_sequence) == (-1, -1)
    (record,) = iter_records(header, payload_of(header, batch, 1000))
    assert record.timestamp == 123
    assert read_marker(record) == marker


def test_the_bytes_are_kafkas() -> None:
    batch = marker_batch(Marker(True, 5), producer_id=1, producer_epoch=0, timestamp=0)
    header = read_header(batch)
    (record,) = iter_records(header, payload_of(header, batch, 1000))
    assert (record.key, record.value) == (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x05")


def test_later_versions_and_other_types() -> None:
    newer = Record(0, 0, b"\x00\x07\x00\x00more", b"\x00\x09\x00\x00\x00\x04more")
    assert read_marker(newer) == Marker(False, 4)
    assert read_marker(Record(0, 0, b"\x00\x00\x00\x02", None)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b""),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x05"),
    ],
)
def test_damaged_markers_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Corrupt, match="control record"):
        read_marker(Record(0, 0, key, value))
