"""What Kafka's consumers are given where Pulsar producers write, too."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.network import FileRange
from anabranch.base.seldom import Seldom
from anabranch.partition import translations
from anabranch.partition.kafka_part import kafka_part
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.partition.translations import key_of
from anabranch.records.batch import HEADER_SIZE, PULSAR_ENTRY, read_header, split_batches
from anabranch.records.pulsar_metadata_pb2 import CompressionType
from anabranch.records.record import iter_records, payload_of
from anabranch.topics.publish import Send
from tests.support.entries import PUBLISHED_MS, batch_of, entry_of
from tests.support.hosted import Hosted
from tests.support.topics import send


def read(partition: Partition, offset: int) -> FileRange:
    found = partition.read(offset, 1 << 20, Isolation.UNCOMMITTED, whole_first=True)
    assert found is not None
    return found


async def given(partition: Partition, offset: int) -> FileRange | bytes:
    while True:
        found = kafka_part(partition, read(partition, offset))
        if not isinstance(found, asyncio.Future):
            return found
        await found


def offsets(part: FileRange | bytes) -> list[int]:
    data = part.file.pread(part.size, part.position) if isinstance(part, FileRange) else part
    found = []
    for header, batch in split_batches(data):
        assert not header.attributes & PULSAR_ENTRY
        found += [record.offset for record in iter_records(header, payload_of(header, batch, 1 << 20))]
    return found


async def test_a_read_is_of_one_kind(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    partition = hosted.put("t", "a", "b")
    hosted.put("t", "c")
    assert not partition.log.has_entries
    partition.append_entries([send(0), send(1)])
    hosted.put("t", "d")
    assert await given(partition, 0) != read(partition, 0)
    assert offsets(await given(partition, 0)) == [0, 1, 2]
    assert offsets(await given(partition, 3)) == [3, 4]
    assert await given(partition, 5) == read(partition, 5)
    await hosted.restart()
    assert hosted.partition("t").log.has_entries


async def test_a_batch_is_translated_once(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    partition = hosted.host.partition("t", 0)
    entry = memoryview(batch_of(*(b"%d" % number for number in range(300))))
    partition.append_entries([Send(0, 299, 300, PUBLISHED_MS, entry)])
    waits = [kafka_part(partition, read(partition, offset)) for offset in (40, 250)]
    assert waits[0] is waits[1]  # one makes it for both
    first = await given(partition, 40)
    assert offsets(first) == list(range(300))
    header = read_header(memoryview(read(partition, 0).file.pread(HEADER_SIZE, 0)))
    kept = partition.translations.find(key_of(partition, header))
    assert kept is not None
    assert await given(partition, 40) == kept.data == first


async def test_what_cannot_be_translated_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translations, "_passed_over", Seldom(logging.getLogger("test"), 0.0))
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    partition = hosted.host.partition("t", 0)
    good = memoryview(batch_of(b"a", b"b"))
    garbage = memoryview(
        entry_of(b"garbage", compression=CompressionType.ZSTD, uncompressed_size=(1 << 32) - 1)
    )
    partition.append_entries(
        [
            Send(0, 1, 2, PUBLISHED_MS, good),
            Send(2, 3, 2, PUBLISHED_MS, good[:-4]),
            Send(4, 4, 1, PUBLISHED_MS, garbage),
            Send(5, 6, 2, PUBLISHED_MS, good),
        ]
    )
    found: list[int] = []
    offset = 0
    while offset < partition.log_end:
        part = await given(partition, offset)
        assert isinstance(part, bytes)
        found += offsets(part)
        offset = [header.last_offset for header, _ in split_batches(part)][-1] + 1
    assert found == [0, 1, 5, 6]
    assert "offset 2 is passed over" in caplog.text


async def test_a_reader_of_many_small_batches_comes_back(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    for _ in range(300):
        partition = hosted.put("t", "a")
    assert offsets(await given(partition, 0)) == list(range(256))


def chunk(number: int, payload: bytes, *, of: int = 3, uuid: str = "u", **more: Any) -> Send:
    entry = entry_of(
        payload,
        key="k",
        uuid=uuid,
        num_chunks_from_msg=of,
        chunk_id=number,
        total_chunk_msg_size=9,
        uncompressed_size=9,
        **more,
    )
    return Send(number, number, 1, PUBLISHED_MS, memoryview(entry))


async def values(partition: Partition, offset: int) -> dict[int, bytes | None]:
    """What a reader from `offset` on gets, by offset."""
    found: dict[int, bytes | None] = {}
    while offset < partition.log_end:
        part = await given(partition, offset)
        assert isinstance(part, bytes)
        for header, batch in split_batches(part):
            for record in iter_records(header, payload_of(header, batch, 1 << 20)):
                found[record.offset] = record.value
            offset = header.last_offset + 1
    return found


async def test_chunks_are_one_record_at_the_last_ones_offset(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    partition = hosted.host.partition("t", 0)
    partition.append_entries([chunk(0, b"abc"), send(1), chunk(1, b"def"), send(2), chunk(2, b"ghi")])
    single = (await values(partition, 1))[1]
    assert await values(partition, 0) == {1: single, 3: single, 4: b"abcdefghi"}
    assert await values(partition, 4) == {4: b"abcdefghi"}  # wherever the reader begins


async def test_chunks_may_lie_far_apart(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t", segment_bytes=4096)
    partition = hosted.host.partition("t", 0)
    for number, payload in enumerate((b"abc", b"def")):
        partition.append_entries([chunk(number, payload)])
        for _ in range(30):
            hosted.put("t", "a", "b", "c")
            partition.append_entries([send(0)])
    partition.append_entries([chunk(2, b"ghi")])
    assert len(partition.log.segments) > 1
    assert await values(partition, partition.log_end - 1) == {partition.log_end - 1: b"abcdefghi"}


async def test_chunks_that_are_not_all_there_are_no_message(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    partition = hosted.host.partition("t", 0)
    partition.append_entries(
        [
            chunk(0, b"abc"),
            chunk(1, b"def", uuid="other"),
            chunk(2, b"ghi"),
            chunk(4, b"x", of=1 << 30),
            send(5),
        ]
    )
    partition.append_entries([chunk((1 << 30) - 1, b"x", of=1 << 30)])
    assert list(await values(partition, 0)) == [4]
    partition.trim(1)
    assert list(await values(partition, 2)) == [4]
