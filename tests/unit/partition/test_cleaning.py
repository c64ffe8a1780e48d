"""Which logs are compacted when, and what becomes of one that cannot be."""

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import Corrupt
from anabranch.log.checkpoints import CLEANER_POINTS
from anabranch.log.cleaner import Message
from anabranch.log.compaction import Job
from anabranch.log.compaction_plan import Plan, plan
from anabranch.log.config_broker import CleanerConfig
from anabranch.log.segment import Segment
from anabranch.partition import cleaning as cleaning_module
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.partition.replica import Replica
from anabranch.partition.served_topic import ServedTopic
from tests.support.compaction import keyed, worker_here
from tests.support.hosted import Hosted
from tests.support.logs import release

DAY_MS = 86_400_000


class Workers:
    """Counts, holds and fails jobs; does them in this process otherwise."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.running = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Event()
        self.failing = False

    async def run(self, job: Job) -> AsyncGenerator[Message, None]:
        self.jobs.append(job)
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        try:
            await self.gate.wait()
            if self.failing:
                yield {"failed": "Corrupt: no batch there"}
                return
            async for message in worker_here(job):
                yield message
        finally:
            self.running -= 1


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
async def hosted(tmp_path: Path, workers: Workers) -> AsyncIterator[Hosted]:
    made = Hosted(tmp_path, worker=workers.run)
    yield made
    made.kill()


def dirty(hosted: Hosted, name: str, index: int = 0, rounds: int = 3) -> Partition:
    """Write ten keys over and over, and seal what was written."""
    for i in range(rounds * 10):
        partition = hosted.put(name, f"{i}", keys=[str(i % 10)], index=index)
    partition.log.roll()
    return partition


def deleted_logs(hosted: Hosted) -> list[str]:
    return [name for name in hosted.files(".deleted") if ".log." in name]


def values(partition: Partition) -> list[str | None]:
    return [value for _, _, value in keyed(partition.log)]


async def test_a_dirty_log_is_cleaned_once(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("table", cleanup_policy=("compact",), segment_bytes=700)
    partition = dirty(hosted, "table")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert values(partition) == [str(i) for i in range(20, 30)]
    assert hosted.points(CLEANER_POINTS) == {("table", 0): 30}
    assert hosted.files(".cleaned") == hosted.files(".swap") == []
    assert deleted_logs(hosted)
    done = len(workers.jobs)
    for _ in range(3):
        hosted.put("table", "x", keys=["0"])
        await hosted.upkeep.look()
        await hosted.upkeep._clean()
    assert len(workers.jobs) == done, "what is in the active segment is not cleanable"
    hosted.clock.advance(60_000)
    await hosted.upkeep._removal.round()
    assert hosted.files(".deleted") == []


async def test_a_segment_that_is_replaced_twice_does_not_take_the_first_ones_files(
    hosted: Hosted, workers: Workers
) -> None:
    hosted.topic("table", cleanup_policy=("compact",), file_delete_delay_ms=60_000)
    partition = dirty(hosted, "table")
    readers = []
    for _ in range(3):
        first = partition.log.segments[0]
        readers.append((first.file, first.file.pread(10_000, 0)))
        await hosted.upkeep.look()
        await hosted.upkeep._clean()
        dirty(hosted, "table", rounds=1)
        hosted.clock.advance(25_000)
    release(hosted.disk)  # readers have to open the files again, by name
    assert len(deleted_logs(hosted)) >= 3
    for file, content in readers:
        assert file.pread(10_000, 0) == content
    await hosted.upkeep._removal.round()
    for file, content in readers[1:]:
        assert file.pread(10_000, 0) == content, "the first one's time has come, not theirs"
    hosted.clock.advance(60_000)
    await hosted.upkeep._removal.round()
    assert deleted_logs(hosted) == []


async def test_other_policies_are_left_alone(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("stream", segment_bytes=700)
    dirty(hosted, "stream")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert workers.jobs == []
    hosted.configure("stream", cleanup_policy=("compact", "delete"), segment_bytes=700)
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert len(workers.jobs) == 1


async def test_not_before_it_is_dirty_enough(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("table", cleanup_policy=("compact",), segment_bytes=2000, min_cleanable_dirty_ratio=0.8)
    partition = dirty(hosted, "table", rounds=4)
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    before = len(workers.jobs)
    assert before == 1
    dirty(hosted, "table", rounds=1)
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert len(workers.jobs) == before
    dirty(hosted, "table", rounds=5)
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert len(workers.jobs) == before + 1
    assert len(values(partition)) == 10


async def test_lags(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("young", cleanup_policy=("compact",), min_compaction_lag_ms=5000)
    dirty(hosted, "young")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert workers.jobs == []
    hosted.clock.advance(5000)
    await hosted.upkeep._clean()
    assert len(workers.jobs) == 1, "nothing was written, but it is old enough now"


async def test_the_last_batch_goes_to_where_time_forces_it(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("table", cleanup_policy=("compact",), max_compaction_lag_ms=DAY_MS)
    dirty(hosted, "table")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    hosted.put("table", "x", keys=["0"]).log.roll()
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert len(workers.jobs) == 1
    hosted.clock.advance(DAY_MS + 1)
    await hosted.upkeep._clean()
    assert len(workers.jobs) == 2


async def test_as_many_at_a_time_as_told_the_dirtiest_first(hosted: Hosted, workers: Workers) -> None:
    hosted.config.tell(cleaner=CleanerConfig(threads=2))
    hosted.topic("table", 5, cleanup_policy=("compact",), segment_bytes=5000, min_cleanable_dirty_ratio=0.0)
    for index in range(5):
        dirty(hosted, "table", index)
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert (len(workers.jobs), workers.most) == (5, 2)
    assert all(job.dedupe_bytes == 64 << 20 for job in workers.jobs)
    for index in (3, 1):
        dirty(hosted, "table", index, rounds=1 + index)
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert [Path(job.folder).name for job in workers.jobs[5:]] == ["table-3", "table-1"]


async def test_disabled(hosted: Hosted, workers: Workers) -> None:
    hosted.config.tell(cleaner=CleanerConfig(enable=False))
    hosted.topic("table", cleanup_policy=("compact",))
    dirty(hosted, "table")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert workers.jobs == []


async def test_a_log_that_cannot_be_cleaned_waits_longer_each_time(
    hosted: Hosted, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.topic("table", cleanup_policy=("compact",))
    partition = dirty(hosted, "table")
    workers.failing = True
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert "no batch there" in caplog.text
    tried_at = [hosted.clock.ms]
    for _ in range(100):
        hosted.clock.advance(5000)
        dirty(hosted, "table", rounds=1)
        await hosted.upkeep.look()
        before = len(workers.jobs)
        await hosted.upkeep._clean()
        if len(workers.jobs) > before:
            tried_at.append(hosted.clock.ms)
    waits = [later - earlier for earlier, later in pairwise(tried_at)]
    assert waits == [15_000, 30_000, 60_000, 120_000, 240_000]
    workers.failing = False
    hosted.clock.advance(3_600_000)
    await hosted.upkeep._clean()
    assert len(values(partition)) == 10


async def test_one_log_that_cannot_be_judged_does_not_keep_the_others(
    hosted: Hosted, workers: Workers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.topic("table", 3, cleanup_policy=("compact",))
    partitions = [dirty(hosted, "table", index) for index in range(3)]
    await hosted.upkeep.look()
    broken = partitions[1].log.segments

    def refuse(segments: list[Segment], *rest: Any, **named: Any) -> Plan:
        if segments is broken:
            raise Corrupt("a segment ends inside a batch header")
        return plan(segments, *rest, **named)

    monkeypatch.setattr(cleaning_module, "plan", refuse)
    for _ in range(3):
        await hosted.upkeep._clean()
    assert [len(values(partition)) for partition in partitions] == [10, 30, 10]
    assert caplog.text.count("inside a batch header") == 1
    monkeypatch.undo()
    hosted.clock.advance(15_000)
    await hosted.upkeep._clean()
    assert len(values(partitions[1])) == 10


async def test_a_log_that_cannot_be_opened_is_tried_again(
    hosted: Hosted, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.topic("table", 3, cleanup_policy=("compact",))
    for index in range(3):
        dirty(hosted, "table", index)
    await hosted.restart()
    replica_of = PartitionHost.replica_of

    def refuse(self: PartitionHost, topic: ServedTopic, index: int) -> Replica:
        if index == 0:
            raise OSError(errno.EMFILE, "too many open files")
        return replica_of(self, topic, index)

    monkeypatch.setattr(PartitionHost, "replica_of", refuse)
    await hosted.upkeep._aging.round()
    await hosted.upkeep._clean()
    assert sorted(Path(job.folder).name for job in workers.jobs) == ["table-1", "table-2"]
    monkeypatch.undo()
    hosted.clock.advance(15_000)
    await hosted.upkeep._clean()
    assert len(values(hosted.partition("table"))) == 10


async def test_a_deleted_topic_stops_its_cleaning(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("table", cleanup_policy=("compact",))
    dirty(hosted, "table")
    await hosted.upkeep.look()
    workers.gate.clear()
    cleaning = asyncio.create_task(hosted.upkeep._clean())
    await workers.begun.wait()
    hosted.remove("table")
    await cleaning
    assert workers.running == 0
    assert hosted.points(CLEANER_POINTS) == {}


async def test_a_stop_kills_the_workers(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("table", cleanup_policy=("compact",))
    partition = dirty(hosted, "table")
    await hosted.upkeep.look()
    workers.gate.clear()
    cleaning = asyncio.create_task(hosted.upkeep._clean())
    await workers.begun.wait()
    cleaning.cancel()
    await asyncio.gather(cleaning, return_exceptions=True)
    assert workers.running == 0
    assert len(values(partition)) == 30


async def test_after_a_restart_it_goes_on_where_it_was(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("clean", cleanup_policy=("compact",))
    hosted.topic("dirty", cleanup_policy=("compact",))
    hosted.topic("stream")
    dirty(hosted, "clean")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    dirty(hosted, "dirty")
    dirty(hosted, "stream")
    await hosted.restart()
    del workers.jobs[:]
    await hosted.upkeep._aging.round()
    await hosted.upkeep._clean()
    assert [Path(job.folder).name for job in workers.jobs] == ["dirty-0"]
    assert [replica.topic.local for replica in hosted.host.open_replicas()] == ["dirty"]


async def test_a_table_that_is_created_again_is_cleaned_from_its_start(
    hosted: Hosted, workers: Workers
) -> None:
    hosted.topic("table", cleanup_policy=("compact",))
    dirty(hosted, "table", rounds=2)
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    await hosted.restart()
    hosted.remove("table")  # nobody had opened it
    hosted.topic("table", cleanup_policy=("compact",))
    partition = dirty(hosted, "table")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert values(partition) == [str(i) for i in range(20, 30)]


async def test_nothing_undecided_is_cleaned(hosted: Hosted, workers: Workers) -> None:
    hosted.topic("table", cleanup_policy=("compact",))
    fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    hosted.put("table", "open", keys=["k"], **fields)
    dirty(hosted, "table")
    await hosted.upkeep.look()
    await hosted.upkeep._clean()
    assert workers.jobs == []
