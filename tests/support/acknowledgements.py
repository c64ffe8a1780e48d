"""A follower made up by a test: in sync with everything that a host leads, and as far as the test says.

    follower = Follower(host)         from here on the host's partitions have two replicas, both in sync
    follower.waiting                  appends that it has not got yet, the oldest first
    follower.release()                it gets all of them; `release(2)` the oldest two
    follower.refuse(NotOwner("..."))  the leaders that wait for it resign
    follower.is_holding = False       it gets what is appended from now on at once, and with it all before
    follower.delay_s = 0.002          it gets everything by itself, that much later

Nothing is patched in the log or in the leader: acknowledgements of acks=all wait for the high watermark, and
that waits for this follower.  So they come in order within a partition, and those of acks=1 do not wait.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import BrokerId
from anabranch.meta.image import PartitionImage, TopicImage
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.partition.served_topic import ServedTopic

FOLLOWER = BrokerId(2)


class Follower:
    def __init__(self, host: PartitionHost, delay_s: float | Callable[[], float] | None = None) -> None:
        self.delay_s = delay_s
        """None: it gets what it is told to, by `release`.  Else the time that each append takes to it."""
        self._host = host
        self._waiting: list[tuple[Partition, int]] = []
        self._really_add, self._really_change, self._really_lead = (
            host.add_topic,
            host.change_topic,
            host._lead,
        )
        for topic in host.topics():
            host.change_topic(with_follower(topic.image))
            for partition in topic.partitions:
                if partition is not None:
                    self._follow(partition)
        host.add_topic = lambda image, config: self._really_add(with_follower(image), config)  # type: ignore[method-assign]
        host.change_topic = lambda image: self._really_change(with_follower(image))  # type: ignore[method-assign]
        host._lead = self._lead  # type: ignore[method-assign]

    def _lead(self, topic: ServedTopic, index: int) -> Partition:
        partition = self._really_lead(topic, index)
        self._follow(partition)
        return partition

    def _follow(self, partition: Partition) -> None:
        partition.wait(partial(self._grown, partition), Isolation.LOG_END)
        self._grown(partition)  # by what was there already

    def _grown(self, partition: Partition) -> None:
        if partition.retired or partition.high_watermark == partition.log_end:
            return
        end, delay_s = partition.log_end, self.delay_s
        if delay_s is None:
            self._waiting.append((partition, end))
            return
        delay_s = delay_s() if callable(delay_s) else delay_s
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._reach, partition, end)
        else:
            self._reach(partition, end)

    def _reach(self, partition: Partition, end: int) -> None:
        if not partition.retired:
            partition.replica_reached(FOLLOWER, end)

    @property
    def is_holding(self) -> bool:
        return self.delay_s is None

    @is_holding.setter
    def is_holding(self, is_holding: bool) -> None:
        self.delay_s = None if is_holding else 0

    @property
    def waiting(self) -> list[tuple[Partition, int]]:
        self._waiting = [
            (partition, end)
            for partition, end in self._waiting
            if not partition.retired and partition.high_watermark < end
        ]
        return list(self._waiting)

    def release(self, count: int | None = None, partition: Partition | None = None) -> None:
        """It gets what waits, of `partition` or of all, or the oldest `count` of that."""
        waiting = [(whose, end) for whose, end in self.waiting if partition in (None, whose)]
        for whose, end in waiting[:count]:
            self._reach(whose, end)

    def refuse(self, error: AnabranchError, partition: Partition | None = None) -> None:
        """The leader of `partition`, or of all that wait, resigns."""
        for whose, _ in self.waiting:
            if partition in (None, whose) and not whose.retired:
                self._host._resign(self._host.topic(whose.replica.topic.kafka), whose, error)


def with_follower(image: TopicImage) -> TopicImage:
    return replace(image, partitions=tuple(map(_followed, image.partitions)))


def _followed(state: PartitionImage) -> PartitionImage:
    if FOLLOWER in state.replicas:
        return state
    return replace(state, replicas=(*state.replicas, FOLLOWER), isr=(*state.isr, FOLLOWER))
