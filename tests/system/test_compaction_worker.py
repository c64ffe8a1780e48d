"""The worker process: does a job, keeps its pace and its place, and dies when it should."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Unavailable
from anabranch.base.processes import RealProcesses
from anabranch.log.cleaner import Cleaner, run_worker
from anabranch.log.compaction import Job
from anabranch.log.local_log import LocalLog
from tests.support.compaction import compacted_log, job_for, keyed
from tests.support.logs import put, records

PATIENCE_S = 90.0

in_a_process = partial(run_worker, RealProcesses())


def a_cleaner(threads: Executor) -> Cleaner:
    return Cleaner(DirectDisk(), threads, in_a_process)


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = compacted_log(tmp_path, segment_bytes=20_000)
    for i in range(400):
        put(log, records("x" * 100 + str(i), keys=[str(i % 7)], codec=i % 5))
    log.roll()
    return log


def slow(job: Job) -> Job:
    """So slow that it is still at it whenever somebody looks."""
    return job._replace(io_bytes_per_second=2000.0)


def children() -> list[int]:
    """The processes that this one has started and that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


async def eventually(holds: Callable[[], object]) -> bool:
    for _ in range(int(PATIENCE_S / 0.01)):
        if holds():
            return True
        await asyncio.sleep(0.01)
    return False


async def new_child(before: set[int]) -> int:
    assert await eventually(lambda: set(children()) - before)
    (pid,) = set(children()) - before
    return pid


async def test_a_job_is_done_and_the_process_ends(log: LocalLog) -> None:
    before = set(children())
    with ThreadPoolExecutor(1) as threads:
        summary = await a_cleaner(threads).clean(log, job_for(log), lambda old: None)
    assert summary.cleaned_to == 400
    assert [value for _, _, value in keyed(log)] == ["x" * 100 + str(i) for i in range(393, 400)]
    assert set(children()) <= before


async def test_it_gives_way_to_everybody_and_can_be_left(log: LocalLog) -> None:
    before = set(children())
    async with aclosing(in_a_process(slow(job_for(log)))) as messages:
        reading = asyncio.ensure_future(anext(messages))
        pid = await new_child(before)
        assert await eventually(lambda: os.getpriority(os.PRIO_PROCESS, pid) == 19)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert gone(pid)
    assert len(keyed(log)) == 400


async def test_it_keeps_the_pace(log: LocalLog) -> None:
    size = sum(segment.size for segment in log.segments)
    job = job_for(log)._replace(io_bytes_per_second=float(size))
    started = time.monotonic()
    async with aclosing(in_a_process(job)) as messages:
        async for _ in messages:
            pass
    assert time.monotonic() - started > 1.5, "it reads everything twice at that rate"


async def test_a_killed_worker_is_an_error_and_harms_nothing(log: LocalLog) -> None:
    before = set(children())
    with ThreadPoolExecutor(1) as threads:
        cleaning = asyncio.ensure_future(a_cleaner(threads).clean(log, slow(job_for(log)), lambda old: None))
        os.kill(await new_child(before), signal.SIGKILL)
        with pytest.raises(Unavailable, match="died"):
            await cleaning
    assert len(keyed(log)) == 400
    assert not [path for path in log.folder.iterdir() if path.name.endswith((".cleaned", ".swap"))]


async def test_a_segment_that_is_gone_is_said(log: LocalLog) -> None:
    job = job_for(log)
    names = sorted(os.listdir(log.folder))
    broken = job._replace(bases=[*job.bases, job.bases[-1] + 1])
    async with aclosing(in_a_process(broken)) as messages:
        said = [message async for message in messages]
    assert [list(message) for message in said] == [["failed"]]
    assert "is gone" in said[0]["failed"]
    assert sorted(os.listdir(log.folder)) == names


def test_it_dies_with_its_parent(log: LocalLog, tmp_path: Path) -> None:
    """The parent is killed, so it can tell nobody."""
    job = tmp_path / "job.json"
    job.write_text(json.dumps(slow(job_for(log))._asdict()))
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "worker = subprocess.Popen([sys.executable, '-m', 'anabranch.log.compaction_worker'],"
            " stdin=subprocess.PIPE)\n"
            f"worker.stdin.write(open({str(job)!r}, 'rb').read() + b'\\n')\n"
            "worker.stdin.flush()\n"
            "print(worker.pid, flush=True)\n"
            "time.sleep(60)\n",
        ],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    time.sleep(0.5)
    assert is_running(worker)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(worker)


def test_it_ends_when_its_pipe_is_closed(log: LocalLog) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "anabranch.log.compaction_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(slow(job_for(log))._asdict()).encode() + b"\n")
    worker.stdin.flush()
    time.sleep(0.5)
    assert worker.poll() is None
    worker.stdin.close()
    assert worker.wait(PATIENCE_S) == 1
