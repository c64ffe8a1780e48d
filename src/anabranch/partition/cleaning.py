"""Compaction over all partitions: the dirtiest first, only where there is something to clean.

A compacted log becomes a candidate when it was written to, when it is reconfigured, and when time
makes more of it cleanable; the last is known beforehand.  A round looks at the candidates and at no
other log.  What is due is cleaned, `log.cleaner.threads` logs at a time, each by a worker process.

Where each log's cleaning ended is kept in `cleaner-offset-checkpoint`.  A log that cannot be cleaned is
tried again later, and later each time; the others do not wait for it.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from anabranch.base.backoff import Backoffs
from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError
from anabranch.base.ids import id_text
from anabranch.log.checkpoints import CLEANER_POINTS, read_offsets, write_offsets
from anabranch.log.cleaner import Cleaner, make_job
from anabranch.log.compaction import Summary
from anabranch.log.compaction_plan import Plan, first_dirty_of, plan
from anabranch.log.config_broker import CleanerConfig
from anabranch.log.glance import Glance
from anabranch.log.segment import Segment
from anabranch.partition.due import DueTimes
from anabranch.partition.host import PartitionHost
from anabranch.partition.replica import Replica
from anabranch.partition.served_topic import ServedTopic

log = logging.getLogger(__name__)

COMPACT = "compact"
_FIRST_RETRY_MS = 15_000
_MOST_RETRY_MS = 3_600_000

Place = tuple[ServedTopic, int]


class Cleaning:
    def __init__(
        self, host: PartitionHost, disk: Disk, clock: Clock, cleaner: Cleaner, saving: Executor
    ) -> None:
        """`saving` is a single thread: two logs may be done at the same time."""
        self._host = host
        self._disk = disk
        self._clock = clock
        self._saving = saving
        self._cleaner = cleaner
        self._points = read_offsets(disk, host.data / CLEANER_POINTS)
        self._candidates: set[Replica] = set()
        self._due: DueTimes[Replica | Place] = DueTimes()
        self._backoff: Backoffs[Replica | Place] = Backoffs(_FIRST_RETRY_MS, _MOST_RETRY_MS)
        self._unreadable: dict[Replica, int] = {}  # batches that were said to be
        self._running: dict[Replica, asyncio.Task[None]] = {}
        self.on_replaced: Callable[[Replica, list[Segment]], None] = lambda replica, segments: None

    # --- what there is to know

    def touched(self, replica: Replica) -> None:
        """Something was appended or configured."""
        if COMPACT in replica.config.cleanup_policy and replica not in self._backoff:
            self._candidates.add(replica)

    def glanced(self, topic: ServedTopic, index: int, seen: Glance) -> None:
        """A log that is not open: open it in the next round if there is anything to clean in it."""
        cleaned_to = self._points.get(topic.key(index), 0)
        if COMPACT in topic.config.cleanup_policy and cleaned_to < seen.bases[-1]:
            self._due.at((topic, index), self._clock.now_ms())

    def truncated(self, replica: Replica) -> None:
        """The log was cut: what was cleaned beyond its end is to be cleaned again."""
        if replica.key in self._points:
            self._points[replica.key] = min(self._points[replica.key], replica.log.log_end)

    def forget(self, replica: Replica) -> None:
        """It is gone from this broker."""
        self._candidates.discard(replica)
        self._backoff.worked(replica)
        self._unreadable.pop(replica, None)
        self._due.cancel(replica)
        self._points.pop(replica.key, None)
        running = self._running.get(replica)
        if running is not None:
            running.cancel()

    # --- rounds

    async def round(self, cleaner: CleanerConfig) -> None:
        """Clean until nothing is due any more."""
        if not cleaner.enable:
            return
        try:
            while True:
                for replica, planned in self._dirtiest(cleaner.threads - len(self._running)):
                    work = self._clean(replica, planned, cleaner)
                    self._running[replica] = asyncio.create_task(work)
                if not self._running:
                    return
                await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
                for replica in [p for p, task in self._running.items() if task.done()]:
                    del self._running[replica]
        finally:
            tasks = list(self._running.values())
            self._running.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _dirtiest(self, count: int) -> list[tuple[Replica, Plan]]:
        """At most `count` logs that are due; the others that are stay candidates."""
        for place in self._due.pop(self._clock.now_ms()):
            try:
                replica = self._open(place)
            except (AnabranchError, OSError) as error:
                self._failed(place, error)
                continue
            if replica is not place:
                self._backoff.worked(place)
            if replica is not None:
                self._candidates.add(replica)
        due: list[tuple[Replica, Plan]] = []
        for replica in self._candidates - self._running.keys():
            try:
                planned = self._plan(replica)
            except (AnabranchError, OSError) as error:
                self._candidates.discard(replica)
                self._failed(replica, error)
                continue
            if planned is not None and planned.is_due:
                due.append((replica, planned))
                continue
            self._candidates.discard(replica)
            self._backoff.worked(replica)
            if planned is not None and planned.next_ms is not None:
                self._due.at(replica, planned.next_ms)
        due.sort(key=lambda each: each[1].dirty_ratio, reverse=True)
        return due[:count]

    def _plan(self, replica: Replica) -> Plan | None:
        opened = replica.log
        if replica.is_closed or COMPACT not in opened.config.cleanup_policy:
            return None
        return plan(
            opened.segments,
            opened.config,
            first_dirty=first_dirty_of(self._points.get(replica.key), opened.log_start, opened.log_end),
            last_stable=replica.last_stable,
            now_ms=self._clock.now_ms(),
            first_timestamp=lambda i: _first_timestamp(opened.segments[i]),
        )

    async def _clean(self, replica: Replica, planned: Plan, cleaner: CleanerConfig) -> None:
        opened = replica.log
        started = self._clock.monotonic()
        self._candidates.discard(replica)
        try:
            summary = await self._cleaner.clean(
                opened,
                make_job(opened, planned, cleaner, self._clock.now_ms()),
                lambda segments: self.on_replaced(replica, segments),
            )
        except (AnabranchError, OSError) as error:
            self._failed(replica, error)
            return
        self._backoff.worked(replica)
        self._say(replica, summary, self._clock.monotonic() - started)
        if not replica.is_closed:
            self._points[replica.key] = summary.cleaned_to
            self._candidates.add(replica)
            try:
                await self.save_points()
            except (AnabranchError, OSError) as error:  # after a restart it is cleaned again
                log.warning("%s: it is cleaned again after a restart: %s", replica, error)

    def _failed(self, place: Replica | Place, error: Exception) -> None:
        """Try again, later each time."""
        retry_ms = self._backoff.failed(place)
        self._due.at(place, self._clock.now_ms() + retry_ms)
        name = place if isinstance(place, Replica) else f"{place[0].name.kafka}-{place[1]}"
        log.error("%s: compaction failed, next try in %d s: %s", name, retry_ms // 1000, error)

    async def save_points(self) -> None:
        served = {id_text(topic.topic_id) for topic in self._host.topics()}
        self._points = {key: offset for key, offset in self._points.items() if key[0] in served}
        path = self._host.data / CLEANER_POINTS
        await asyncio.get_running_loop().run_in_executor(
            self._saving, write_offsets, self._disk, path, dict(self._points)
        )

    def _open(self, place: Replica | Place) -> Replica | None:
        if isinstance(place, Replica):
            return place
        topic, index = place
        served = self._host.topic_by_id(topic.topic_id) is topic
        return self._host.replica_of(topic, index) if served else None

    def _say(self, replica: Replica, summary: Summary, seconds: float) -> None:
        log.info(
            "%s: compacted up to %d, %d keys, %d bytes read, %d written, %.1f s",
            replica,
            summary.cleaned_to,
            summary.keys,
            summary.read_bytes,
            summary.written_bytes,
            seconds,
        )
        if summary.unreadable and self._unreadable.get(replica) != summary.unreadable:
            self._unreadable[replica] = summary.unreadable
            log.warning("%s: %d batches cannot be read and stay as they are", replica, summary.unreadable)
        if summary.keyless:
            log.warning("%s: %d records had no key and are gone", replica, summary.keyless)


def _first_timestamp(segment: Segment) -> int:
    first = next(segment.batches(), None)
    return -1 if first is None else first.header.max_timestamp
