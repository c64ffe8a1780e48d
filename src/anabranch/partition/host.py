"""The partitions that this broker serves.

A topic is announced with its id, its number of partitions and its configuration; a partition's log
is opened when it is first asked for.  So a start after a clean stop costs the same with ten topics
and with ten thousand, and what nobody touches takes neither memory nor descriptors.  After an
unclean stop every log is opened, and thereby recovered, before anything is served (`recover`).

Look-ups on the produce and fetch paths are two dictionary gets and a list index.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError, InvalidTopicName, UnknownTopic
from anabranch.base.executors import Executors
from anabranch.base.ids import BrokerId, TopicName, id_text
from anabranch.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, TopicPartition, read_offsets
from anabranch.log.config import LogConfig
from anabranch.log.recovery import open_log
from anabranch.partition.folders import (
    CLEAN_STOP,
    DELETED_FOLDERS,
    TOPICS,
    claim,
    deleted_folder,
    partition_folder,
    stored_bytes,
)
from anabranch.partition.partition import Changed, Partition
from anabranch.partition.strays import KEPT_DAYS, Stored, move_aside
from anabranch.partition.translations import Translations

log = logging.getLogger(__name__)

_UNPACKING_THREADS = 2


class LogDir(NamedTuple):
    path: Path
    total_bytes: int
    usable_bytes: int


class ServedTopic:
    """A topic and those of its partitions that have been opened."""

    __slots__ = ("_id_text", "config", "ended", "leader_epoch", "name", "partitions", "topic_id")

    def __init__(self, name: TopicName, topic_id: UUID, count: int, config: LogConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.leader_epoch = 0
        self.partitions: list[Partition | None] = [None] * count
        self.ended: Collection[int] = ()  # partitions that take no more messages
        self._id_text = id_text(topic_id)

    def key(self, index: int) -> TopicPartition:
        """What a partition goes by in checkpoints."""
        return self._id_text, index


class PartitionHost:
    def __init__(self, disk: Disk, clock: Clock, data: Path, broker: BrokerId, executors: Executors) -> None:
        self._disk = disk
        self._clock = clock
        self._broker = broker
        self._by_name: dict[str, ServedTopic] = {}
        self._by_id: dict[UUID, ServedTopic] = {}
        self._marked = disk.exists(data / CLEAN_STOP)
        self._clean = self._marked or not disk.exists(data / TOPICS)
        self._recovery_points = read_offsets(disk, data / RECOVERY_POINTS)
        self._log_starts = read_offsets(disk, data / LOG_STARTS)
        self.data = data
        self.translations = Translations(executors("translate", 1))
        self._unpacking = executors("unpack", _UNPACKING_THREADS)
        self.on_open: Callable[[ServedTopic, Partition], None] = lambda topic, partition: None
        self.on_change: Changed = lambda partition: None
        self.on_close: Callable[[Partition], None] = lambda partition: None
        self.on_removed: Callable[[Path], None] = lambda folder: None

    # --- what is served

    def add_topic(self, name: TopicName, topic_id: UUID, count: int, config: LogConfig) -> None:
        topic = ServedTopic(name, topic_id, count, config)
        self._by_name[name.kafka] = topic
        self._by_id[topic_id] = topic

    def grow_topic(self, name: TopicName, count: int) -> None:
        topic = self._by_name[name.kafka]
        topic.partitions.extend([None] * (count - len(topic.partitions)))

    def configure_topic(self, name: TopicName, config: LogConfig) -> None:
        topic = self._by_name[name.kafka]
        topic.config = config
        for partition in topic.partitions:
            if partition is not None:
                partition.log.config = config
                self.on_change(partition)

    def end_partitions(self, name: TopicName, ended: Collection[int]) -> None:
        """These take no more messages, for good."""
        topic = self._by_name[name.kafka]
        topic.ended = ended
        for index, partition in enumerate(topic.partitions):
            if partition is not None and index in ended:
                partition.is_ended = True

    def remove_topic(self, name: TopicName) -> None:
        """Stop serving a topic; its folders are moved away and given to `on_removed`."""
        topic = self._by_name.pop(name.kafka)
        self._by_id.pop(topic.topic_id, None)
        for index, partition in enumerate(topic.partitions):
            if partition is not None:
                self.on_close(partition)
                partition.retire()
            self._log_starts.pop(topic.key(index), None)
            self._recovery_points.pop(topic.key(index), None)
            self._move_away(partition_folder(self.data, name, index))

    def _move_away(self, folder: Path) -> None:
        if not self._disk.exists(folder):
            return
        away = deleted_folder(self._disk, self.data)
        try:
            self._disk.make_dirs(away.parent)
            self._disk.rename(folder, away)
        except OSError as error:
            log.warning("the folder %s cannot be moved and is removed where it is: %s", folder, error)
            self._remove(folder)
        else:
            self.on_removed(away)

    def _remove(self, folder: Path) -> None:
        """Here and now: in a thread it could meet a new topic of the name."""
        try:
            self._disk.remove_tree(folder)
        except OSError as error:  # the next start, or a topic of the same name, tries again
            log.warning("the folder %s of a deleted topic stays: %s", folder, error)

    def move_stray(self, stored: Stored) -> None:
        """Move a folder aside if it is of no partition that is served."""
        topic = self._by_folder(stored)
        if topic is not None and stored.partition < len(topic.partitions):
            is_open = topic.partitions[stored.partition] is not None
            if is_open or stored.owner in (None, id_text(topic.topic_id)):
                return
        try:
            aside = move_aside(self._disk, self.data, stored.folder, self._clock.now_ms())
        except OSError as error:
            log.warning("%s belongs to no topic and cannot be moved aside: %s", stored.folder, error)
        else:
            log.warning(
                "%s belongs to no topic: it is now %s, and removed in %d days",
                stored.folder,
                aside,
                KEPT_DAYS,
            )

    def _by_folder(self, stored: Stored) -> ServedTopic | None:
        if stored.topic is not None:
            return self._by_name.get(stored.topic.kafka)
        folders = (
            (topic, partition_folder(self.data, topic.name, stored.partition))
            for topic in self._by_name.values()
        )
        return next((topic for topic, folder in folders if folder == stored.folder), None)

    # --- finding

    def topic(self, name: str) -> ServedTopic:
        """The topic that a Kafka client calls `name`."""
        found = self._by_name.get(name) or self.find(name)
        if found is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return found

    def find(self, topic: str | UUID) -> ServedTopic | None:
        """The topic that a Kafka client calls so, or whose id this is."""
        if isinstance(topic, UUID):
            return self._by_id.get(topic)
        try:
            return self._by_name.get(topic) or self._by_name.get(TopicName.from_kafka(topic).kafka)
        except InvalidTopicName:
            return None

    def topic_by_id(self, topic_id: UUID | None) -> ServedTopic | None:
        return None if topic_id is None else self._by_id.get(topic_id)

    def partition(self, topic: TopicName | str, index: int) -> Partition:
        return self.partition_of(self.topic(topic if isinstance(topic, str) else topic.kafka), index)

    def partition_of(self, topic: ServedTopic, index: int) -> Partition:
        partitions = topic.partitions
        if not 0 <= index < len(partitions):
            raise UnknownTopic(f"topic {topic.name.kafka} has no partition {index}")
        return partitions[index] or self._open(topic, index)

    def is_stored(self, topic: str, index: int) -> bool:
        """Whether the partition has a folder; one that was never asked for has none."""
        found = self._by_name.get(topic)
        return found is not None and self._disk.exists(partition_folder(self.data, found.name, index))

    def is_open(self, topic: ServedTopic | None, index: int) -> bool:
        """Whether finding this partition takes no time: its log is open, or there is none."""
        return topic is None or not 0 <= index < len(topic.partitions) or topic.partitions[index] is not None

    def open_partitions(self) -> Iterator[tuple[ServedTopic, Partition]]:
        for topic in self._by_name.values():
            for partition in topic.partitions:
                if partition is not None:
                    yield topic, partition

    def topics(self) -> list[ServedTopic]:
        return list(self._by_name.values())

    def log_dirs(self) -> list[LogDir]:
        stat = os.statvfs(self.data)
        return [LogDir(self.data, stat.f_frsize * stat.f_blocks, stat.f_frsize * stat.f_bavail)]

    def stored_bytes(self, partitions: Sequence[tuple[TopicName, int]]) -> list[int]:
        """The sizes of logs as their folders have them, opened or not.  Blocks: call it from a thread."""
        folders = [partition_folder(self.data, topic, index) for topic, index in partitions]
        return [stored_bytes(self._disk, folder) for folder in folders]

    # --- opening and closing

    def _open(self, topic: ServedTopic, index: int) -> Partition:
        folder = partition_folder(self.data, topic.name, index)
        stale = claim(self._disk, self.data, folder, topic.topic_id)
        if stale is not None:
            self.on_removed(stale)
        key = topic.key(index)
        opened = open_log(
            self._disk,
            self._clock,
            folder,
            topic.config,
            clean=self._clean,
            recovery_point=self._recovery_points.get(key, 0),
            log_start=self._log_starts.get(key, 0),
        )
        partition = Partition(
            index,
            opened,
            self._broker,
            topic.leader_epoch,
            self._clock,
            self.on_change,
            self.translations,
            self._unpacking,
        )
        partition.is_ended = index in topic.ended
        topic.partitions[index] = partition
        self.on_open(topic, partition)
        return partition

    def recover(self) -> None:
        """Open every log there is if the last stop was not a clean one.  Blocks.

        From here on only the next clean stop is one.
        """
        if not self._clean:
            log.warning("the last stop was not clean: recovering the logs in %s", self.data)
            for topic in self._by_name.values():
                for index in range(len(topic.partitions)):
                    if self._disk.exists(partition_folder(self.data, topic.name, index)):
                        self.partition_of(topic, index)
        self._clean = True
        if self._marked:
            self._disk.remove(self.data / CLEAN_STOP)
            self._disk.sync_dir(self.data)  # or a power cut would bring it back, over logs that are torn
        try:  # now, since a full disk would not let us, and deleting topics is how room is made
            self._disk.make_dirs(self.data / DELETED_FOLDERS)
        except OSError as error:
            log.warning("%s", error)

    def abandon(self) -> None:
        """The start has failed: leave things as they were found, unless a log was opened already."""
        opened = list(self.open_partitions())
        for _, partition in opened:
            for segment in partition.log.segments:
                segment.close()
        if self._marked and not opened:
            self._mark_clean()

    def close(self, *, clean: bool = True) -> None:
        """Close every log and, after a clean stop, leave the mark that says so, if the disk lets us."""
        for topic, partition in self.open_partitions():
            try:
                partition.log.close()
            except (AnabranchError, OSError) as error:
                log.warning("%s-%d could not be closed: %s", topic.name.kafka, partition.index, error)
                clean = False
        if clean:
            self._mark_clean()

    def _mark_clean(self) -> None:
        try:
            self._disk.write_whole(self.data / CLEAN_STOP, b'{"version": 0}\n')
        except (AnabranchError, OSError) as error:
            log.warning("the next start takes this stop for an unclean one: %s", error)

    def checkpoints(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Recovery points and log starts of all partitions that are served, opened or not."""
        served = {id_text(topic_id) for topic_id in self._by_id}
        for points in (self._recovery_points, self._log_starts):
            for key in [key for key in points if key[0] not in served]:
                del points[key]
        for topic, partition in self.open_partitions():
            key = topic.key(partition.index)
            self._recovery_points[key] = partition.log.recovery_point
            if partition.log.log_start > partition.log.segments[0].base_offset:
                self._log_starts[key] = partition.log.log_start
            else:
                self._log_starts.pop(key, None)
        return self._recovery_points, self._log_starts
