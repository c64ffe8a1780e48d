"""Compaction of a topic for Pulsar's readers: when it runs, how it went, the view that comes of it.

    trigger ──> waits its turn ──> a worker writes a view ──> it takes the place of the one before
                                   (again, as long as the table of keys did not hold them all)

Ordinary readers notice nothing: the view lies beside the log (`log/compaction_view.py`).  A topic is
compacted when somebody asks for it, and when more has come in since the last time than its rules say.

Few run at the same time, as of Kafka's compaction (`log.cleaner.threads`); others wait their turn.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import aclosing
from pathlib import Path

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError, Conflict, Unavailable
from anabranch.log.cleaner import Worker
from anabranch.log.compacted import CompactedLog, Current, let_count
from anabranch.log.compaction_view import ViewJob, ViewSummary
from anabranch.log.config_broker import CleanerConfig
from anabranch.log.paths import partition_name
from anabranch.partition.partition import Partition
from anabranch.partition.places import size_from
from anabranch.partition.views import new_view, put_view, view_job

log = logging.getLogger(__name__)

NOT_RUN, RUNNING, SUCCESS, ERROR = "NOT_RUN", "RUNNING", "SUCCESS", "ERROR"


class AlreadyCompacting(Conflict):
    """One at a time."""


class Compactor:
    """What all topics share: the workers, and threads."""

    def __init__(
        self,
        config: Callable[[], CleanerConfig],
        worker: Worker,
        threads: Executor,
    ) -> None:
        self.config = config
        self.threads = threads
        """For what takes the disk a while."""
        self._worker = worker
        self._turns = asyncio.Semaphore(config().threads)

    async def run(self, make: Callable[[], ViewJob]) -> ViewSummary:
        """Make a job, when it is its turn, and have it done."""
        async with self._turns, aclosing(self._worker(make())) as messages:
            async for message in messages:
                if "done" in message:
                    return ViewSummary(**message["done"])
                raise Unavailable(f"the compaction failed: {message['failed']}")
        raise Unavailable("the compaction ended without a result")


class Compacting:
    def __init__(
        self, full_name: str, partition: Partition, disk: Disk, clock: Clock, compactor: Compactor
    ) -> None:
        self._name = full_name
        self._partition = partition
        self._disk = disk
        self._clock = clock
        self._compactor = compactor
        self._task: asyncio.Task[None] | None = None
        self.status = NOT_RUN
        self.last_error = ""
        self.removed = 0
        """Messages that the last one left out."""
        self.succeeded_ms = self.failed_ms = self.took_ms = 0

    @property
    def view(self) -> CompactedLog | None:
        return self._partition.view

    @property
    def horizon(self) -> int:
        """The view has taken up everything below."""
        return 0 if self.view is None else self.view.horizon

    def is_due(self, threshold_bytes: int | None) -> bool:
        """Whether so much came in since the last compaction that it is time for another."""
        if not threshold_bytes or self.status == RUNNING or self.horizon >= self._partition.last_stable:
            return False
        return size_from(self._partition, self.horizon) > threshold_bytes

    def trigger(self, *, keeps_keyless: bool) -> None:
        """Begin.  AlreadyCompacting if it has begun."""
        if self.status == RUNNING:
            raise AlreadyCompacting("Compaction already in progress")
        self.status = RUNNING
        self._task = asyncio.ensure_future(self._run(keeps_keyless))

    async def stop(self) -> None:
        """The topic closes: what is under way is given up."""
        self.abandon()
        if self._task is not None:
            await asyncio.wait((self._task,))

    def abandon(self) -> None:
        """The topic is gone."""
        if self._task is not None and not self._task.cancelling():  # once: it may wait for the disk
            self._task.cancel()

    async def _run(self, keeps_keyless: bool) -> None:
        started_s = self._clock.monotonic()
        self.removed = 0
        try:
            end = self._partition.last_stable
            while self.horizon < end:
                await self._round(end, keeps_keyless)
        except asyncio.CancelledError:
            self.status = NOT_RUN
            raise
        except Exception as error:  # or it would be under way forever, and nobody could begin
            expected = isinstance(error, AnabranchError | OSError)
            log.warning(
                "%s: compaction failed, the compacted view stays as it was: %s",
                self._name,
                error,
                exc_info=not expected,
            )
            self.status, self.last_error = ERROR, str(error)
            self.failed_ms = self._clock.now_ms()
        else:
            self.status, self.last_error = SUCCESS, ""
            self.succeeded_ms = self._clock.now_ms()
        self.took_ms = int((self._clock.monotonic() - started_s) * 1000)

    async def _round(self, end: int, keeps_keyless: bool) -> None:
        partition, before = self._partition, self.view
        new = new_view(partition, self._disk)
        target = new.folder
        config = self._compactor.config
        try:
            made = await self._compactor.run(
                lambda: view_job(partition, target, end, config(), keeps_keyless=keeps_keyless)
            )
            partition.check_leads()
        except BaseException:
            self._remove(target)
            raise
        current = await self._let_count(target, made)
        try:
            view = put_view(partition, self._disk, self._clock, new, current)
        except Unavailable:
            self._remove(target)
            raise
        if before is not None:
            before.on_unused = lambda: self._unused(before)
            before.replaced()
        self.removed += made.removed
        log.info(
            "%s: compacted up to %d, %d entries of %d bytes are left",
            self._name,
            made.horizon,
            made.entries,
            view.size_bytes,
        )
        if made.unreadable:
            log.warning(
                "%s: %d batches cannot be read and stay in the compacted view", self._name, made.unreadable
            )

    async def _let_count(self, target: Path, made: ViewSummary) -> Current:
        """Waits for the disk even if cancelled, so that nothing changes any more when the topic is closed.

        What is not counted in the end goes when the log is next opened.
        """
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._compactor.threads, let_count, self._disk, target, made)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait((writing,))
            raise

    def _unused(self, view: CompactedLog) -> None:
        view.close()
        self._remove(view.folder)

    def _remove(self, folder: Path) -> None:
        """In a thread: files may be large.  What stays goes when the log is next opened."""
        asyncio.get_running_loop().run_in_executor(self._compactor.threads, _remove_tree, self._disk, folder)


def _remove_tree(disk: Disk, folder: Path) -> None:
    try:
        disk.remove_tree(folder)
    except OSError as error:
        log.warning(
            "%s: %s could not be removed, goes when the log is next opened: %s",
            partition_name(folder),
            folder.name,
            error,
        )
