"""The broker's side of compaction: a worker process does the work, its results are put in place here.

    make_job      what a log's files are to become, from its plan and its configuration
    make_view_job what a compacted view is made from
    run_worker    the process, as a stream of messages; leaving the stream kills it
    Cleaner       carries a job through: each replacement goes into the log as it is reported

The log lives on meanwhile.  If segments that a replacement was made from are gone by the time it is
ready (retention took them), it is thrown away; the others still count.  If the log was cut none does:
what superseded a record may be gone.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import anabranch
from anabranch.base.disk import Disk
from anabranch.base.errors import Unavailable
from anabranch.base.processes import Processes
from anabranch.log import compaction_swap
from anabranch.log.compacted import CompactedLog
from anabranch.log.compaction import Job, Summary
from anabranch.log.compaction_plan import Plan
from anabranch.log.compaction_view import VIEW, ViewJob
from anabranch.log.config_broker import CleanerConfig
from anabranch.log.local_log import LocalLog
from anabranch.log.segment import Segment
from anabranch.log.validation import unpacked_limit

log = logging.getLogger(__name__)

Message = dict[str, Any]
Worker = Callable[["Job | ViewJob"], AsyncGenerator[Message, None]]
"""Does a job, and says how far it is."""

_SOURCE = Path(anabranch.__file__).parents[1]


def make_job(opened: LocalLog, plan: Plan, cleaner: CleanerConfig, now_ms: int) -> Job:
    """The job that carries out `plan`; several run beside each other share what the cleaner may use.

    DiskFull or OSError if the files do not tell what was aborted: the worker would take it for committed.
    """
    opened.active.aborted.settle()
    config = opened.config
    bases = [segment.base_offset for segment in opened.segments]
    return Job(
        folder=str(opened.folder),
        bases=[base for base in bases if base < plan.end],
        later_bases=[base for base in bases if base >= plan.end],
        first_dirty=plan.first_dirty,
        end=plan.end,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        unpacked_limit_bytes=unpacked_limit(config),
        dedupe_bytes=cleaner.dedupe_buffer_bytes // cleaner.threads,
        io_bytes_per_second=cleaner.io_max_bytes_per_second / cleaner.threads,
        producers=[(known.producer_id, known.last_offset, known.epoch) for known in opened.producers],
    )


def make_view_job(
    opened: LocalLog,
    view: CompactedLog | None,
    target: Path,
    end: int,
    cleaner: CleanerConfig,
    *,
    keeps_keyless: bool,
) -> ViewJob:
    """The job that makes a view of a log up to `end` in the folder `target`, from the one there is.

    DiskFull or OSError as `make_job`.
    """
    opened.active.aborted.settle()
    config = opened.config
    start = opened.log_start if view is None else max(view.horizon, opened.log_start)
    dirty = [segment for segment in opened.segments if segment.end_offset > start]
    return ViewJob(
        folder=str(opened.folder),
        bases=[segment.base_offset for segment in dirty if segment.base_offset < end],
        later_bases=[segment.base_offset for segment in dirty if segment.base_offset >= end],
        view="" if view is None else str(view.folder),
        view_bases=[] if view is None else view.bases,
        target=str(target),
        first_dirty=start,
        end=end,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        unpacked_limit_bytes=unpacked_limit(config),
        dedupe_bytes=cleaner.dedupe_buffer_bytes // cleaner.threads,
        io_bytes_per_second=cleaner.io_max_bytes_per_second / cleaner.threads,
        keeps_keyless=keeps_keyless,
    )


async def run_worker(processes: Processes, job: Job | ViewJob) -> AsyncGenerator[Message, None]:
    """What the worker says, line by line.  Unavailable if it ends without a last word."""
    import json  # most brokers never compact anything

    path = os.pathsep.join(filter(None, (str(_SOURCE), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "anabranch.log.compaction_worker"]
    if isinstance(job, ViewJob):
        command.append(VIEW)
    process = await processes.start(command, variables={"PYTHONPATH": path})
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(json.dumps(job._asdict()).encode() + b"\n")
        with suppress(ConnectionError):  # it died already, which its silence will tell
            await process.stdin.drain()
        async for line in process.stdout:
            message: Message = json.loads(line)
            yield message
            if "done" in message or "failed" in message:
                return
        said = (await process.stderr.read()).decode(errors="replace").strip()
        raise Unavailable(f"{Path(job.folder).name}: compaction died: {said or await process.wait()}")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        process.stdin.close()
        await process.wait()


class Cleaner:
    def __init__(
        self,
        disk: Disk,
        threads: Executor,
        worker: Worker,
    ) -> None:
        self._disk = disk
        self._threads = threads
        self._worker = worker
        # Replacements that count, for the next start to finish.
        self._half_done: set[tuple[Path, int]] = set()

    async def clean(self, opened: LocalLog, job: Job, replaced: Callable[[list[Segment]], None]) -> Summary:
        """Do a job.  `replaced` gets the segments that are in the log no more, their files `.deleted`."""
        segments = {segment.base_offset: segment for segment in opened.segments}
        cuts = opened.cuts
        try:
            async with aclosing(self._worker(job)) as messages:
                async for message in messages:
                    if opened.cuts != cuts:
                        break
                    if "replaced" in message:
                        old = [segments[base] for base in message["replaced"]]
                        if await self._put_in_place(opened, old, cuts):
                            replaced(old)
                    elif "done" in message:
                        return Summary(**message["done"])
                    else:
                        raise Unavailable(f"{Path(job.folder).name}: compaction failed: {message['failed']}")
        finally:
            for base in job.bases:
                if (opened.folder, base) not in self._half_done:
                    compaction_swap.discard(self._disk, opened.folder, base)
        name = Path(job.folder).name
        if opened.cuts != cuts:
            raise Unavailable(f"{name}: the log was cut while it was compacted")
        raise Unavailable(f"{name}: compaction ended without a result")

    async def _put_in_place(self, opened: LocalLog, old: list[Segment], cuts: int) -> bool:
        base = old[0].base_offset
        if _all_there(opened, old):
            await _to_its_end(
                asyncio.get_running_loop().run_in_executor(
                    self._threads, compaction_swap.promote, self._disk, opened.folder, base
                )
            )
            if opened.cuts == cuts and _all_there(opened, old):
                try:
                    compaction_swap.swap_in(self._disk, opened, old)
                except OSError:  # files of `old` may be out of the way, to be removed at the next start
                    self._half_done.add((opened.folder, base))
                    raise
                return True
        log.info("%s: compaction from offset %d on is discarded, its segments are gone", opened.name, base)
        compaction_swap.discard(self._disk, opened.folder, base)
        return False


async def _to_its_end(work: "asyncio.Future[None]") -> None:
    """Wait for a thread even if cancelled: what it renames must not be removed beside it."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def _all_there(opened: LocalLog, segments: list[Segment]) -> bool:
    present = {id(segment) for segment in opened.segments}
    return all(id(segment) in present for segment in segments)
