"""A host of partitions with its upkeep, without sockets or waiting: rounds are called, time is moved.

    hosted = Hosted(folder)
    orders = hosted.topic("orders", retention_ms=1000)
    hosted.put(orders, "a", "b")
    await hosted.upkeep.look()

`restart` stops it, cleanly or not, and starts it again on the same folder.
"""

import uuid
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.base.disk import DirectDisk, Disk
from anabranch.base.executors import thread_pool
from anabranch.base.ids import TopicName, id_text
from anabranch.base.processes import RealProcesses
from anabranch.log.checkpoints import read_offsets
from anabranch.log.cleaner import Worker, run_worker
from anabranch.log.config import LogConfig
from anabranch.log.config_broker import CleanerConfig, ProducerStateConfig, UpkeepConfig
from anabranch.meta.image import PartitionImage
from anabranch.partition.partition import Partition
from anabranch.partition.upkeep import Upkeep
from tests.support.hosts import a_host
from tests.support.images import led_by, topic_image
from tests.support.logs import SetClock, records, release


@dataclass(frozen=True)
class Told:
    upkeep: UpkeepConfig = field(default_factory=UpkeepConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    producers: ProducerStateConfig = field(default_factory=ProducerStateConfig)
    log: LogConfig = field(default_factory=LogConfig)


class Config:
    def __init__(self) -> None:
        self.current = Told()

    def tell(self, **sections: Any) -> None:
        self.current = replace(self.current, **sections)


in_a_process: Worker = partial(run_worker, RealProcesses())


class Hosted:
    def __init__(self, data: Path, disk: Disk | None = None, worker: Worker = in_a_process) -> None:
        self.data = data
        self.disk = disk or DirectDisk()
        self.clock = SetClock()
        self.config = Config()
        self.worker = worker
        self._topics: dict[str, tuple[uuid.UUID, int, LogConfig]] = {}
        self.moved: dict[str, PartitionImage] = {}
        """By topic, a partition that is not as it was made when the host starts again."""
        self._begin()

    def _begin(self) -> None:
        self.host = a_host(self.data, self.clock, self.disk)
        for name, (topic_id, count, config) in self._topics.items():
            image = topic_image(name, topic_id, count)
            if (state := self.moved.get(name)) is not None:
                image = led_by(image, state.index, state)
            self.host.add_topic(image, config)
        self.upkeep = Upkeep(self.host, self.disk, self.clock, self.config, thread_pool, self.worker)
        self.host.recover()

    async def restart(self, *, clean: bool = True) -> None:
        if clean:
            self.host.close(clean=await self.upkeep.stop())
        else:
            self.kill()
        self._begin()

    def kill(self) -> None:
        for replica in self.host.open_replicas():
            replica.close()
        release(self.disk)
        self.upkeep.abandon()

    def topic(self, name: str, partitions: int = 1, **config: Any) -> str:
        made = (uuid.uuid4(), partitions, LogConfig(**config))
        self._topics[name] = made
        self.host.add_topic(topic_image(name, made[0], partitions), made[2])
        return name

    def configure(self, name: str, **config: Any) -> None:
        topic_id, count, _ = self._topics[name]
        self._topics[name] = (topic_id, count, LogConfig(**config))
        self.host.configure_topic(TopicName.from_kafka(name), self._topics[name][2])

    def remove(self, name: str) -> None:
        del self._topics[name]
        self.host.remove_topic(TopicName.from_kafka(name))

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.host.partition(name, index)

    def put(self, name: str, *values: str, index: int = 0, **fields: Any) -> Partition:
        """Append one batch, as a client would."""
        partition = self.partition(name, index)
        fields.setdefault("timestamp", self.clock.ms)
        partition.append(memoryview(records(*values, **fields)), -1)
        return partition

    def points(self, checkpoint: str) -> dict[tuple[str, int], int]:
        """What a checkpoint says, by the names of the topics that are there."""
        names = {id_text(topic_id): name for name, (topic_id, _, _) in self._topics.items()}
        found = read_offsets(self.disk, self.data / checkpoint)
        return {(names.get(topic, topic), index): offset for (topic, index), offset in found.items()}

    def files(self, ending: str) -> list[str]:
        return sorted(path.name for path in self.data.rglob(f"*{ending}"))
