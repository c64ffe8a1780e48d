"""Log upkeep: flushing, retention, compaction, checkpoints and removal, apart from the appends.

    look        every second, at the logs that were touched since: sealed segments are synced, flush.ms
                is kept, and whoever else has to know is told
    retention   every log.retention.check.interval.ms, at logs that were touched or are old enough now
    cleaning    compaction, every log.cleaner.backoff.ms while there is something to clean
    points      recovery points, log starts and high watermarks are written down, if any has moved
    producers   every producer.id.expiration.check.interval.ms, ids that were silent for too long go
    removal     files that no reader is in any more
    strays      folders that no topic has any more, at the start and once a day; so are those of deleted
                topics that an earlier run had no time for

An append marks its replica as touched (`PartitionHost.touched`), and that is all it does.  So the cost
grows with what is written, not with what is there, and an idle broker wakes once a second to find an empty
set.

A round that fails is logged and tried again, later each time.  A disk that fails to sync is another
matter: `run` ends with DiskFailed and takes the node with it, since acknowledged records may be gone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from anabranch.base.backoff import Backoff
from anabranch.base.clock import Clock
from anabranch.base.config import LONG_MAX
from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError, DiskFailed, DiskFull, Unavailable
from anabranch.base.executors import Executors
from anabranch.base.seldom import Seldom
from anabranch.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, write_offsets
from anabranch.log.cleaner import Cleaner, Worker
from anabranch.log.config import LogConfig
from anabranch.log.config_broker import CleanerConfig, ProducerStateConfig, UpkeepConfig
from anabranch.log.glance import Glance
from anabranch.log.segment import Segment
from anabranch.partition.aging import SLICE, Aging, Hold
from anabranch.partition.cleaning import Cleaning
from anabranch.partition.due import DueTimes
from anabranch.partition.folders import DELETED_FOLDERS
from anabranch.partition.host import PartitionHost
from anabranch.partition.removal import Removal
from anabranch.partition.replica import Replica
from anabranch.partition.served_topic import ServedTopic
from anabranch.partition.strays import outdated, stored_partitions

log = logging.getLogger(__name__)
_trouble = Seldom(log, 10.0)

_LOOK_MS = 1000
_STRAYS_MS = 86_400_000
_LEAST_LOOK_MS = 10
_SHORTEST_WAIT_S = 0.01  # an interval of 0 is legal, and no reason to take a core
_LONGEST_WAIT_S = 86_400.0
_THREADS = 2
_FIRST_RETRY_S = 1.0
_MOST_RETRY_S = 300.0


class Sections(Protocol):
    """The parts of a broker's configuration that upkeep goes by."""

    @property
    def upkeep(self) -> UpkeepConfig: ...

    @property
    def cleaner(self) -> CleanerConfig: ...

    @property
    def producers(self) -> ProducerStateConfig: ...

    @property
    def log(self) -> LogConfig: ...


class Configuration(Protocol):
    @property
    def current(self) -> Sections: ...


class Upkeep:
    def __init__(
        self,
        host: PartitionHost,
        disk: Disk,
        clock: Clock,
        config: Configuration,
        executors: Executors,
        worker: Worker,
    ) -> None:
        """`worker` compacts, and `executors` makes the pools for all else that blocks."""
        self._host = host
        self._disk = disk
        self._clock = clock
        self._config = config
        self._threads = executors("upkeep", _THREADS)
        # One: no checkpoint is written twice at a time, and the last one to be asked for is what stays.
        self._saving_thread = executors("checkpoint", 1)
        self._prompt: dict[Replica, int] = {}  # flush.ms of the logs that have one
        self._flush_due: DueTimes[Replica] = DueTimes()
        self._syncing: dict[Replica, asyncio.Task[None]] = {}
        self._moved: set[str] = set()  # the checkpoints that are to be written down
        self._cut: set[Replica] = set()  # whose logs were cut, which is not written down yet
        self._noting: asyncio.Future[None] | None = None  # of what is cut now, unless that has begun
        self.flusher = host.flusher
        self._removal = Removal(disk, clock, self._threads)
        self._aging = Aging(host, disk, clock, self._threads)
        self._cleaning = Cleaning(
            host, disk, clock, Cleaner(disk, self._threads, worker), self._saving_thread
        )
        self._aging.on_dropped = self._dropped
        self._aging.on_glance = self._glanced
        self._cleaning.on_replaced = self._dropped
        host.on_close = self._closed
        host.on_removed = self._removed

    def hold_back(self, hold: Hold) -> None:
        """Retention is to leave what `hold` says, of topics that may be opened already."""
        self._aging.hold = hold

    def retain(self, replica: Replica) -> None:
        """Let go now of what retention does not keep, and not at the next look."""
        self._aging.check(replica)

    async def run(self) -> None:
        """Look after the logs until cancelled.  DiskFailed if a log may have lost records."""
        failure = asyncio.get_running_loop().create_future()
        self.flusher.on_failure = lambda opened, error: _fail(failure, error)
        first_ms = self._config.current.upkeep.initial_task_delay_ms

        def save(name: str) -> Callable[[], Awaitable[None]]:
            return lambda: self._save(name)

        tasks = [
            asyncio.create_task(_repeat(name, work, interval_ms, wait_ms))
            for name, work, interval_ms, wait_ms in (
                ("looking after logs", self.look, self._look_ms, 0),
                ("retention", self._aging.round, lambda: self._told.retention_check_interval_ms, first_ms),
                ("compaction", self._clean, lambda: self._config.current.cleaner.backoff_ms, 0),
                ("removing files", self._removal.round, lambda: _LOOK_MS, 0),
                ("writing down recovery points", save(RECOVERY_POINTS), self._points_ms, first_ms),
                ("writing down log starts", save(LOG_STARTS), self._starts_ms, first_ms),
                ("writing down high watermarks", save(HIGH_WATERMARKS), self._watermarks_ms, first_ms),
                ("moving aside what no topic has", self._move_strays, lambda: _STRAYS_MS, 0),
                ("removing deleted topics", self._remove_deleted_folders, lambda: _STRAYS_MS, 0),
                ("expiring producers", self._expire_producers, self._producers_ms, first_ms),
            )
        ]
        try:
            await failure
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> bool:
        """Make every log durable and write down that it is; whether every log is.

        DiskFailed if one may have lost records.
        """
        try:
            durable = await self._flush_all()
            if self.flusher.has_failed:
                raise DiskFailed("a log may have lost records, the stop is not a clean one")
            self._moved |= {RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS}
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
                try:
                    await self._save(name)
                except (AnabranchError, OSError) as error:
                    log.warning(
                        "a checkpoint could not be stored, the next start reads the logs instead: %s", error
                    )
            await asyncio.gather(*self._syncing.values())
            return durable
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let the threads go, and leave the logs as they are."""
        self.flusher.close()
        for threads in (self._threads, self._saving_thread):
            threads.shutdown()

    async def _flush_all(self) -> bool:
        flushes = [
            self.flusher.flush(replica.log, replica.log.log_end)
            for replica in self._host.open_replicas()
            if replica.log.log_end > replica.log.recovery_point
        ]
        durable = True
        for result in await asyncio.gather(*flushes, return_exceptions=True):
            if isinstance(result, Unavailable):
                log.warning("%s", result)
                durable = False
            elif result is not None:
                raise result
        return durable

    # --- what the host tells

    def _closed(self, replica: Replica) -> None:
        self._host.touched.discard(replica)
        self._cut.discard(replica)
        self._prompt.pop(replica, None)
        self._flush_due.cancel(replica)
        self._aging.forget(replica)
        self._cleaning.forget(replica)
        syncing = self._syncing.pop(replica, None)
        if syncing is not None:
            syncing.cancel()
        self.flusher.forget(replica.log)
        self._moved |= {RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS}

    def _removed(self, folder: Path) -> None:
        self._removal.folder(folder, self._config.current.log.file_delete_delay_ms)

    def _dropped(self, replica: Replica, segments: list[Segment]) -> None:
        for segment in segments:
            self._removal.segment(segment, replica.config.file_delete_delay_ms)
        self._moved.add(LOG_STARTS)

    def _glanced(self, topic: ServedTopic, index: int, seen: Glance) -> None:
        """What a log that nobody has opened looks like."""
        self._removal.leftovers(seen.leftovers)
        self._cleaning.glanced(topic, index, seen)

    async def truncated(self, replica: Replica, segments: list[Segment]) -> None:
        """A log was cut: its recovery point went down, which is written before anything is appended.

        If that fails it is to be asked for again, with no segments.
        """
        self._cut.add(replica)
        self._dropped(replica, segments)
        self._cleaning.truncated(replica)
        if self._noting is None:
            self._noting = asyncio.ensure_future(self._note_cuts())
        await asyncio.shield(self._noting)

    async def _note_cuts(self) -> None:
        """Write down what was cut by now, all at once: after an election that may be half of all logs."""
        await asyncio.sleep(0)
        self._noting = None
        noted = {replica: replica.log.cuts for replica in self._cut}
        try:
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
                self._moved.add(name)  # one by one: a round that is at it may fail
                await self._save(name)
        except (DiskFull, OSError) as error:
            self._disk.handles.on_refusal(error)
            raise
        for replica, cuts in noted.items():
            if replica.log.cuts == cuts:
                replica.is_cut = False
                self._cut.discard(replica)

    async def _settle(self, replica: Replica) -> None:
        """Finish a cut, and write it down: until then nobody leads here, and nothing is appended."""
        try:
            await self.truncated(replica, replica.finish_cut(self._disk))
        except (AnabranchError, OSError) as error:
            _trouble.warning("%s: its log could not be cut, tried again soon: %s", replica, error)
            self._host.touched.add(replica)

    async def _remove_deleted_folders(self) -> None:
        """What the last run had no time for."""
        folder = self._host.data / DELETED_FOLDERS
        if self._disk.exists(folder):
            for name in self._disk.list(folder):
                self._removed(folder / name)

    async def _move_strays(self) -> None:
        """Folders of topics that are gone: the deletion was cut off, or the disk refused to move them."""
        threads, data = self._threads, self._host.data
        found = await asyncio.get_running_loop().run_in_executor(threads, stored_partitions, self._disk, data)
        if found and not self._host.topics():
            log.warning(
                "data folder %s: no topic is known, but partitions are there; nothing is removed", data
            )
            return
        for i, stored in enumerate(found):
            self._host.move_stray(stored)
            if i % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        for folder in outdated(self._disk, data, self._clock.now_ms()):
            self._removal.folder(folder, 0)

    # --- logs that were touched

    async def look(self) -> None:
        """See to what was touched since the last time, and to flushes that are due."""
        touched = sorted(self._host.touched)
        self._host.touched.clear()
        settling: list[asyncio.Task[None]] = []
        for i, replica in enumerate(touched):
            if not replica.is_closed:
                self._look_at(replica)
                if not replica.is_settled:
                    settling.append(asyncio.ensure_future(self._settle(replica)))
                    await asyncio.sleep(0)
            if i % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        for replica in self._flush_due.pop(self._now_ms()):
            self._sync(replica, replica.log.log_end)
        await asyncio.gather(*settling)

    def _look_at(self, replica: Replica) -> None:
        opened = replica.log
        flush_ms = opened.config.flush_ms
        if flush_ms < LONG_MAX:
            self._prompt[replica] = flush_ms
            if opened.log_end > opened.recovery_point and replica not in self._flush_due:
                # It may have waited for this look already.
                self._flush_due.at(replica, self._now_ms() + max(0, flush_ms - self._look_ms()))
        else:
            self._prompt.pop(replica, None)
            self._flush_due.cancel(replica)
        if opened.active.base_offset > opened.recovery_point:
            self._sync(replica, opened.active.base_offset)
        self._aging.touched(replica)
        self._cleaning.touched(replica)
        self._moved |= {LOG_STARTS, HIGH_WATERMARKS}

    def _look_ms(self) -> int:
        """How long to wait between looks: half the shortest flush.ms, but at most a second."""
        shortest = min(self._prompt.values(), default=2 * _LOOK_MS)
        return max(_LEAST_LOOK_MS, min(_LOOK_MS, shortest // 2))

    def _sync(self, replica: Replica, up_to: int) -> None:
        """Make a log durable in the background."""
        if replica not in self._syncing:
            self._syncing[replica] = asyncio.create_task(self._synced(replica, up_to))

    async def _synced(self, replica: Replica, up_to: int) -> None:
        try:
            await self.flusher.flush(replica.log, up_to)
            self._moved.add(RECOVERY_POINTS)
        except DiskFailed:
            return  # told already, and `run` has ended
        except Unavailable as error:
            log.warning("%s", error)
            self._host.touched.add(replica)
        finally:
            self._syncing.pop(replica, None)

    # --- rounds

    async def _save(self, name: str) -> None:
        """Write a checkpoint, if anything in it has moved."""
        if name not in self._moved:
            return
        self._moved.discard(name)  # before: what moves meanwhile is for the next round
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._saving_thread,
                write_offsets,
                self._disk,
                self._host.data / name,
                dict(self._host.checkpoints()[name]),
            )
        except BaseException:
            self._moved.add(name)
            raise

    async def _clean(self) -> None:
        await self._cleaning.round(self._config.current.cleaner)

    async def _expire_producers(self) -> None:
        oldest_ms = self._clock.now_ms() - self._config.current.producers.expiration_ms
        for i, replica in enumerate(list(self._host.open_replicas())):
            if len(replica.log.producers):
                replica.log.producers.expire(oldest_ms)
            if i % SLICE == SLICE - 1:
                await asyncio.sleep(0)

    @property
    def _told(self) -> UpkeepConfig:
        return self._config.current.upkeep

    def _points_ms(self) -> int:
        return self._told.flush_offset_checkpoint_interval_ms

    def _starts_ms(self) -> int:
        return self._told.flush_start_offset_checkpoint_interval_ms

    def _watermarks_ms(self) -> int:
        return self._told.high_watermark_checkpoint_interval_ms

    def _producers_ms(self) -> int:
        return self._config.current.producers.expiration_check_interval_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


async def _repeat(
    name: str, work: Callable[[], Awaitable[None]], interval_ms: Callable[[], int], first_ms: int
) -> None:
    """Do `work` again and again.  What fails is said and tried again, later each time."""
    wait_s, backoff = first_ms / 1000, Backoff(_FIRST_RETRY_S, _MOST_RETRY_S)
    while True:
        await asyncio.sleep(min(max(wait_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S))
        try:
            await work()
        except Exception as error:
            expected = isinstance(error, AnabranchError | OSError)
            wait_s = backoff.next_s()
            log.error("%s failed, tried again in %d s: %s", name, wait_s, error, exc_info=not expected)
        else:
            wait_s = interval_ms() / 1000
            backoff.reset()


def _fail(failure: "asyncio.Future[None]", error: DiskFailed) -> None:
    if not failure.done():
        failure.set_exception(error)
