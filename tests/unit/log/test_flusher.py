"""Group commit: shared syncs, what they cover, and a failed one that is never forgotten."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from anabranch.base.disk import File
from anabranch.base.errors import DiskFailed, DiskFull, Unavailable
from anabranch.base.ids import TopicName
from anabranch.log.checkpoints import RECOVERY_POINTS
from anabranch.log.config import LogConfig
from anabranch.log.flusher import Flusher, is_due
from anabranch.log.index import OffsetIndex
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import LEADER_EPOCHS
from anabranch.log.recovery import open_log
from anabranch.log.transactions import AbortedTransaction
from anabranch.log.truncation import truncate_to
from anabranch.partition.points import Points
from anabranch.partition.replica import Replica
from tests.sim.disk import MemoryDisk
from tests.support.crashing_disk import FailingDisk
from tests.support.logs import SetClock, fill, marker, open_log_in, put, records
from tests.support.refusals import refused
from tests.support.waiting import until
from tests.support.worlds import Inline


class HeldThreads(ThreadPoolExecutor):
    """Work waits until it is let go."""

    def __init__(self) -> None:
        super().__init__(2)
        self.gate = threading.Semaphore(0)
        self.started = 0

    def submit(self, work: Callable[..., object], /, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        def held() -> object:
            self.gate.acquire()
            return work(*args, **kwargs)

        self.started += 1
        return super().submit(held)

    def let_go(self, times: int = 1) -> None:
        self.gate.release(times)


@pytest.fixture
def threads() -> Iterator[HeldThreads]:
    held = HeldThreads()
    yield held
    held.let_go(1000)
    held.shutdown()


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FailingDisk) -> LocalLog:
    return open_log_in(tmp_path, disk=disk)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_recovery_point_is_what_was_synced(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads
) -> None:
    threads.let_go(100)
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "abc")
    await flusher.flush(log, 2)
    assert log.recovery_point == 3, "a sync covers all there is"
    assert disk.syncs == 2, "the log and its epochs"
    await flusher.flush(log, 3)
    assert disk.syncs == 2, "it is there already"
    assert flusher.begin(log, 1) is None


async def test_waiters_share_a_sync(log: LocalLog, disk: FailingDisk, threads: HeldThreads) -> None:
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "ab")
    first = [asyncio.create_task(flusher.flush(log, 1 + i % 2)) for i in range(10)]
    await turns()
    assert threads.started == 1
    fill(log, "cd")
    second = [asyncio.create_task(flusher.flush(log, 4)) for _ in range(10)]
    early = asyncio.create_task(flusher.flush(log, 2))
    await turns()
    assert threads.started == 1, "one sync at a time"
    assert not any(task.done() for task in first)
    threads.let_go()
    await asyncio.gather(*first, early)
    assert log.recovery_point == 2
    await turns()
    assert not any(task.done() for task in second), "what came later was not part of it"
    threads.let_go()
    await asyncio.gather(*second)
    assert (log.recovery_point, threads.started) == (4, 2)


async def test_sealed_segments_alone_if_that_will_do(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads
) -> None:
    threads.let_go(100)
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "ab")
    log.roll()
    fill(log, "c")
    await flusher.flush(log, 2)
    assert log.recovery_point == 2
    assert disk.syncs == 4, "the log, both of its indexes and its epochs"
    await flusher.flush(log, 3)
    assert (log.recovery_point, disk.syncs) == (3, 5)


async def test_a_segment_that_is_sealed_during_its_sync_is_synced_again(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads
) -> None:
    """The sync that runs has not got its indexes, nor its list of aborted transactions."""
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "ab")
    flushed = asyncio.ensure_future(flusher.flush(log, 2))
    await turns()
    log.roll()
    threads.let_go()
    await until(lambda: threads.started == 2)
    assert log.recovery_point == 0
    assert not flushed.done()
    threads.let_go()
    await flushed
    assert log.recovery_point == 2


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
async def test_a_failed_sync_is_final(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads, number: int
) -> None:
    threads.let_go(100)
    told: list[LocalLog] = []
    flusher = Flusher(disk, threads, 2, SetClock())
    flusher.on_failure = lambda failed, error: told.append(failed)
    fill(log, "a")
    disk.sync_error = OSError(number, "broken")
    results = await asyncio.gather(*(flusher.flush(log, 1) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [DiskFailed] * 3
    assert (log.recovery_point, flusher.has_failed, told) == (0, True, [log])
    disk.sync_error = None  # the next fsync would succeed, and prove nothing
    with pytest.raises(DiskFailed):
        await flusher.flush(log, 1)
    with pytest.raises(DiskFailed):
        flusher.begin(log, 1)
    assert log.recovery_point == 0


async def test_other_logs_are_not_affected(
    tmp_path: Path, log: LocalLog, disk: FailingDisk, threads: HeldThreads
) -> None:
    threads.let_go(100)
    flusher = Flusher(disk, threads, 2, SetClock())
    other = open_log_in(tmp_path / "other", disk=disk)
    fill(log, "a")
    fill(other, "a")
    disk.sync_error = OSError(errno.EIO, "broken")
    with pytest.raises(DiskFailed):
        await flusher.flush(log, 1)
    disk.sync_error = None
    await flusher.flush(other, 1)
    assert other.recovery_point == 1


async def test_a_waiter_that_gives_up_harms_nobody(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads
) -> None:
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "a")
    leaves = asyncio.create_task(flusher.flush(log, 1))
    stays = asyncio.create_task(flusher.flush(log, 1))
    await turns()
    leaves.cancel()
    threads.let_go()
    await stays
    assert log.recovery_point == 1


async def test_a_folder_for_which_there_is_no_descriptor_is_synced_later(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.let_go(100)
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "a")
    with monkeypatch.context() as short:
        short.setattr(disk, "sync_dir", refused(errno.EMFILE))
        with pytest.raises(Unavailable) as told:
            await flusher.flush(log, 1)
        assert not isinstance(told.value, DiskFailed)
    assert not flusher.has_failed
    await flusher.flush(log, 1)
    assert log.recovery_point == 1


async def test_a_sync_that_fails_counts_for_more_than_a_descriptor_that_is_missing(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.let_go(100)
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "a")
    errors = [OSError(errno.EMFILE, "too many open files"), OSError(errno.EIO, "broken")]

    def refuse(path: Path) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(disk, "sync_dir", refuse)
    with pytest.raises(DiskFailed):
        await flusher.flush(log, 1)
    assert flusher.has_failed


async def test_a_log_that_is_no_more(log: LocalLog, disk: FailingDisk, threads: HeldThreads) -> None:
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "a")
    waiting = asyncio.create_task(flusher.flush(log, 1))
    await turns()
    flusher.forget(log)
    threads.let_go()
    with pytest.raises(Unavailable):
        await waiting
    assert log.recovery_point == 0


async def test_a_log_that_is_no_more_before_its_sync_began(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads
) -> None:
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "a")
    waiter = flusher.begin(log, 1)
    assert waiter is not None
    flusher.forget(log)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiter, 60)
    assert threads.started == 0


async def test_a_cut_makes_a_running_sync_worthless(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads
) -> None:
    """What is at those offsets now may be another leader's."""
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "abc")
    waiting = asyncio.create_task(flusher.flush(log, 3))
    await turns()
    assert threads.started == 1
    truncate_to(disk, log, 1)
    fill(log, "BC")
    threads.let_go(100)
    with pytest.raises(Unavailable, match="was cut"):
        await waiting
    assert log.recovery_point == 0
    await flusher.flush(log, 3)
    assert log.recovery_point == 3


class CountingDisk(FailingDisk):
    """Knows how many descriptors are held for syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most_held = 0

    def open(self, path: Path) -> File:
        disk = self

        class Counted(File):
            def syncer(self) -> Callable[[], None]:
                sync = super().syncer()
                disk.held += 1
                disk.most_held = max(disk.most_held, disk.held)

                def counted() -> None:
                    sync()
                    disk.held -= 1

                return counted

        return Counted(path, self.size(path), self.handles)


async def test_descriptors_are_taken_for_as_many_logs_as_are_synced_at_a_time(tmp_path: Path) -> None:
    disk = CountingDisk()
    logs = [open_log_in(tmp_path / str(i), disk=disk) for i in range(40)]
    for log in logs:
        fill(log, "a")
    with ThreadPoolExecutor(1) as threads:
        flusher = Flusher(disk, threads, 3, SetClock())
        await asyncio.gather(*(flusher.flush(log, 1) for log in logs))
    assert [log.recovery_point for log in logs] == [1] * 40
    assert disk.most_held <= 2 * 3, "the log and its epochs"


async def test_a_log_of_many_segments_is_synced_a_few_at_a_time(tmp_path: Path) -> None:
    disk = CountingDisk()
    log = open_log_in(tmp_path, disk=disk, segment_bytes=80)
    fill(log, [str(i) for i in range(100)])
    assert len(log.segments) == 100
    with ThreadPoolExecutor(1) as threads:
        await Flusher(disk, threads, 2, SetClock()).flush(log, 100)
    assert log.recovery_point == 100
    assert disk.most_held <= 48


def test_flush_messages(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, flush_messages=3)
    fill(log, "ab")
    assert not is_due(log)
    fill(log, "c")
    assert is_due(log)
    log.recovery_point = 1
    assert not is_due(log)


async def test_descriptors_are_given_back_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = CountingDisk()
    log = open_log_in(tmp_path, disk=disk, segment_bytes=150)
    fill(log, "abcde")

    def refuse(index: OffsetIndex) -> None:
        raise DiskFull("no room for the file of an index")

    monkeypatch.setattr(OffsetIndex, "syncer", refuse)
    with ThreadPoolExecutor(1) as threads, pytest.raises(Unavailable):
        await Flusher(disk, threads, 1, SetClock()).flush(log, log.log_end)
    assert disk.most_held > 0
    assert disk.held == 0


async def test_a_sync_that_fails_while_there_is_no_descriptor_for_all_is_final_too(
    log: LocalLog, disk: FailingDisk, threads: HeldThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says it once, and calls the next one a success."""
    threads.let_go(100)
    flusher = Flusher(disk, threads, 2, SetClock())
    fill(log, "a")
    log.roll()
    fill(log, "b")
    disk.sync_error = OSError(errno.EIO, "broken")
    with monkeypatch.context() as short:
        short.setattr(OffsetIndex, "syncer", refused(errno.EMFILE))
        with pytest.raises(DiskFailed):
            await flusher.flush(log, 2)
    disk.sync_error = None
    with pytest.raises(DiskFailed):
        await flusher.flush(log, 2)
    assert log.recovery_point == 0


@pytest.mark.parametrize("seed", range(30))
async def test_aborts_outlive_a_power_cut_after_a_roll(seed: int) -> None:
    """Each record is synced before it is acknowledged, so all there is of a segment is when it is sealed."""
    memory = MemoryDisk(Random(seed), lambda: 0)
    with ThreadPoolExecutor(1) as pool:
        disk, folder = memory.attach(Inline), Path("/data/orders-0")
        log = open_log(disk, SetClock(), folder, LogConfig(), clean=True)
        flusher, points = Flusher(disk, pool, 1, SetClock()), Points(disk, folder.parent)
        replica = Replica(TopicName.from_kafka("orders"), 0, ("orders", 0), log, 0)
        put(log, records("x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
        await flusher.flush(log, 1)
        put(log, marker(7, commit=False))
        await flusher.flush(log, 2)
        told = points.collected(["orders"], [replica])[RECOVERY_POINTS]["orders", 0]
        log.roll()
        fill(log, "a")
        if seed % 2:
            await flusher.flush(log, 3)
            told = points.collected(["orders"], [replica])[RECOVERY_POINTS]["orders", 0]
        else:  # written back by the system, as it may be at any time
            log.active.file.sync()
            disk.sync_dir(folder)
    memory.power_cut()
    left = open_log(memory.attach(Inline), SetClock(), folder, LogConfig(), clean=False, recovery_point=told)
    assert left.log_end == 3
    assert left.aborted_between(0, 2) == [AbortedTransaction(7, 0, 1, 2)]


@pytest.mark.parametrize("seed", range(30))
async def test_aborts_outlive_a_power_cut_after_they_were_read_again(seed: int) -> None:
    """Epochs that are gone have a start read all of the log, also what the checkpoint has as synced."""
    memory = MemoryDisk(Random(seed), lambda: 0)
    folder = Path("/data/orders-0")
    with ThreadPoolExecutor(1) as pool:
        disk = memory.attach(Inline)
        log = open_log(disk, SetClock(), folder, LogConfig(), clean=True)
        put(log, records("x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
        put(log, marker(7, commit=False))
        log.roll()
        fill(log, "a")
        await Flusher(disk, pool, 1, SetClock()).flush(log, 3)
    disk.remove(folder / LEADER_EPOCHS)
    for _ in range(2):
        left = open_log(memory.attach(Inline), SetClock(), folder, LogConfig(), clean=False, recovery_point=2)
        assert left.aborted_between(0, 2) == [AbortedTransaction(7, 0, 1, 2)]
        memory.power_cut()


@pytest.mark.parametrize("seed", range(30))
async def test_epochs_outlive_a_power_cut_after_a_roll(seed: int) -> None:
    """What is below the recovery point is not read again: nothing else says where they began."""
    memory = MemoryDisk(Random(seed), lambda: 0)
    with ThreadPoolExecutor(1) as pool:
        disk, folder = memory.attach(Inline), Path("/data/orders-0")
        log = open_log(disk, SetClock(), folder, LogConfig(), clean=True)
        flusher, points = Flusher(disk, pool, 1, SetClock()), Points(disk, folder.parent)
        replica = Replica(TopicName.from_kafka("orders"), 0, ("orders", 0), log, 0)
        put(log, records("a"), 1)
        await flusher.flush(log, 1)
        put(log, records("b"), 2)
        if seed % 2:
            await flusher.flush(log, 2)
        put(log, records("c"), 2)
        log.roll()
        put(log, records("d"), 2)
        await flusher.flush(log, 4)
        told = points.collected(["orders"], [replica])[RECOVERY_POINTS]["orders", 0]
    memory.power_cut()
    left = open_log(memory.attach(Inline), SetClock(), folder, LogConfig(), clean=False, recovery_point=told)
    assert (left.log_end, told) == (4, 3)
    assert [left.epochs.end_of(epoch, 4) for epoch in (1, 2)] == [(1, 1), (2, 4)]
