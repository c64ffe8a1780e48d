"""Compaction of a log in this process: what a worker would do, and the log's part after it.

    log = compacted_log(folder)
    put(log, records("1", keys=["a"]))
    log.roll()
    compact_now(log)                     # everything that is sealed and decided

Time is START_MS unless `now_ms` says otherwise.
"""

import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError
from anabranch.log import compaction_swap
from anabranch.log.cleaner import Message, make_job, make_view_job
from anabranch.log.compacted import CompactedLog, let_count, new_folder
from anabranch.log.compaction import Job, Summary, compact
from anabranch.log.compaction_plan import Plan
from anabranch.log.compaction_view import ViewJob, ViewSummary, write_view
from anabranch.log.config_broker import CleanerConfig
from anabranch.log.local_log import LocalLog
from anabranch.records.record import iter_records, payload_of
from tests.support.logs import START_MS, UNPACKED_LIMIT, SetClock, a_disk, batches, open_log_in


def compacted_log(folder: Path, **config: Any) -> LocalLog:
    config.setdefault("cleanup_policy", ("compact",))
    return open_log_in(folder, **config)


def job_for(
    log: LocalLog,
    *,
    first_dirty: int | None = None,
    end: int | None = None,
    now_ms: int = START_MS,
    **limits: Any,
) -> Job:
    """The job that cleans all of `log` that may be cleaned."""
    if end is None:
        undecided = log.producers.first_open_transaction
        stable = log.log_end if undecided is None else undecided
        end = next(
            (s.base_offset for s in log.segments if s.end_offset > stable or s is log.active),
            log.active.base_offset,
        )
    first = log.log_start if first_dirty is None else first_dirty
    return make_job(log, Plan(first, end, 1, 1.0, True, None), CleanerConfig(**limits), now_ms)


def compact_now(
    log: LocalLog, *, disk: Disk | None = None, change: Callable[[Job], Job] = lambda job: job, **job: Any
) -> Summary:
    """Compact `log` and put the results in place."""
    disk = disk or a_disk()
    segments = {segment.base_offset: segment for segment in log.segments}

    def put_in_place(bases: list[int]) -> None:
        old = [segments[base] for base in bases]
        compaction_swap.promote(disk, log.folder, bases[0])
        compaction_swap.swap_in(disk, log, old)
        for segment in old:
            segment.close()

    made = change(job_for(log, **job))
    assert made.bases, "there is nothing to clean below the active segment"
    return compact(disk, made, lambda size: None, put_in_place)


async def worker_here(job: Job) -> AsyncGenerator[Message, None]:
    """As `run_worker`, in this process."""
    said: list[Message] = []
    summary = compact(a_disk(), job, lambda size: None, lambda bases: said.append({"replaced": bases}))
    for message in said:
        yield message
    yield {"done": summary._asdict()}


def view_now(
    log: LocalLog, disk: Disk | None = None, *, end: int | None = None, keyless: bool = False, **limits: Any
) -> ViewSummary:
    """Make a view of everything that is decided, and let it count."""
    disk = disk or a_disk()
    undecided = log.producers.first_open_transaction
    if end is None:
        end = log.log_end if undecided is None else undecided
    target = new_folder(disk, log.folder)
    job = make_view_job(log, log.view, target, end, CleanerConfig(), keeps_keyless=keyless)
    made = write_view(disk, job._replace(**limits), lambda size: None)
    current = let_count(disk, target, made)
    if log.view is not None:
        log.view.close()
        shutil.rmtree(log.view.folder)
    log.view = CompactedLog(disk, SetClock(), target, current, log.config)
    return made


async def view_worker_here(job: ViewJob) -> AsyncGenerator[Message, None]:
    """The same for a view."""
    try:
        made = write_view(a_disk(), job, lambda size: None)
    except AnabranchError as error:
        yield {"failed": str(error)}
        return
    yield {"done": made._asdict()}


def keyed(log: LocalLog) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record of data in the log."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for header, batch in batches(log)
        if not header.is_control
        for record in iter_records(header, payload_of(header, batch, UNPACKED_LIMIT))
    ]
