"""A served topic: its image, and what this broker has opened of its partitions."""

from collections.abc import Mapping
from uuid import UUID

from anabranch.base.errors import NotOwner
from anabranch.base.ids import BrokerId, id_text
from anabranch.log.checkpoints import TopicPartition
from anabranch.log.config import LogConfig
from anabranch.meta.image import PartitionImage, TopicImage
from anabranch.partition.partition import Partition, check_leader_epoch
from anabranch.partition.replica import Replica

_NONE: Mapping[int, int] = {}


class ServedTopic:
    """A topic as the image has it, and what has been opened of it."""

    __slots__ = ("_id_text", "config", "image", "name", "outlived", "partitions", "replicas", "topic_id")

    def __init__(self, image: TopicImage, config: LogConfig) -> None:
        self.image = image
        self.name = image.name
        self.topic_id: UUID = image.id
        self.config = config
        self.partitions: list[Partition | None] = [None] * image.partition_count  # those that are led here
        self.replicas: list[Replica | None] = [None] * image.partition_count
        self.outlived: Mapping[int, int] = _NONE
        """By partition, the epoch in which an earlier process of this broker led it."""
        self._id_text = id_text(image.id)

    def key(self, index: int) -> TopicPartition:
        """What a partition goes by in checkpoints."""
        return self._id_text, index

    def led_by(self, broker: BrokerId, index: int) -> PartitionImage:
        """The state of a partition that `broker` leads: the one place where NotOwner is raised."""
        state = self.image.partitions[index]
        if state.leader != broker:
            raise self.elsewhere(state)
        if self.outlived and self.outlived.get(index) == state.leader_epoch:
            raise NotOwner(
                f"{self.name.kafka}-{index}: broker {broker} led it in epoch {state.leader_epoch} before it "
                "was started again, and waits for the next election"
            )
        return state

    def check_known_epoch(self, broker: BrokerId, index: int, epoch: int) -> None:
        """Refuse who knows another leader than there is, where `broker` has a replica; -1 knows none.

        As in Kafka, where that comes before the question whether this broker leads.
        """
        state = self.image.partitions[index]
        if epoch != -1 and broker in state.replicas:
            check_leader_epoch(epoch, state.leader_epoch)

    def elsewhere(self, state: PartitionImage) -> NotOwner:
        """What they are told who ask here for a partition that has another leader."""
        who = f"broker {state.leader} leads it" if state.leader >= 0 else "it has no leader"
        said = f"{self.name.kafka}-{state.index}: {who}, in epoch {state.leader_epoch}"
        return NotOwner(said, state.leader, state.leader_epoch)
