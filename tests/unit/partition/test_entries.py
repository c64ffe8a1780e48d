"""A partition entry by entry."""

from pathlib import Path

import pytest

from anabranch.base.errors import OffsetOutOfRange
from anabranch.partition.entries import EntryReader
from anabranch.partition.partition import Partition
from anabranch.records.batch import HEADER_SIZE, crc_of
from anabranch.records.entries import read_metadata
from tests.support.entries import batch_of, enclosed, entry_of, messages_of
from tests.support.hosted import Hosted
from tests.support.logs import records
from tests.support.topics import send


def put(partition: Partition, entry: bytes, count: int = 1) -> int:
    return partition.append_own(enclosed(entry, count)).base_offset


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    return Hosted(tmp_path)


def test_entries_come_in_order_with_their_offsets(hosted: Hosted) -> None:
    partition = hosted.host.partition(hosted.topic("t"), 0)
    put(partition, entry_of(b"a"))
    put(partition, batch_of(b"b", b"c"), 2)
    put(partition, entry_of(b"d"))
    reader = EntryReader(partition)
    found = reader.read(0, 1 << 20)
    assert [(entry.offset, entry.count) for entry in found.entries] == [(0, 1), (1, 2), (3, 1)]
    assert found.next_offset == reader.end == 4
    assert [value for _, value in messages_of(found.entries[1].payload)] == [b"b", b"c"]
    assert reader.read(4, 1 << 20).entries == []


def test_a_read_inside_an_entry_brings_it_whole(hosted: Hosted) -> None:
    partition = hosted.host.partition(hosted.topic("t"), 0)
    put(partition, batch_of(b"a", b"b", b"c"), 3)
    assert EntryReader(partition).read(2, 1).entries[0].offset == 0
    assert EntryReader(partition).bounds(1) == (0, 3)


def test_kafka_records_are_entries_too(hosted: Hosted) -> None:
    topic = hosted.topic("t")
    hosted.put(topic, "k")
    [entry] = EntryReader(hosted.host.partition(topic, 0)).read(0, 1 << 20).entries
    assert (entry.offset, entry.count) == (0, 1)


def test_there_is_nothing_beyond_the_end(hosted: Hosted) -> None:
    partition = hosted.host.partition(hosted.topic("t"), 0)
    put(partition, entry_of(b"a"))
    for offset in (1, 7):
        with pytest.raises(OffsetOutOfRange):
            EntryReader(partition).bounds(offset)


def test_what_retention_took_is_passed_over(hosted: Hosted) -> None:
    partition = hosted.host.partition(hosted.topic("t"), 0)
    for _ in range(3):
        put(partition, entry_of(b"a"))
    partition.trim(2)
    assert [entry.offset for entry in EntryReader(partition).read(0, 1 << 20).entries] == [2]


def test_what_nobody_can_read_is_passed_over(hosted: Hosted) -> None:
    topic = hosted.topic("t")
    garbage = records("a", "b", codec=4)  # says that it is compressed
    garbage[HEADER_SIZE:] = b"\x00" * (len(garbage) - HEADER_SIZE)
    garbage[17:21] = crc_of(garbage).to_bytes(4, "big")
    partition = hosted.put(topic, "before")
    partition.append(memoryview(garbage), 1)
    hosted.put(topic, "after")
    found = EntryReader(partition).read(0, 1 << 20)
    assert [(entry.offset, entry.count) for entry in found.entries] == [(0, 1), (3, 1)]
    assert found.next_offset == 4


def test_a_message_of_the_far_future_counts_as_one_of_the_near(hosted: Hosted) -> None:
    partition = hosted.host.partition(hosted.topic("t"), 0)
    partition.append_entries([send(0, publish_time=(1 << 64) - 1), send(1, publish_time=5)])
    found = EntryReader(partition).read(0, 1 << 20).entries
    hour_ms = 3_600_000
    assert [entry.timestamp_ms for entry in found] == [hosted.clock.now_ms() + hour_ms, 5]
    assert read_metadata(found[0].payload).publish_time == (1 << 64) - 1  # as it was sent
