"""What may be stored: one batch, whole, of this format, by the topic's rules."""

import struct
from typing import Any

import pytest

from anabranch.base import errors
from anabranch.log.config import LogConfig
from anabranch.log.validation import check, needs_transform, stamped, transform
from anabranch.records.batch import HEADER_SIZE, LOG_APPEND_TIME, crc_of, read_header
from anabranch.records.record import iter_records, payload_of
from tests.support.logs import START_MS, UNPACKED_LIMIT, records

HOUR_MS = 3_600_000


def checked(batch: bytearray | bytes, **config: Any) -> None:
    check(memoryview(batch), LogConfig(**config), START_MS)


def patched(at: int, form: str, value: int, batch: bytearray | None = None) -> bytearray:
    """A batch with one field changed and the checksum set right."""
    batch = records("a", "b") if batch is None else batch
    struct.pack_into(form, batch, at, value)
    struct.pack_into(">I", batch, 17, crc_of(batch))
    return batch


def test_what_a_client_sends_is_fine() -> None:
    checked(records("a", "b", "c"))
    for codec in range(5):
        checked(records("a", "b", codec=codec))
    checked(records("a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True))


@pytest.mark.parametrize("size", [0, 1, 60])
def test_less_than_a_header(size: int) -> None:
    with pytest.raises(errors.InvalidRecord):
        checked(records("a")[:size])


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (patched(16, "b", 1), errors.InvalidRecord),
        (patched(16, "b", 0), errors.InvalidRecord),
        (patched(8, ">i", 5), errors.Corrupt),
        (patched(8, ">i", -5), errors.Corrupt),
        (patched(8, ">i", 1 << 30), errors.InvalidRecord),
        (patched(16, "b", 3), errors.Corrupt),
        (records("a") + records("b"), errors.InvalidRecord),
        (patched(0, ">q", 7), errors.InvalidRecord),
        (patched(57, ">i", 3), errors.InvalidRecord),
        (patched(57, ">i", 0), errors.InvalidRecord),
        (patched(57, ">i", -1), errors.InvalidRecord),
        (patched(23, ">i", 9), errors.InvalidRecord),
        (patched(23, ">i", -1), errors.InvalidRecord),
        (patched(21, ">h", 0x20), errors.InvalidRecord),
        (patched(21, ">h", 0x40), errors.InvalidRecord),
        (patched(21, ">h", 0x4000), errors.InvalidRecord),
        (patched(21, ">h", 0x10), errors.InvalidRecord),
        (patched(21, ">h", 5), errors.UnsupportedCompression),
        (patched(21, ">h", 7), errors.UnsupportedCompression),
        (patched(43, ">q", 5), errors.InvalidRecord),
        (patched(HEADER_SIZE, "B", 0x7E), errors.InvalidRecord),
    ],
)
def test_what_lies(batch: bytearray, error: type[Exception]) -> None:
    with pytest.raises(error):
        checked(batch)


def test_every_flipped_bit_under_the_checksum() -> None:
    batch = records("a", "b")
    for at in range(17, len(batch)):
        flipped = bytearray(batch)
        flipped[at] ^= 0x10
        with pytest.raises(errors.Corrupt):
            checked(flipped)


def test_a_count_that_cannot_be_in_so_few_bytes() -> None:
    batch = patched(57, ">i", 1 << 20)
    with pytest.raises(errors.InvalidRecord):
        checked(patched(23, ">i", (1 << 20) - 1, batch))


def test_the_largest_batch() -> None:
    batch = records("x" * 1000)
    checked(batch, max_message_bytes=len(batch))
    with pytest.raises(errors.TooLarge):
        checked(batch, max_message_bytes=len(batch) - 1)


def test_a_compacted_topic_wants_keys() -> None:
    checked(records("a", keys=["k"]), cleanup_policy=("compact",))
    for codec in (0, 1, 4):
        with pytest.raises(errors.InvalidRecord):
            checked(records("a", "b", keys=["k", None], codec=codec), cleanup_policy=("compact",))


def test_timestamps_too_far_off() -> None:
    checked(records("a", timestamp=START_MS + HOUR_MS))
    with pytest.raises(errors.InvalidTimestamp):
        checked(records("a", timestamp=START_MS + HOUR_MS + 1))
    checked(records("a", timestamp=START_MS + HOUR_MS + 1), message_timestamp_after_max_ms=1 << 62)
    checked(records("a", timestamp=0))
    limit = {"message_timestamp_before_max_ms": 1000}
    checked(records("a", timestamp=START_MS - 1000), **limit)
    checked(records("a", timestamp=-1), **limit)
    with pytest.raises(errors.InvalidTimestamp):
        checked(records("a", timestamp=START_MS - 1001), **limit)


def test_only_the_broker_says_log_append_time() -> None:
    batch = records("a", append_time_ms=START_MS)
    with pytest.raises(errors.InvalidTimestamp):
        checked(batch)
    checked(batch, message_timestamp_type="LogAppendTime")


def test_the_broker_s_time() -> None:
    batch = records("a", "b")
    header = stamped(memoryview(batch), START_MS + 5)
    assert header.attributes & LOG_APPEND_TIME
    assert crc_of(batch) == header.crc
    assert {r.timestamp for r in iter_records(header, batch[HEADER_SIZE:])} == {START_MS + 5}


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", range(5))
def test_the_topic_s_codec(target: str, codec: int) -> None:
    config = LogConfig(compression_type=target)
    batch = records(*(["x" * 200] * 3), codec=codec)
    header = read_header(batch)
    if needs_transform(header, config):
        batch = bytearray(transform(memoryview(batch), config))
        header = read_header(batch)
    assert not needs_transform(header, config)
    check(memoryview(batch), config, START_MS)
    found = list(iter_records(header, payload_of(header, batch, UNPACKED_LIMIT)))
    assert [record.value for record in found] == [b"x" * 200] * 3


def test_as_the_producer_sent_it() -> None:
    assert not needs_transform(read_header(records("a", codec=1)), LogConfig())


def test_a_batch_that_no_segment_can_hold() -> None:
    large = records("a" * 5000)
    with pytest.raises(errors.RecordListTooLarge):
        checked(large, segment_bytes=4096)
    checked(large, segment_bytes=len(large))


def test_a_packed_batch_cannot_claim_more_records_than_it_may_unpack_to() -> None:
    batch = records("a", "b", codec=4)
    struct.pack_into(">i", batch, 23, (1 << 31) - 2)
    with pytest.raises(errors.InvalidRecord):
        checked(patched(57, ">i", (1 << 31) - 1, batch))
