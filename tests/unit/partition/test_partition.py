"""What a partition that is led here says of its log."""

from pathlib import Path

from anabranch.records.batch import read_header
from anabranch.records.builder import empty_batch
from tests.support.logs import START_MS, put, records
from tests.unit.partition.test_host import T, hosted


async def test_a_batch_that_compaction_emptied_is_at_no_time(tmp_path: Path) -> None:
    partition = hosted(tmp_path).partition(T, 0)
    emptied = empty_batch(read_header(records("gone", producer_id=7, producer_epoch=0, base_sequence=0)))
    put(partition.log, emptied)
    partition.append(memoryview(records("stays")), -1)
    found = await partition.offset_for_time(START_MS)
    assert found is not None
    assert found.offset == 1
