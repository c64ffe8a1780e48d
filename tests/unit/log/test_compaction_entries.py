"""Pulsar entries under compaction: single messages, batches of every codec, chunks, what nobody can read."""

import base64
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from anabranch.log.append_entries import append_entries
from anabranch.log.compaction_entries import OpenEntry, Superseding, last_offset_in
from anabranch.log.local_log import LocalLog
from anabranch.records.batch import DELETE_HORIZON, HEADER_SIZE, PULSAR_ENTRY, read_header
from anabranch.records.entries import read_metadata, verify
from anabranch.records.entry_payloads import LIMIT_BYTES, compressed, payload_of, uncompressed
from anabranch.records.pulsar_metadata_pb2 import CompressionType, SingleMessageMetadata
from tests.support.compaction import compact_now, compacted_log
from tests.support.entries import enclosed, entry_of
from tests.support.logs import START_MS, batches, put, records


class _Sent(NamedTuple):
    messages: int
    publish_time_ms: int
    payload: memoryview


Message = tuple[str | None, bytes]
CODECS = [
    CompressionType.NONE,
    CompressionType.LZ4,
    CompressionType.ZLIB,
    CompressionType.ZSTD,
    CompressionType.SNAPPY,
]


def batch(*messages: Message, codec: int = CompressionType.NONE, **more: Any) -> bytes:
    """A batch entry of keys and values; an empty value is none."""
    parts = []
    for key, value in messages:
        single = SingleMessageMetadata(payload_size=len(value))
        if key is not None:
            single.partition_key = key
        described = single.SerializeToString()
        parts.append(struct.pack(">I", len(described)) + described + value)
    plain = b"".join(parts)
    payload = compressed(codec, plain)
    return entry_of(
        payload,
        compression=codec,
        uncompressed_size=len(plain),
        num_messages_in_batch=len(messages),
        **more,
    )


def store(log: LocalLog, entry: bytes, count: int = 1) -> None:
    append_entries(log, [_Sent(count, START_MS, memoryview(entry))], 0, START_MS)


def opened(entry: bytes, count: int = 1, offset: int = 0) -> OpenEntry:
    stored = enclosed(entry, count, offset=offset)
    return OpenEntry(read_header(stored), stored, LIMIT_BYTES)


def left(log: LocalLog) -> list[tuple[int, str | None, bytes]]:
    """Offset, key and value of every message of Pulsar's in the log."""
    found = []
    for header, stored in batches(log):
        if not header.attributes & PULSAR_ENTRY:
            continue
        verify(memoryview(stored)[HEADER_SIZE:])
        entry = OpenEntry(header, stored, LIMIT_BYTES)
        metadata = read_metadata(stored[HEADER_SIZE:])
        plain = uncompressed(metadata, payload_of(memoryview(stored)[HEADER_SIZE:]))
        for member in entry.members:
            key = None if member.key is None else member.key.decode()
            if not metadata.HasField("num_messages_in_batch"):
                found.append((member.offset, key, plain))
                continue
            (size,) = struct.unpack_from(">I", plain, member.start)
            found.append((member.offset, key, plain[member.start + 4 + size : member.end]))
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_the_last_of_every_key_stays_in_its_place(tmp_path: Path, codec: int) -> None:
    log = compacted_log(tmp_path)
    store(log, batch(("a", b"1"), ("b", b"2"), ("c", b"3"), codec=codec), 3)
    store(log, batch(("a", b"4"), ("a", b"5"), codec=codec), 2)
    store(log, entry_of(compressed(codec, b"6"), key="b", compression=codec, uncompressed_size=1))
    log.roll()
    compact_now(log)
    assert left(log) == [(2, "c", b"3"), (4, "a", b"5"), (5, "b", b"6")]
    headers = [header for header, _ in batches(log)]
    assert [(h.base_offset, h.last_offset, h.count) for h in headers] == [(0, 2, 1), (3, 4, 1), (5, 5, 1)]
    stored = [read_metadata(data[HEADER_SIZE:]) for _, data in batches(log)]
    assert [list(metadata.compacted_batch_indexes) for metadata in stored] == [[2], [1], []]


def test_keys_are_the_same_in_both_protocols(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    store(log, entry_of(b"old", key="k"))
    put(log, records("new", keys=["k"]))
    raw = base64.b64encode(b"\xff\x00").decode()
    store(log, entry_of(b"raw", key=raw, partition_key_b64_encoded=True))
    store(log, entry_of(b"newer", key=raw, partition_key_b64_encoded=True))
    log.roll()
    compact_now(log)
    assert [offset for offset, _ in ((h.base_offset, d) for h, d in batches(log))] == [1, 3]


def test_what_is_empty_deletes_and_stays_for_a_while(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=1000)
    store(log, entry_of(b"v", key="a"))
    store(log, entry_of(b"", key="a"))
    store(log, batch(("b", b"1"), ("b", b"")), 2)
    log.roll()
    compact_now(log)
    assert left(log) == [(1, "a", b""), (3, "b", b"")]
    assert all(header.attributes & DELETE_HORIZON for header, _ in batches(log))
    compact_now(log, now_ms=START_MS + 500)
    assert len(left(log)) == 2
    compact_now(log, now_ms=START_MS + 2000)
    assert left(log) == []
    # The last batch of what was cleaned stays, empty, so that the offsets go on from there.
    ((header, data),) = batches(log)
    assert (header.last_offset, header.count, header.attributes & PULSAR_ENTRY) == (3, 0, 0)
    assert len(data) == HEADER_SIZE


def test_messages_without_a_key_go(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    store(log, batch((None, b"1"), ("a", b"2")), 2)
    store(log, entry_of(b"3"))
    log.roll()
    assert compact_now(log).keyless == 2
    assert left(log) == [(1, "a", b"2")]


def test_what_nobody_can_read_stays_and_supersedes_nothing(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    store(log, entry_of(b"v", key="a"))
    secret = {"encryption_keys": [{"key": "k", "value": b"x"}], "encryption_algo": "aes"}
    store(log, batch(("a", b"2"), **secret), 1)
    store(log, entry_of(b"nonsense", num_messages_in_batch=7), 7)
    log.roll()
    summary = compact_now(log)
    assert summary.unreadable == 2
    assert [header.base_offset for header, _ in batches(log)] == [0, 1, 2]


def test_an_encrypted_message_goes_by_its_key(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    secret = {"encryption_keys": [{"key": "k", "value": b"x"}], "encryption_algo": "aes"}
    store(log, entry_of(b"1", key="a", **secret))
    store(log, entry_of(b"2", key="a", **secret))
    log.roll()
    compact_now(log)
    assert [offset for offset, *_ in left(log)] == [1]


# --- chunks


def chunk(number: int, count: int, *, uuid: str = "u", key: str = "a") -> bytes:
    return entry_of(b"part", key=key, uuid=uuid, chunk_id=number, num_chunks_from_msg=count)


def keys_of(*entries: bytes) -> list[tuple[bytes, int]]:
    superseding = Superseding()
    return [
        found
        for offset, entry in enumerate(entries)
        for found in superseding.keys(opened(entry, offset=offset))
    ]


def test_chunks_count_from_their_last_on(tmp_path: Path) -> None:
    assert keys_of(chunk(0, 3), chunk(1, 3), chunk(2, 3)) == [(b"a", 0)]
    assert keys_of(chunk(0, 3), chunk(1, 3)) == []
    assert keys_of(chunk(1, 3), chunk(2, 3)) == []  # its first chunk is not there
    interleaved = (chunk(0, 2), chunk(0, 2, uuid="v", key="b"), chunk(1, 2), chunk(1, 2, uuid="v", key="b"))
    assert keys_of(*interleaved) == [(b"a", 0), (b"b", 1)]


def test_all_chunks_of_the_last_message_stay(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    entries: Sequence[bytes] = (
        entry_of(b"old", key="a"),
        chunk(0, 2, uuid="old"),
        chunk(1, 2, uuid="old"),
        chunk(0, 3),
        entry_of(b"x", key="other"),
        chunk(1, 3),
        chunk(2, 3),
    )
    for entry in entries:
        store(log, entry)
    log.roll()
    compact_now(log)
    assert [offset for offset, *_ in left(log)] == [3, 4, 5, 6]


def test_an_unfinished_message_supersedes_nothing(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for entry in (entry_of(b"whole", key="a"), chunk(0, 3), chunk(1, 3)):
        store(log, entry)
    log.roll()
    compact_now(log)
    assert [offset for offset, *_ in left(log)] == [0, 1, 2]


def test_a_batch_that_claims_to_be_a_chunk_is_a_batch() -> None:
    entry = batch(("a", b"1"), ("b", b"2"), uuid="u", chunk_id=1, num_chunks_from_msg=2)
    assert list(Superseding().keys(opened(entry, 2))) == [(b"a", 0), (b"b", 1)]


def test_the_last_message_that_is_left(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    store(log, batch(("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", b"4")), 4)
    put(log, records("5", "6", "7", keys=["c", "b", "b"]))
    put(log, records("8", "9", keys=["d", "b"]))
    log.roll()
    compact_now(log)
    assert [last_offset_in(stored, LIMIT_BYTES) for _, stored in batches(log)] == [2, 4, 8]
