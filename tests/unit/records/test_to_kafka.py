"""Pulsar's entries as Kafka's consumers see them."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from lz4 import block

from anabranch.base.errors import Corrupt, TooLarge
from anabranch.records.batch import crc_of, read_header
from anabranch.records.entries import read_metadata
from anabranch.records.pulsar_metadata_pb2 import (
    CompressionType,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)
from anabranch.records.record import Record, iter_records, payload_of
from anabranch.records.to_kafka import as_kafka_batch
from tests.support.entries import PUBLISHED_MS, batch_of, enclosed, entry_of

LIMIT = 1 << 20


def translated(entry: bytes, count: int = 1, offset: int = 7) -> list[Record]:
    batch = enclosed(entry, count, offset=offset, leader_epoch=3)
    made = as_kafka_batch(read_header(batch), batch, LIMIT)
    header = read_header(made)
    assert header.crc == crc_of(made)
    assert (header.base_offset, header.leader_epoch) == (offset, 3)
    assert header.last_offset == offset + count - 1
    return list(iter_records(header, payload_of(header, made, LIMIT)))


def test_a_single_message() -> None:
    [record] = translated(
        entry_of(
            b"value",
            key="k",
            properties=[KeyValue(key="a", value="1"), KeyValue(key="a", value="2")],
            ordering_key=b"o",
            schema_version=b"\0\1",
        )
    )
    assert record == Record(
        7,
        PUBLISHED_MS,
        b"k",
        b"value",
        ((b"a", b"1"), (b"a", b"2"), (b"pulsar.ordering-key", b"o"), (b"pulsar.schema-version", b"\0\1")),
    )


def test_event_time_keys_in_base64_and_nulls() -> None:
    [record] = translated(
        entry_of(b"", key="/wA=", partition_key_b64_encoded=True, event_time=5, null_value=True)
    )
    assert (record.timestamp, record.key, record.value) == (5, b"\xff\x00", None)
    assert translated(entry_of(b"v"))[0].key is None


def test_a_batch_has_an_offset_a_message() -> None:
    records = translated(batch_of(b"a", b"", b"c"), 3)
    assert [(record.offset, record.value) for record in records] == [(7, b"a"), (8, b""), (9, b"c")]


def test_what_compaction_took_is_a_gap() -> None:
    gone = SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
    kept = SingleMessageMetadata(payload_size=1).SerializeToString()
    payload = struct.pack(">I", len(gone)) + gone + struct.pack(">I", len(kept)) + kept + b"x"
    assert [record.offset for record in translated(entry_of(payload, count=2), 2)] == [8]
    both = (struct.pack(">I", len(gone)) + gone) * 2
    assert translated(entry_of(both, count=2), 2) == []


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (CompressionType.LZ4, lambda data: block.compress(data, store_size=False)),
        (CompressionType.ZLIB, zlib.compress),
        (CompressionType.ZSTD, lambda data: bytes(cramjam.zstd.compress(data))),
        (CompressionType.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    ],
)
def test_every_compression(codec: Any, pack: Callable[[bytes], bytes]) -> None:
    plain = b"a" * 5000
    more = {"compression": codec, "uncompressed_size": len(plain)}
    assert translated(entry_of(pack(plain), **more))[0].value == plain
    with pytest.raises(Corrupt):
        translated(entry_of(b"nothing of the kind", **more))
    with pytest.raises(TooLarge):
        translated(entry_of(pack(plain), compression=codec, uncompressed_size=LIMIT + 1))


def test_a_part_of_a_large_message_is_none() -> None:
    assert translated(entry_of(b"part", uuid="u", num_chunks_from_msg=3, chunk_id=1)) == []


def test_what_is_encrypted_goes_on_as_it_is() -> None:
    keys = [EncryptionKeys(key="k", value=b"secret")]
    entry = entry_of(b"noise", count=3, encryption_keys=keys, encryption_algo="AES", encryption_param=b"iv")
    [record] = translated(entry, 3)
    headers = dict(record.headers)
    assert (record.offset, record.value, headers[b"pulsar.encrypted"]) == (7, b"noise", b"AES")
    assert (
        MessageMetadata.FromString(headers[b"pulsar.metadata"] or b"").encryption_keys[0].value == b"secret"
    )
    part = entry_of(b"part", uuid="u", num_chunks_from_msg=3, chunk_id=1, encryption_keys=keys)
    headers = dict(translated(part)[0].headers)
    assert (headers[b"pulsar.chunk"], headers[b"pulsar.chunk-of"]) == (b"2/3", b"u")


@pytest.mark.parametrize("entry", [batch_of(b"a", b"b")[:-3], entry_of(b"\xff" * 9, count=2)])
def test_a_damaged_batch(entry: bytes) -> None:
    assert read_metadata(entry).num_messages_in_batch == 2
    with pytest.raises(Corrupt):
        translated(entry, 2)
