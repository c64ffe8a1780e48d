"""Our batches and those of three other implementations: each reads what the other writes.

Uncompressed, the bytes themselves must agree.
"""

import datetime
import io
import warnings
from typing import Any

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from anabranch.records import compression
from anabranch.records.batch import crc_of, place, read_header, stamp
from anabranch.records.builder import build_batch, recompress
from anabranch.records.control import Marker, marker_batch
from anabranch.records.record import Record, check_records, iter_records, payload_of
from tests.unit.records.strategies import CODECS, LIMIT_BYTES, record_lists, seeded

with warnings.catch_warnings():  # of kafka-python, about how it reads its own files
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KpyBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KpyBuilder

# kafka-python needs packages of its own for snappy and zstd.
KPY_CODECS = (compression.NONE, compression.GZIP, compression.LZ4)
CLIENTS = st.sampled_from(
    [(AioBatch, AioBuilder, codec) for codec in CODECS]
    + [(KpyBatch, KpyBuilder, codec) for codec in KPY_CODECS]
)
RECORDS = record_lists(times=st.integers(0, 2**52))
PRODUCERS = st.just((-1, -1, -1, False)) | st.tuples(
    st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.booleans()
)


def text_headers(record: Record) -> list[tuple[str, bytes | None]]:
    return [(key.decode(), value) for key, value in record.headers]


def our_records(batch: bytes | bytearray) -> list[Record]:
    header = read_header(batch)
    assert crc_of(batch) == header.crc
    payload = payload_of(header, batch, LIMIT_BYTES)
    check_records(header, payload, require_key=False)
    return list(iter_records(header, payload))


def their_records(batch: Any) -> list[Record]:
    return [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((key.encode(), value) for key, value in record.headers),
        )
        for record in batch
    ]


def build_theirs(builder_type: Any, records: list[Record], codec: int, producer: tuple[int, ...]) -> bytes:
    producer_id, epoch, sequence, transactional = producer
    builder = builder_type(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=LIMIT_BYTES,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, text_headers(record))
    return bytes(builder.build())


def build_ours(records: list[Record], codec: int, producer: tuple[int, ...]) -> bytearray:
    return build_batch(
        records,
        leader_epoch=0,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=bool(producer[3]),
    )


@seeded(200)
@given(CLIENTS, RECORDS, PRODUCERS)
def test_we_read_what_clients_write(client: Any, records: list[Record], producer: tuple[int, ...]) -> None:
    _, builder_type, codec = client
    theirs = build_theirs(builder_type, records, codec, producer)
    assert our_records(theirs) == records
    if read_header(theirs).codec == compression.NONE:  # clients drop a codec that does not help
        ours = build_ours(records, compression.NONE, producer)
        place(ours, 0, read_header(theirs).leader_epoch)
        assert ours == theirs
    header = read_header(theirs)
    identity = (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional)
    assert identity == producer


@seeded(200)
@given(CLIENTS, RECORDS, PRODUCERS)
def test_clients_read_what_we_write(client: Any, records: list[Record], producer: tuple[int, ...]) -> None:
    batch_type, _, codec = client
    theirs = batch_type(bytes(build_ours(records, codec, producer)))
    assert theirs.validate_crc()
    assert theirs.compression_type == codec
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == producer[:3]
    assert theirs.is_transactional == producer[3]
    assert their_records(theirs) == records


@seeded(50)
@given(CLIENTS, RECORDS)
def test_clients_read_what_we_recompress(client: Any, records: list[Record]) -> None:
    batch_type, builder_type, codec = client
    batch = build_theirs(builder_type, records, compression.LZ4, (-1, -1, -1, False))
    theirs = batch_type(bytes(recompress(batch, codec, None, LIMIT_BYTES)))
    assert theirs.validate_crc()
    assert their_records(theirs) == records


@seeded(50)
@given(CLIENTS, RECORDS)
def test_append_time_is_read_alike(client: Any, records: list[Record]) -> None:
    batch_type, builder_type, codec = client
    batch = bytearray(build_theirs(builder_type, records, codec, (-1, -1, -1, False)))
    stamp(batch, 1_234_567)
    theirs = batch_type(bytes(batch))
    assert theirs.validate_crc()
    assert their_records(theirs) == our_records(batch)
    assert our_records(batch) == [record._replace(timestamp=1_234_567) for record in records]


@pytest.mark.parametrize("commit", [True, False])
def test_clients_read_our_markers(commit: bool) -> None:
    batch = bytes(marker_batch(Marker(commit, 3), producer_id=9, producer_epoch=1, timestamp=5))
    aio = AioBatch(batch)
    assert aio.is_control_batch
    assert aio.is_transactional
    (record,) = aio
    assert ControlRecord.parse(record.key) == (COMMIT_MARKER if commit else ABORT_MARKER)
    (control,) = KpyBatch(batch)
    assert (control.commit, control.abort) == (commit, not commit)


def seconds(record: Record) -> Record:
    """kio's reader keeps whole seconds."""
    return record._replace(timestamp=record.timestamp // 1000 * 1000)


def from_kio(record: KioRecord) -> Record:
    headers = tuple((header.key or b"", header.value) for header in record.headers)
    return Record(record.offset, int(record.timestamp.timestamp()) * 1000, record.key, record.value, headers)


def to_kio(record: Record) -> KioRecord:
    moment = datetime.datetime.fromtimestamp(record.timestamp // 1000, datetime.UTC)
    return KioRecord(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(moment),
        offset=i64(record.offset),
        key=record.key,
        value=record.value,
        headers=tuple(RecordHeader(key=key, value=value) for key, value in record.headers),
    )


@seeded(100)
@given(record_lists(dense=False, times=st.integers(0, 2**40)), PRODUCERS)
def test_kio_reads_ours_and_we_read_kios(records: list[Record], producer: tuple[int, ...]) -> None:
    records = [seconds(record) for record in records]
    ours = build_ours(records, compression.NONE, producer)
    parsed, size = read_batch(bytes(ours), 0)
    assert size == len(ours)
    assert [from_kio(record) for record in parsed.records] == records

    buffer = io.BytesIO()
    kios = NewRecordBatch(
        producer_id=i64(producer[0]),
        producer_epoch=i16(producer[1]),
        base_sequence=i32(producer[2]),
        records=tuple(to_kio(record) for record in records),
        attributes=i16(read_header(ours).attributes),
    )
    write_batch(buffer, kios)
    assert buffer.getvalue() == ours
