"""The partitions of this broker: the replicas that it has, and of these the ones that it leads.

A topic is announced with its id, its number of partitions and its configuration; a partition's log
is opened when it is first asked for.  So a start after a clean stop costs the same with ten topics
and with ten thousand, and what nobody touches takes neither memory nor descriptors.  After an
unclean stop every log is opened, and thereby recovered, before anything is served (`recover`).

The cluster's image says what exists and who leads it (`add_topic`, `change_topic`).  A partition that
another broker leads is NotOwner, which is raised in one place (`ServedTopic.led_by`).  A leader is made when
somebody first asks for it; it resigns when the image has another one, or this one again with another epoch.

Look-ups on the produce and fetch paths are two dictionary gets and a list index.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.errors import AnabranchError, DiskFull, InvalidTopicName, UnknownTopic
from anabranch.base.executors import Executors
from anabranch.base.ids import BrokerId, TopicName, id_text
from anabranch.log.checkpoints import TopicPartition
from anabranch.log.config import LogConfig
from anabranch.log.flusher import Flusher
from anabranch.log.recovery import open_log
from anabranch.meta.image import PartitionImage, TopicImage
from anabranch.partition.folders import (
    CLEAN_STOP,
    DELETED_FOLDERS,
    TOPICS,
    claim,
    deleted_folder,
    partition_folder,
    stored_bytes,
)
from anabranch.partition.followed import Followed
from anabranch.partition.partition import Partition
from anabranch.partition.points import Points
from anabranch.partition.replica import Replica
from anabranch.partition.replication import Replication
from anabranch.partition.served_topic import ServedTopic
from anabranch.partition.strays import KEPT_DAYS, Stored, move_aside
from anabranch.partition.surroundings import Surroundings
from anabranch.partition.throttling import LEADER, is_throttled
from anabranch.partition.traffic import Traffic
from anabranch.partition.translations import Translations

log = logging.getLogger(__name__)

_UNPACKING_THREADS = 2
_SYNCING_THREADS = 4  # threads of their own: who waits for a sync does not wait for an unlink


class LogDir(NamedTuple):
    path: Path
    total_bytes: int
    usable_bytes: int


class PartitionHost:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        data: Path,
        broker: BrokerId,
        executors: Executors,
        syncing: int = _SYNCING_THREADS,
    ) -> None:
        """`syncing` is how many threads sync logs, though not fewer than a few."""
        self._disk = disk
        self._clock = clock
        self._broker = broker
        self._by_name: dict[str, ServedTopic] = {}
        self._by_id: dict[UUID, ServedTopic] = {}
        self._is_started = False
        self._marked = disk.exists(data / CLEAN_STOP)
        self._clean = self._marked or not disk.exists(data / TOPICS)
        self._points = Points(disk, data)
        self.data = data
        self.translations = Translations(executors("translate", 1))
        syncing = max(_SYNCING_THREADS, syncing)
        self.flusher = Flusher(disk, executors("sync", syncing), syncing, clock)
        self.touched: set[Replica] = set()
        """Those that were written to, trimmed or configured since somebody has looked after them."""
        self.replication = Replication(clock)
        self.traffic = Traffic()
        self._around = Surroundings(
            broker,
            clock,
            self.flusher,
            self.translations,
            self.touched,
            executors("unpack", _UNPACKING_THREADS),
            self.replication,
        )
        self.on_open: Callable[[Replica], None] = lambda replica: None
        self.on_close: Callable[[Replica], None] = lambda replica: None
        self.on_removed: Callable[[Path], None] = lambda folder: None
        self.on_elected: Callable[[ServedTopic, int], None] = lambda topic, index: None
        """This broker was elected to lead a partition, after another one or again."""
        self.on_state: Callable[[ServedTopic, PartitionImage], None] = lambda topic, state: None
        """A partition has another leader, epoch or replicas, and has several of these or had."""

    # --- what is served

    def add_topic(self, image: TopicImage, config: LogConfig) -> None:
        topic = ServedTopic(image, config)
        if not self._is_started:
            topic.outlived = self._led_before(image)
        self._by_name[image.name.kafka] = topic
        self._by_id[image.id] = topic
        for state in image.partitions:
            if len(state.replicas) > 1:
                self.on_state(topic, state)

    def _led_before(self, image: TopicImage) -> dict[int, int]:
        """What an earlier process led and this one must not in the same epoch.

        What it had not synced may be lost, and others may have it: they would take what is written in its
        place for the same.  The controller elects again when this process registers.
        """
        return {
            state.index: state.leader_epoch
            for state in image.partitions
            if state.leader == self._broker and len(state.replicas) > 1
        }

    def change_topic(self, image: TopicImage) -> None:
        """The image has something new of a topic: more partitions, other leaders, some that have ended."""
        topic = self._by_name[image.name.kafka]
        before, topic.image = topic.image, image
        added = image.partition_count - before.partition_count
        topic.partitions += [None] * added
        topic.replicas += [None] * added
        moved = [
            new
            for old, new in zip(before.partitions, image.partitions, strict=False)
            if old is not new and old != new and self._is_moved(topic, old, new)
        ]
        for state in moved:  # after all that have to have resigned
            if state.leader == self._broker:
                self.on_elected(topic, state.index)
            self.on_state(topic, state)
        for old, new in zip(before.partitions, image.partitions, strict=False):
            if old is not new and old.replicas != new.replicas and new not in moved:
                self.on_state(topic, new)
        for state in image.partitions[before.partition_count :]:
            if len(state.replicas) > 1:
                self.on_state(topic, state)
        for index in image.terminated:
            partition = topic.partitions[index]
            if partition is not None:
                partition.is_ended = True
        for old, new in zip(before.partitions, image.partitions, strict=False):
            if self._broker in old.replicas and self._broker not in new.replicas:
                log.info("%s-%d: was moved to brokers %s", topic.name.kafka, new.index, [*new.replicas])
                self._drop(topic, new.index, topic.elsewhere(new))

    def _is_moved(self, topic: ServedTopic, old: PartitionImage, new: PartitionImage) -> bool:
        """Whether there is another leader, or the same in another epoch: who leads here has resigned then."""
        partition = topic.partitions[new.index]
        if (old.leader, old.leader_epoch) == (new.leader, new.leader_epoch):
            if partition is not None:
                partition.replicas_changed(new)
            return False
        if partition is not None:
            self._resign(topic, partition, topic.elsewhere(new))
        return True

    def configure_topic(self, name: TopicName, config: LogConfig) -> None:
        topic = self._by_name[name.kafka]
        topic.config = config
        for replica in topic.replicas:
            if replica is not None:
                replica.log.config = config
                self.touched.add(replica)
                if replica.leader is not None:
                    replica.leader.replicas_changed(topic.image.partitions[replica.index])

    def remove_topic(self, name: TopicName) -> None:
        """Stop serving a topic; its folders are moved away and given to `on_removed`."""
        topic = self._by_name.pop(name.kafka)
        self._by_id.pop(topic.topic_id, None)
        for index in range(len(topic.replicas)):
            self._drop(topic, index, UnknownTopic(f"topic {name.kafka} was deleted"))

    def _drop(self, topic: ServedTopic, index: int, reason: AnabranchError) -> None:
        """Have a partition no more; its folder is moved away and given to `on_removed`."""
        partition = topic.partitions[index]
        if partition is not None:
            self._resign(topic, partition, reason)
        self._close(topic, index)
        self._move_away(partition_folder(self.data, topic.name, index))

    def _close(self, topic: ServedTopic, index: int) -> None:
        replica = topic.replicas[index]
        if replica is not None:
            topic.replicas[index] = None
            self.on_close(replica)
            replica.close()
        self._points.forget(topic.key(index))

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
        """Move a folder aside if it is of no partition that this broker has."""
        topic = self._by_folder(stored)
        if topic is not None and self.has_replica(topic, stored.partition):
            is_open = topic.replicas[stored.partition] is not None
            if is_open or stored.owner in (None, id_text(topic.topic_id)):
                return
        elif topic is not None and stored.partition < len(topic.replicas):
            self._close(topic, stored.partition)  # retention may have opened it
        try:
            aside = move_aside(self._disk, self.data, stored.folder, self._clock.now_ms())
        except OSError as error:
            log.warning("%s is of no partition here and cannot be moved aside: %s", stored.folder, error)
        else:
            log.warning(
                "%s is of no partition here: it is now %s, and removed in %d days",
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

    def partition(self, topic: TopicName | str, index: int, known_epoch: int = -1) -> Partition:
        found = self.topic(topic if isinstance(topic, str) else topic.kafka)
        return self.partition_of(found, index, known_epoch)

    def partition_of(self, topic: ServedTopic, index: int, known_epoch: int = -1) -> Partition:
        """A partition that this broker leads.  NotOwner if another one does.

        Before that, where there is a replica, FencedLeaderEpoch or UnknownLeaderEpoch if a client knows
        another epoch, `known_epoch`.
        """
        partitions = topic.partitions
        if not 0 <= index < len(partitions):
            raise UnknownTopic(f"topic {topic.name.kafka} has no partition {index}")
        found = partitions[index]
        if found is None:
            topic.check_known_epoch(self._broker, index, known_epoch)
            return self._lead(topic, index)
        if known_epoch != -1:
            found.check_leader_epoch(known_epoch)
        return found

    def followed(self, topic: ServedTopic, index: int, known_epoch: int = -1) -> Followed:
        """This broker's copy of a partition that it follows; refuses as `partition_of`."""
        return Followed(topic, self.replica(topic, index, known_epoch), self._around)

    def replica(self, topic: ServedTopic, index: int, known_epoch: int = -1) -> Replica:
        """This broker's copy of a partition, whoever leads it; refuses as `partition_of`."""
        if not 0 <= index < len(topic.partitions):
            raise UnknownTopic(f"topic {topic.name.kafka} has no partition {index}")
        if not self.has_replica(topic, index):
            raise topic.elsewhere(topic.image.partitions[index])
        topic.check_known_epoch(self._broker, index, known_epoch)
        return self.replica_of(topic, index)

    def leader_epoch(self, topic: str, index: int) -> int:
        """The epoch in which this broker leads a partition, opened or not.  NotOwner if another one does."""
        return self.topic(topic).led_by(self._broker, index).leader_epoch

    def is_unwritten(self, topic: str, index: int) -> bool:
        """Whether a partition that this broker leads is certainly empty: it has never been opened here."""
        served = self.topic(topic)
        served.led_by(self._broker, index)
        if served.replicas[index] is not None:
            return False
        return not self._disk.exists(partition_folder(self.data, served.name, index))

    def is_open(self, topic: ServedTopic | None, index: int) -> bool:
        """Whether finding this partition takes no time: its log is open, or there is none."""
        if topic is None or not 0 <= index < len(topic.replicas):
            return True
        return topic.replicas[index] is not None or not self.has_replica(topic, index)

    def is_throttled(self, partition: Partition) -> bool:
        """Whether what is sent of a partition to who is not in sync is limited."""
        topic = self._by_name.get(partition.replica.topic.kafka)
        return topic is not None and is_throttled(topic.image.config, LEADER, partition.index, self._broker)

    def open_replicas(self) -> Iterator[Replica]:
        for topic in self._by_name.values():
            for replica in topic.replicas:
                if replica is not None:
                    yield replica

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

    def has_replica(self, topic: ServedTopic, index: int) -> bool:
        """Whether this broker is to have a copy of a partition, opened or not."""
        states = topic.image.partitions
        return 0 <= index < len(states) and self._broker in states[index].replicas

    def replica_of(self, topic: ServedTopic, index: int) -> Replica:
        """This broker's copy of a partition, opened now if it has to be."""
        try:
            return topic.replicas[index] or self._open(topic, index)
        except (DiskFull, OSError) as error:
            self._disk.handles.on_refusal(error)
            raise

    def _open(self, topic: ServedTopic, index: int) -> Replica:
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
            recovery_point=self._points.recovery_points.get(key, 0),
            log_start=self._points.log_starts.get(key, 0),
        )
        replica = Replica(topic.name, index, key, opened, self._points.high_watermarks.get(key, 0))
        topic.replicas[index] = replica
        log.info("%s: log opened, offsets %d to %d", replica, opened.log_start, opened.log_end)
        self.on_open(replica)
        self.touched.add(replica)
        return replica

    # --- leading

    def _lead(self, topic: ServedTopic, index: int) -> Partition:
        state = topic.led_by(self._broker, index)
        replica = self.replica_of(topic, index)
        if not replica.is_settled:
            self.touched.add(replica)  # whoever looks after it finishes that
            raise DiskFull(f"{replica}: its log was cut, it is led once that is on the disk")
        partition = topic.partitions[index] = Partition(replica, state, self._around)
        partition.is_ended = index in topic.image.terminated
        replica.lead(partition)
        log.info(
            "%s: leader elected in epoch %d, log end %d, high watermark %d, in sync %s",
            replica,
            state.leader_epoch,
            partition.log_end,
            partition.high_watermark,
            list(state.isr),
        )
        return partition

    def _resign(self, topic: ServedTopic, partition: Partition, reason: AnabranchError) -> None:
        log.info("%s: leader of epoch %d resigned: %s", partition, partition.leader_epoch, reason)
        topic.partitions[partition.index] = None
        self.traffic.past.add(partition.counts)
        partition.replica.resign()
        partition.resign(reason)

    # --- start and stop

    def recover(self) -> None:
        """As `recovering`, in one go.  Blocks."""
        for _ in self.recovering():
            pass

    def recovering(self) -> Iterator[None]:
        """Open every log there is if the last stop was not a clean one, and yield after each.

        From here on only the next clean stop is one.  Whoever does not go on has to `abandon`.
        """
        self._is_started = True
        if not self._clean:
            log.warning("the last stop was not clean: recovering the logs in %s", self.data)
            for topic in self.topics():
                for index in range(len(topic.partitions)):
                    folder = partition_folder(self.data, topic.name, index)
                    if self.has_replica(topic, index) and self._disk.exists(folder):
                        self.replica_of(topic, index)
                        yield
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
        opened = list(self.open_replicas())
        for replica in opened:
            replica.close()
        if self._marked and not opened:
            self._mark_clean()

    def close(self, *, clean: bool = True) -> None:
        """Close every log and, after a clean stop, leave the mark that says so, if the disk lets us."""
        for replica in self.open_replicas():
            clean = clean and replica.log.cut_due is None
            try:
                replica.log.close()
            except (AnabranchError, OSError) as error:
                log.warning("%s could not be closed: %s", replica, error)
                clean = False
        if clean:
            self._mark_clean()

    def _mark_clean(self) -> None:
        try:
            self._disk.write_whole(self.data / CLEAN_STOP, b'{"version": 0}\n')
        except (AnabranchError, OSError) as error:
            log.warning("the next start takes this stop for an unclean one: %s", error)

    def checkpoints(self) -> Mapping[str, Mapping[TopicPartition, int]]:
        """By file, the recovery points, log starts and high watermarks of all replicas, opened or not."""
        return self._points.collected({id_text(topic_id) for topic_id in self._by_id}, self.open_replicas())
