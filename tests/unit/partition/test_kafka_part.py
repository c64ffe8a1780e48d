"""What Kafka's consumers are given where Pulsar producers write, too."""

from pathlib import Path

import pytest

from anabranch.base.network import FileRange
from anabranch.partition.kafka_part import KafkaParts, NotForKafka
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import PULSAR_ENTRY, split_batches
from anabranch.records.record import iter_records, payload_of
from anabranch.topics.publish import Send
from tests.support.entries import PUBLISHED_MS, batch_of
from tests.support.hosted import Hosted
from tests.support.topics import send


def read(partition: Partition, offset: int) -> FileRange:
    found = partition.read(offset, 1 << 20, Isolation.UNCOMMITTED, whole_first=True)
    assert found is not None
    return found


def offsets(given: FileRange | bytes) -> list[int]:
    data = given.file.pread(given.size, given.position) if isinstance(given, FileRange) else given
    found = []
    for header, batch in split_batches(data):
        assert not header.attributes & PULSAR_ENTRY
        found += [record.offset for record in iter_records(header, payload_of(header, batch, 1 << 20))]
    return found


async def test_a_read_is_of_one_kind(tmp_path: Path) -> None:
    hosted, parts = Hosted(tmp_path), KafkaParts()
    hosted.topic("t")
    partition = hosted.put("t", "a", "b")
    hosted.put("t", "c")
    assert not partition.log.has_entries
    partition.append_entries([send(0), send(1)])
    hosted.put("t", "d")
    assert parts.of(read(partition, 0)) != read(partition, 0)
    assert offsets(parts.of(read(partition, 0))) == [0, 1, 2]
    assert offsets(parts.of(read(partition, 3))) == [3, 4]
    assert parts.of(read(partition, 5)) == read(partition, 5)
    await hosted.restart()
    assert hosted.partition("t").log.has_entries


def test_a_batch_is_translated_once(tmp_path: Path) -> None:
    hosted, parts = Hosted(tmp_path), KafkaParts()
    hosted.topic("t")
    partition = hosted.host.partition("t", 0)
    entry = memoryview(batch_of(*(b"%d" % number for number in range(100))))
    partition.append_entries([Send(0, 99, 100, PUBLISHED_MS, entry)])
    first = parts.of(read(partition, 40))
    assert offsets(first) == list(range(100))
    assert parts.of(read(partition, 40)) is first


def test_what_cannot_be_translated_is_named(tmp_path: Path) -> None:
    hosted, parts = Hosted(tmp_path), KafkaParts()
    hosted.topic("t")
    partition = hosted.host.partition("t", 0)
    good = memoryview(batch_of(b"a", b"b"))
    partition.append_entries([Send(0, 1, 2, PUBLISHED_MS, good), Send(2, 3, 2, PUBLISHED_MS, good[:-4])])
    assert offsets(parts.of(read(partition, 0))) == [0, 1]
    with pytest.raises(NotForKafka, match="offset 2"):
        parts.of(read(partition, 2))


def test_a_reader_of_many_small_batches_comes_back(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    for _ in range(300):
        partition = hosted.put("t", "a")
    assert offsets(KafkaParts().of(read(partition, 0))) == list(range(256))
