"""What Kafka's consumers are given where Pulsar producers write, too."""

from pathlib import Path

import pytest

from anabranch.base.network import FileRange
from anabranch.partition.kafka_part import NotForKafka, kafka_part
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import split_batches
from tests.support.hosted import Hosted
from tests.support.topics import send


def read(partition: Partition, offset: int) -> FileRange:
    found = partition.read(offset, 1 << 20, Isolation.UNCOMMITTED, whole_first=True)
    assert found is not None
    return found


def end_of(part: FileRange) -> int:
    *_, (header, _) = split_batches(part.file.pread(part.size, part.position))
    return header.last_offset + 1


async def test_a_read_ends_before_the_first_entry(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    partition = hosted.put("t", "a", "b")
    hosted.put("t", "c")
    assert not partition.log.has_entries
    partition.append_entries([send(0), send(1)])
    hosted.put("t", "d")
    assert end_of(kafka_part(read(partition, 0))) == 3
    for offset in (3, 4):
        with pytest.raises(NotForKafka):
            kafka_part(read(partition, offset))
    assert kafka_part(read(partition, 5)) == read(partition, 5)
    await hosted.restart()
    assert hosted.partition("t").log.has_entries


def test_a_reader_of_many_small_batches_comes_back(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    hosted.topic("t")
    for _ in range(300):
        partition = hosted.put("t", "a")
    assert end_of(kafka_part(read(partition, 0))) == 256
