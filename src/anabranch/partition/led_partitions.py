"""The partitions of one topic as far as this broker leads them: what the shards of a coordinator are on."""

from collections.abc import Sequence

from anabranch.base.errors import NotOwner, UnknownTopic
from anabranch.meta.image import TopicImage
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition


class LedPartitions:
    def __init__(self, host: PartitionHost, topic: str) -> None:
        self._host = host
        self._topic = topic
        self._unwritten: dict[int, int] = {}  # partitions that were, and the epoch in which they were led
        self._led: tuple[TopicImage | None, Sequence[int]] = (None, ())  # what was found in which image

    def name_of(self, index: int) -> str:
        return f"{self._topic}-{index}"

    @property
    def count(self) -> int:
        """UnknownTopic if there is no such topic."""
        return len(self._host.topic(self._topic).partitions)

    def partition(self, index: int) -> Partition:
        """NotOwner if another broker leads it, UnknownTopic if it does not exist."""
        return self._host.partition(self._topic, index)

    @property
    def led(self) -> Sequence[int]:
        """Those that this broker leads, of which there are none if there is no such topic.

        May be asked often: they are looked for once in an image.
        """
        topic = self._host.find(self._topic)
        if topic is None:
            return ()
        if self._led[0] is not topic.image:
            self._led = topic.image, [index for index in range(self.count) if self.is_led(index)]
        return self._led[1]

    def is_led(self, index: int) -> bool:
        try:
            self._host.leader_epoch(self._topic, index)
        except (NotOwner, UnknownTopic):
            return False
        return True

    def is_unwritten(self, index: int) -> bool:
        """Whether nothing was ever written to a partition that this broker leads: nobody has opened it.

        NotOwner if another broker leads it.  May be asked often: the folder is looked for once in an epoch.
        """
        epoch = self._host.leader_epoch(self._topic, index)
        if self._host.topic(self._topic).replicas[index] is not None:
            return False
        if self._unwritten.get(index) == epoch:
            return True
        is_unwritten = self._host.is_unwritten(self._topic, index)
        if is_unwritten:
            self._unwritten[index] = epoch
        return is_unwritten
