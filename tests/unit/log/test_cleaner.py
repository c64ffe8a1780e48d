"""The broker's side of compaction: results go in place while the log lives on, or are thrown away."""

import asyncio
import errno
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import DiskFull, NotFound, Unavailable
from anabranch.log import compaction_swap
from anabranch.log.cleaner import Cleaner, Message
from anabranch.log.compaction import Job
from anabranch.log.index import MappedIndex
from anabranch.log.local_log import LocalLog
from anabranch.log.segment import Segment
from tests.support.compaction import compacted_log, job_for, keyed, worker_here
from tests.support.crashing_disk import FailingDisk
from tests.support.logs import a_disk, crash, marker, put, records


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = compacted_log(tmp_path, segment_bytes=300)
    for i in range(20):
        put(log, records(str(i), keys=[str(i % 3)]))
    log.roll()
    return log


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.endswith((".cleaned", ".swap"))]


async def test_a_job_carried_through(log: LocalLog, threads: ThreadPoolExecutor) -> None:
    gone: list[Segment] = []
    before = list(log.segments)
    summary = await Cleaner(a_disk(), threads, worker_here).clean(log, job_for(log), gone.extend)
    assert summary.cleaned_to == 20
    assert [value for _, _, value in keyed(log)] == ["17", "18", "19"]
    assert gone
    assert set(gone) <= set(before)
    assert not set(gone) & set(log.segments)
    assert leftovers(log.folder) == []


async def test_no_job_while_the_disk_has_no_room_for_an_abort(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    disk = FailingDisk()
    log = compacted_log(tmp_path, disk=disk)
    put(log, records("stays", keys=["k"]))
    put(
        log,
        records("aborted", keys=["k"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
    )
    log.roll()
    end = marker(7, commit=False)
    disk.room_bytes = len(end)
    put(log, end)
    with pytest.raises(DiskFull):
        job_for(log)
    disk.room_bytes = 1 << 20
    await Cleaner(a_disk(), threads, worker_here).clean(log, job_for(log), lambda gone: None)
    assert "stays" in [value for _, _, value in keyed(log)]


async def test_a_swap_that_the_disk_cuts_off_is_finished_at_the_next_start(
    tmp_path: Path, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: MappedIndex, path: Path) -> None:
        raise OSError(errno.ENOSPC, "no room for a name")

    log = compacted_log(tmp_path)
    for key in ("only here", "k", "k"):
        put(log, records(key, keys=[key]))
    log.roll()
    cleaner = Cleaner(a_disk(), threads, worker_here)
    with monkeypatch.context() as patched:
        patched.setattr(MappedIndex, "rename", full)
        with pytest.raises(OSError, match="no room"):
            await cleaner.clean(log, job_for(log), lambda gone: None)
    with pytest.raises(NotFound):
        await cleaner.clean(log, job_for(log), lambda gone: None)
    assert len(keyed(log)) == 3, "readers notice nothing"
    crash(log)
    again = compacted_log(tmp_path, clean=False)
    assert [key for _, key, _ in keyed(again)] == ["only here", "k"]
    assert leftovers(tmp_path) == []


async def test_appends_go_on_meanwhile(log: LocalLog, threads: ThreadPoolExecutor) -> None:
    async def worker(job: Job) -> AsyncGenerator[Message, None]:
        async for message in worker_here(job):
            put(log, records("new", keys=["0"]))
            log.roll()
            yield message

    await Cleaner(a_disk(), threads, worker).clean(log, job_for(log), lambda gone: None)
    values = [value for _, _, value in keyed(log)]
    assert values[:3] == ["17", "18", "19"]
    assert set(values[3:]) == {"new"}


async def test_what_retention_took_is_not_brought_back(log: LocalLog, threads: ThreadPoolExecutor) -> None:
    async def worker(job: Job) -> AsyncGenerator[Message, None]:
        said = [message async for message in worker_here(job)]
        dropped = log.segments[:1]
        log.advance_start(dropped[0].end_offset)
        log.drop(dropped)
        for message in said:
            yield message

    start = log.segments[0].end_offset
    await Cleaner(a_disk(), threads, worker).clean(log, job_for(log), lambda gone: None)
    assert log.segments[0].base_offset == log.log_start == start
    assert [value for _, _, value in keyed(log)][-3:] == ["17", "18", "19"]
    assert leftovers(log.folder) == []


async def test_a_worker_that_fails(log: LocalLog, threads: ThreadPoolExecutor) -> None:
    async def worker(job: Job) -> AsyncGenerator[Message, None]:
        async for message in worker_here(job):
            if "replaced" in message:
                yield message
        yield {"failed": "DiskFull: no room"}

    before = keyed(log)
    with pytest.raises(Unavailable, match="no room"):
        await Cleaner(a_disk(), threads, worker).clean(log, job_for(log), lambda gone: None)
    assert set(keyed(log)) <= set(before)
    assert [value for _, _, value in keyed(log)][-3:] == ["17", "18", "19"]


async def test_one_that_is_cancelled_while_its_files_are_renamed(
    log: LocalLog, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on: what it renames must not be removed beside it, file by file."""
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()
    promote, discard = compaction_swap.promote, compaction_swap.discard
    discarded: list[bool] = []

    def held(*arguments: Any) -> None:
        begun.set()
        assert gate.wait(60)
        promote(*arguments)
        ended.set()

    def discard_now(*arguments: Any) -> None:
        if begun.is_set():
            discarded.append(ended.is_set())
        discard(*arguments)

    monkeypatch.setattr(compaction_swap, "promote", held)
    monkeypatch.setattr(compaction_swap, "discard", discard_now)
    before = keyed(log)
    cleaning = asyncio.create_task(
        Cleaner(a_disk(), threads, worker_here).clean(log, job_for(log), lambda gone: None)
    )
    assert await asyncio.to_thread(begun.wait, 60)
    cleaning.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await cleaning
    assert discarded
    assert all(discarded)
    assert leftovers(log.folder) == []
    assert keyed(log) == before


async def test_one_that_is_cancelled_leaves_nothing_behind(
    log: LocalLog, threads: ThreadPoolExecutor
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def worker(job: Job) -> AsyncGenerator[Message, None]:
        try:
            said = [message async for message in worker_here(job)]
            assert said
            assert leftovers(log.folder)
            begun.set()
            await asyncio.Event().wait()
            yield {}
        finally:
            ended.set()

    task = asyncio.create_task(Cleaner(a_disk(), threads, worker).clean(log, job_for(log), lambda gone: None))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert leftovers(log.folder) == []
    assert len(keyed(log)) == 20
