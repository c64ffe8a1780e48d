"""Pulsar entries: into the envelope and out of it, byte for byte."""

import struct

import pytest
from crc32c import crc32c

from anabranch.base.errors import Corrupt, Invalid
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, crc_of, read_header
from anabranch.records.entries import (
    MAX_MESSAGES,
    ChecksumMismatch,
    as_entry,
    count_of,
    read_metadata,
    verify,
)
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from tests.support.entries import enclosed, entry_of


def test_an_entry_comes_back_as_it_went_in() -> None:
    sent = entry_of(b"payload", count=3, publish_time=1_700_000_000_000)
    batch = enclosed(sent, 3, 1_700_000_000_000, offset=41, leader_epoch=7)
    header = read_header(batch)
    assert header.attributes == PULSAR_ENTRY
    assert header.crc == crc_of(batch)
    assert header.size_bytes == len(batch)
    entry = as_entry(header, batch[HEADER_SIZE:])
    assert bytes(entry.payload) == sent
    assert (entry.offset, entry.count, entry.end, entry.ledger) == (41, 3, 44, 7)
    assert entry.timestamp_ms == 1_700_000_000_000


def test_a_checksum_is_verified() -> None:
    sent = bytearray(entry_of(b"payload"))
    verify(memoryview(sent))
    sent[-1] ^= 1
    with pytest.raises(ChecksumMismatch, match="damaged"):
        verify(memoryview(sent))


def test_an_entry_may_come_without_a_checksum() -> None:
    sent = entry_of(b"payload", key="k")[6:]
    verify(memoryview(sent))
    assert read_metadata(sent).partition_key == "k"


@pytest.mark.parametrize("count", [0, -1, MAX_MESSAGES + 1])
def test_a_count_that_no_batch_has(count: int) -> None:
    with pytest.raises(Invalid, match="messages"):
        count_of(MessageMetadata(num_messages_in_batch=count))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x0e\x01",
        b"\x0e\x01\x00\x00\x00\x00\x00",
        struct.pack(">I", 5) + b"abc",
        struct.pack(">I", 0xFFFFFFFF) + b"abc",
        struct.pack(">HII", 0x0E01, crc32c(b""), 0x7FFFFFFF),
        struct.pack(">I", 3) + b"\xff\xff\xff",
        struct.pack(">I", 0),
    ],
)
def test_metadata_that_is_none(sent: bytes) -> None:
    with pytest.raises(Corrupt):
        read_metadata(sent)
