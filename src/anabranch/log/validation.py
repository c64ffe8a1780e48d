"""Batch validation: what a client's batch must satisfy to be stored, and how the topic changes it.

Everything here looks at the 61 bytes of the header, at the CRC, and at the records themselves only
where a rule needs them: a compacted topic wants a key in every record, `message.timestamp.before.max.ms`
looks at the earliest one, and a small uncompressed batch is walked because that costs next to
nothing and catches a count that lies.  A large batch is not walked in Python; its count is held
against what could fit, and readers check the rest.

    check(...)      raises, or gives the header of a batch that may be stored as it is
    transform(...)  the same batch with the topic's codec and clock, where those differ
"""

from typing import NoReturn

from crc32c import crc32c

from anabranch.base.disk import Buffer
from anabranch.base.errors import (
    Corrupt,
    InvalidRecord,
    InvalidTimestamp,
    RecordListTooLarge,
    TooLarge,
    UnsupportedCompression,
)
from anabranch.log.config import LogConfig
from anabranch.records import compression
from anabranch.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    PULSAR_ENTRY,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    stamp,
)
from anabranch.records.builder import recompress
from anabranch.records.record import check_records, iter_spans

WALKED_RECORDS = 8  # a walk takes 0.7 µs per record, all the rest of a small append 15 µs
LEAST_RECORD_BYTES = 7  # length, attributes, two deltas, key length, value length, header count
INLINE_BYTES = 64 * 1024  # what is walked in the loop; beyond, a thread is cheaper than the stall

CODECS = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_UNKNOWN_CODEC = 5
_CODEC_BYTE = 22  # the low byte of the attributes
_NOT_ONE_BATCH = "a produce request must hold exactly one record batch a partition"
_LONGEST = (1 << 63) - 1


def check(batch: memoryview, config: LogConfig, now_ms: int) -> BatchHeader:
    """The header of `batch`, exactly one batch as a client sent it, if it may be stored."""
    size = len(batch)
    if size < HEADER_SIZE:
        raise InvalidRecord(_NOT_ONE_BATCH)
    header = read_header(batch)
    base_offset, length, _, magic, crc, attributes, delta, _, newest, producer_id, _, _, count = header
    if magic != MAGIC or length != size - OVERHEAD:
        _refuse_frame(header)
    if size > config.max_message_bytes:
        raise TooLarge(f"the batch is {size} bytes, max.message.bytes is {config.max_message_bytes}")
    if size > config.segment_bytes:
        raise RecordListTooLarge(f"the batch is {size} bytes, segment.bytes is {config.segment_bytes}")
    if crc32c(batch[CRC_START:]) != crc:
        raise Corrupt("the batch does not match its checksum")
    # Uncompressed records of no producer in particular are seen to be sound in one go.
    if (
        attributes
        or base_offset
        or producer_id >= 0
        or not 0 < count == delta + 1
        or count * LEAST_RECORD_BYTES > size - HEADER_SIZE
    ):
        _check_fields(header, size, config)
    if config.message_timestamp_type == "CreateTime" and (
        attributes & LOG_APPEND_TIME
        or newest - now_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms < _LONGEST
    ):
        _check_timestamps(batch, header, config, now_ms)
    if "compact" in config.cleanup_policy:
        check_records(header, _records(batch, header, config), require_key=True)
    elif count <= WALKED_RECORDS and not attributes & CODEC_MASK:
        check_records(header, batch[HEADER_SIZE:].tobytes(), require_key=False)  # bytes are read faster
    return header


def _refuse_frame(header: BatchHeader) -> NoReturn:
    """What is wrong with the frame of a batch, with the code that Kafka has for it."""
    if header.magic > MAGIC:
        raise Corrupt(f"magic {header.magic} is unknown")
    if header.magic < MAGIC:
        raise InvalidRecord(f"record batches must be of magic {MAGIC}, not {header.magic}")
    if header.length < HEADER_SIZE - OVERHEAD:
        raise Corrupt(f"a batch claims {header.length} bytes, which is less than its header")
    raise InvalidRecord(_NOT_ONE_BATCH)  # cut short, or followed by something


def _check_fields(header: BatchHeader, size: int, config: LogConfig) -> None:
    attributes = header.attributes
    if header.base_offset != 0:
        raise InvalidRecord(f"the base offset of a new batch is {header.base_offset}, it must be 0")
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise InvalidRecord(
            f"a batch of {header.count} records has a last offset delta of {header.last_offset_delta}"
        )
    if attributes & CONTROL:
        raise InvalidRecord("clients may not write control records")
    if attributes & (PULSAR_ENTRY | DELETE_HORIZON):
        raise InvalidRecord("an attribute bit is set that only the broker may set")
    if header.codec >= _UNKNOWN_CODEC:
        raise UnsupportedCompression(f"compression type {header.codec} is unknown")
    if not header.codec and header.count * LEAST_RECORD_BYTES > size - HEADER_SIZE:
        raise InvalidRecord(f"{header.count} records cannot be in {size - HEADER_SIZE} bytes")
    if header.codec and header.count * LEAST_RECORD_BYTES > unpacked_limit(config):
        raise InvalidRecord(f"{header.count} records are more than a batch may unpack to")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}"
        )
    if header.producer_id < 0 and attributes & TRANSACTIONAL:
        raise InvalidRecord("a transactional batch has no producer id")


def _check_timestamps(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("a client may not set the timestamp type to LogAppendTime")
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms "
            f"({config.message_timestamp_after_max_ms}) ahead of the broker's clock"
        )
    if config.message_timestamp_before_max_ms < _LONGEST:
        spans = iter_spans(header, _records(batch, header, config))
        earliest = min((span.timestamp for span in spans), default=header.max_timestamp)
        if 0 <= earliest < now_ms - config.message_timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"timestamp {earliest} is more than message.timestamp.before.max.ms "
                f"({config.message_timestamp_before_max_ms}) behind the broker's clock"
            )


def _records(batch: memoryview, header: BatchHeader, config: LogConfig) -> Buffer:
    if not header.codec:
        return batch[HEADER_SIZE:]
    return compression.decompress(header.codec, batch[HEADER_SIZE:], unpacked_limit(config))


def unpacked_limit(config: LogConfig) -> int:
    """How large a batch may become when unpacked: generous, and far from what a bomb would need."""
    return max(64 << 20, 16 * config.max_message_bytes)


def needs_records(config: LogConfig) -> bool:
    """Whether `check` must look at every record."""
    return "compact" in config.cleanup_policy or config.message_timestamp_before_max_ms < _LONGEST


def is_heavy(batch: memoryview, config: LogConfig) -> bool:
    """Whether `check` and `transform` of `batch`, which has a whole header, are work for a thread."""
    codec = batch[_CODEC_BYTE] & CODEC_MASK
    if not codec and len(batch) <= INLINE_BYTES:
        return False
    return needs_records(config) or (
        config.compression_type != "producer" and CODECS[config.compression_type] != codec
    )


def needs_transform(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the topic wants another codec than the one the batch came with."""
    return config.compression_type != "producer" and CODECS[config.compression_type] != header.codec


def transform(batch: memoryview, config: LogConfig) -> memoryview:
    """`batch` in the topic's codec.  Heavy: large ones belong in a thread."""
    codec = CODECS[config.compression_type]
    levels = {
        1: config.compression_gzip_level,
        3: config.compression_lz4_level,
        4: config.compression_zstd_level,
    }
    return memoryview(recompress(batch, codec, levels.get(codec), unpacked_limit(config)))


def stamped(batch: memoryview, now_ms: int) -> BatchHeader:
    """Set the broker's time on `batch`, in place.  Its header as it is then."""
    stamp(batch, now_ms)
    return read_header(batch)


def prepare(batch: memoryview, config: LogConfig, now_ms: int) -> tuple[BatchHeader, memoryview]:
    """Check `batch` and bring it into the topic's codec.  Runs in a thread."""
    header = check(batch, config, now_ms)
    return transformed(batch, config) if needs_transform(header, config) else (header, batch)


def transformed(batch: memoryview, config: LogConfig) -> tuple[BatchHeader, memoryview]:
    ready = transform(batch, config)
    if len(ready) > config.max_message_bytes:
        raise TooLarge(
            f"the batch is {len(ready)} bytes as {config.compression_type}, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    return read_header(ready), ready
