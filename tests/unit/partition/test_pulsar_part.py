"""Batches of Kafka's producers as Pulsar's consumers read them."""

import asyncio
from pathlib import Path

import pytest

from anabranch.partition.entries import EntryReader
from anabranch.partition.partition import Partition
from anabranch.records.builder import build_batch
from anabranch.records.compression import ZSTD
from anabranch.records.entries import Entry, read_metadata
from anabranch.records.record import Record
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.key_hash import key_of
from anabranch.subscriptions.reading import Reading
from tests.support.entries import messages_of
from tests.support.hosted import Hosted

KEYS = (b"a", b"b", b"c")


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    hosted = Hosted(tmp_path)
    return hosted.host.partition(hosted.topic("t"), 0)


def put(partition: Partition, *offsets: int, end: int, codec: int = 0, size: int = 10) -> None:
    """A batch of records at `offsets`, up to `end`: compaction took the others."""
    made = [Record(offset, 1_790_000_000_000, KEYS[offset % 3], b"%d" % offset * size) for offset in offsets]
    batch = build_batch(made, base_offset=0, last_offset=end - 1, codec=codec)
    partition.append_own(memoryview(batch))


async def entries(reader: EntryReader, offset: int, max_bytes: int = 1 << 20) -> list[Entry]:
    while True:
        found = reader.read(offset, max_bytes)
        if found.pending is None:
            return found.entries
        await asyncio.wait_for(found.pending, 60)


async def test_gaps_are_nobodys_to_acknowledge(partition: Partition) -> None:
    put(partition, 1, 2, 5, end=8)
    put(partition, 0, end=1)
    reader = EntryReader(partition)
    first, _ = await entries(reader, 0)
    assert first.gaps == ((0, 1), (3, 5), (6, 8))
    assert [single.compacted_out for single, _ in messages_of(first.payload)] == [
        True, False, False, True, True, False, True, True,
    ]  # fmt: skip
    cursor = Cursor(0)
    reading = Reading(reader, cursor)
    reading.fresh(1 << 20)
    assert cursor.mark_delete == 1
    assert reading.ack_set(first) == [0b100110]
    for offset in (1, 2, 5):
        cursor.ack(offset, offset + 1)
    assert cursor.mark_delete == 8


async def test_a_batch_that_compaction_took_whole_is_no_entry(partition: Partition) -> None:
    put(partition, 0, 1, end=2)
    hollow = build_batch([Record(0, 1, b"k", b"v")], last_offset=3)
    hollow[57:61] = bytes(4)  # no records
    del hollow[61:]
    hollow[8:12] = (len(hollow) - 12).to_bytes(4, "big")
    partition.append_own(memoryview(hollow))
    put(partition, 0, end=1)
    assert [entry.offset for entry in await entries(EntryReader(partition), 0)] == [0, 6]


async def test_message_by_message(partition: Partition) -> None:
    put(partition, 0, 1, 3, end=5)
    reader = EntryReader(partition)
    reader.splits = True
    found = await entries(reader, 0)
    assert [(entry.offset, entry.count) for entry in found] == [(0, 1), (1, 1), (3, 1)]
    assert [key_of(read_metadata(entry.payload)) for entry in found] == [b"a", b"b", b"a"]
    assert [entry.offset for entry in await entries(reader, 1)] == [1, 3]
    assert (reader.bounds(1), reader.bounds(3)) == ((1, 2), (3, 4))


async def test_large_batches_take_turns(partition: Partition) -> None:
    for codec in (0, ZSTD):
        put(partition, *range(1000), end=1000, codec=codec)
    for splits in (False, True):
        readers = [EntryReader(partition) for _ in range(2)]
        for reader in readers:
            reader.splits = splits
        waits = [reader.read(0, 1 << 20).pending for reader in readers]
        assert waits[0] is not None
        assert waits[0] is waits[1]  # one makes it for both
        turns = 0
        while not waits[0].done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        assert (await entries(readers[0], 0))[0].offset == 0
        second = await entries(readers[1], 1000)
        assert [entry.offset for entry in second] == (list(range(1000, 2000)) if splits else [1000])


async def test_translations_end_with_their_node(partition: Partition) -> None:
    put(partition, *range(1000), end=1000)
    pending = EntryReader(partition).read(0, 1 << 20).pending
    assert pending is not None
    await partition.translations.stop()
    assert pending.cancelled()
