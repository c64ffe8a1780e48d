"""Retention over all partitions, at the cost of those alone that have something to delete.

A log has to be looked at when it has grown, when it is reconfigured, and when its oldest segment
is old enough; the last is known beforehand.  So a round looks at the logs that were touched since the
last one and at those that are due, and at no others, whether there are ten or ten thousand.

Logs that nobody has opened age too.  After the start, and when their topic's configuration changes,
they are glanced at from outside (`log/glance.py`); one from which something is to go is opened.

What a durable subscription has still to read is held (`hold`), and looked at every round while it is; so is
what a compacted view has not taken up yet, or it would have what is superseded there as the last of a key.

A log that fails is tried again later, and later each time; the others do not wait for it.  On a full
disk that is what frees room at all: a log that would have to roll first cannot be trimmed then.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from anabranch.base.backoff import Backoffs
from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError
from anabranch.log.checkpoints import LOG_STARTS
from anabranch.log.config import LogConfig
from anabranch.log.glance import Glance, glance
from anabranch.log.retention import judge
from anabranch.log.segment import Segment
from anabranch.partition.due import DueTimes
from anabranch.partition.folders import partition_folder
from anabranch.partition.host import PartitionHost
from anabranch.partition.replica import Replica
from anabranch.partition.served_topic import ServedTopic

log = logging.getLogger(__name__)

SLICE = 32
"""Partitions between two yields to the loop."""

_BREATH_S = 0.01  # between two slices of glances, which are Python in a thread and hold the GIL

_FIRST_RETRY_MS = 15_000
_MOST_RETRY_MS = 300_000

Place = tuple[ServedTopic, int]
Hold = Callable[[str, int], int | None]
"""Of a partition the offset from which on nothing is too old or too much, None if there is none."""


class Aging:
    def __init__(self, host: PartitionHost, disk: Disk, clock: Clock, threads: Executor) -> None:
        self._host = host
        self._disk = disk
        self._clock = clock
        self._threads = threads
        self._touched: set[Replica] = set()
        self._due: DueTimes[Replica | Place] = DueTimes()
        self._configs: dict[ServedTopic, LogConfig] = {}
        self._backoff: Backoffs[Replica | Place] = Backoffs(_FIRST_RETRY_MS, _MOST_RETRY_MS)
        self._warned: set[Replica] = set()
        self.hold: Hold = lambda topic, index: None
        self.on_dropped: Callable[[Replica, list[Segment]], None] = lambda replica, segments: None
        self.on_glance: Callable[[ServedTopic, int, Glance], None] = lambda topic, index, seen: None

    def touched(self, replica: Replica) -> None:
        """Something was appended, trimmed or configured."""
        self._touched.add(replica)

    def forget(self, replica: Replica) -> None:
        self._touched.discard(replica)
        self._warned.discard(replica)
        self._due.cancel(replica)
        self._backoff.worked(replica)

    async def round(self) -> None:
        """Drop everything that is to go by now."""
        await self._glance_at(self._unopened_with_news())
        places = dict.fromkeys(self._due.pop(self._clock.now_ms())) | dict.fromkeys(sorted(self._touched))
        self._touched = set()
        for i, place in enumerate(places):
            self._see_to(place)
            if i % SLICE == SLICE - 1:
                await asyncio.sleep(0)

    # --- one log

    def _see_to(self, place: "Replica | Place") -> None:
        try:
            replica = self._opened(place)
            if replica is not None and not replica.is_closed:
                self.check(replica)
        except (AnabranchError, OSError) as error:
            self._failed(place, error)
        else:
            self._backoff.worked(place)

    def _failed(self, place: "Replica | Place", error: Exception) -> None:
        retry_ms = self._backoff.failed(place)
        self._due.at(place, self._clock.now_ms() + retry_ms)
        log.error(
            "%s: retention failed, next try in %d s: %s", self._folder(place).name, retry_ms // 1000, error
        )

    def _folder(self, place: "Replica | Place") -> Path:
        if isinstance(place, Replica):
            return place.log.folder
        topic, index = place
        return partition_folder(self._host.data, topic.name, index)

    def check(self, replica: Replica) -> None:
        """Drop what is to go of one log."""
        opened = replica.log
        segments = opened.segments
        verdict = judge(
            segments,
            opened.config,
            log_start=opened.log_start,
            high_watermark=replica.high_watermark,
            now_ms=self._clock.now_ms(),
            modified_ms=lambda i: self._disk.modified_ms(segments[i].file.path),
            hold=_first(
                self.hold(replica.topic.kafka, replica.index),
                None if opened.view is None else opened.view.horizon,
            ),
        )
        if verdict.next_ms is None:
            self._due.cancel(replica)
        else:
            self._due.at(replica, verdict.next_ms)
        if verdict.future_ms is not None and replica not in self._warned:
            self._warned.add(replica)
            log.warning(
                "%s: holds a timestamp in the future, %d; retention waits for that time",
                opened.name,
                verdict.future_ms,
            )
        if verdict.total:
            self._drop(replica, segments[: verdict.total])
            log.info(
                "%s: retention deleted %d segments (log start %d, size %d, time %d), it starts at %d now",
                opened.name,
                verdict.total,
                verdict.by_log_start,
                verdict.by_size,
                verdict.by_time,
                opened.log_start,
            )

    def _drop(self, replica: Replica, dropped: list[Segment]) -> None:
        """Sealed segments first: a full disk may refuse the roll that dropping the active one needs."""
        opened = replica.log
        sealed = [segment for segment in dropped if segment is not opened.active]
        for part in (sealed, dropped[len(sealed) :]):
            if part:
                opened.advance_start(part[-1].end_offset)
                try:
                    opened.drop(part)
                finally:
                    left = {id(segment) for segment in opened.segments}
                    self.on_dropped(replica, [segment for segment in part if id(segment) not in left])

    # --- logs that are not open

    def _unopened_with_news(self) -> list[Place]:
        """Partitions to glance at: those of a topic that is new here, or reconfigured."""
        places: list[Place] = []
        configs: dict[ServedTopic, LogConfig] = {}
        for topic in self._host.topics():
            configs[topic] = topic.config
            if self._configs.get(topic) is not topic.config:
                places += [(topic, i) for i, opened in enumerate(topic.replicas) if opened is None]
        self._configs = configs
        return places

    async def _glance_at(self, places: list[Place]) -> None:
        if not places:
            return
        starts = self._host.checkpoints()[LOG_STARTS]
        for i in range(0, len(places), SLICE):
            part = places[i : i + SLICE]
            asked = [
                (
                    self._folder((topic, index)),
                    topic.config,
                    starts.get(topic.key(index), 0),
                    self._clock.now_ms(),
                    self.hold(topic.name.kafka, index),
                )
                for topic, index in part
            ]
            found = await asyncio.get_running_loop().run_in_executor(
                self._threads, _glance_at_all, self._disk, asked
            )
            for (topic, index), seen in zip(part, found, strict=True):
                if topic.replicas[index] is not None:
                    continue
                if isinstance(seen, Exception):
                    self._failed((topic, index), seen)
                elif seen is not None:
                    self._seen(topic, index, seen)
            if i + SLICE < len(places):
                await asyncio.sleep(_BREATH_S)

    def _seen(self, topic: ServedTopic, index: int, seen: Glance) -> None:
        if seen.verdict.total:
            self._due.at((topic, index), self._clock.now_ms())
        elif seen.verdict.next_ms is not None and not seen.verdict.is_held:  # who reads on opens it
            self._due.at((topic, index), seen.verdict.next_ms)
        self.on_glance(topic, index, seen)

    def _opened(self, place: "Replica | Place") -> Replica | None:
        """The replica at `place`, opened now if it has to be."""
        if isinstance(place, Replica):
            return place
        topic, index = place
        served = self._host.topic_by_id(topic.topic_id) is topic
        return self._host.replica_of(topic, index) if served else None


def _first(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)


def _glance_at_all(
    disk: Disk, asked: list[tuple[Path, LogConfig, int, int, int | None]]
) -> list[Glance | AnabranchError | OSError | None]:
    """What each of them looks like, or why that cannot be said.  Runs in a thread."""
    found: list[Glance | AnabranchError | OSError | None] = []
    for each in asked:
        try:
            found.append(glance(disk, *each))
        except (AnabranchError, OSError) as error:
            found.append(error)
    return found
