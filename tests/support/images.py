"""Images of topics, as the cluster would have them: led by broker 1, alone, unless told otherwise."""

from collections.abc import Mapping
from uuid import UUID

from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.meta.image import PartitionImage, TopicImage

ME = BrokerId(1)


def partition_image(
    index: int = 0,
    *,
    leader: int = ME,
    epoch: int = 0,
    replicas: tuple[int, ...] = (ME,),
    in_sync: tuple[int, ...] | None = None,
) -> PartitionImage:
    brokers = tuple(map(BrokerId, replicas))
    isr = brokers if in_sync is None else tuple(map(BrokerId, in_sync))
    return PartitionImage(index, BrokerId(leader), LeaderEpoch(epoch), epoch, brokers, isr)


def topic_image(
    name: str | TopicName, topic_id: UUID, count: int = 1, *, terminated: Mapping[int, int] | None = None
) -> TopicImage:
    return TopicImage(
        name if isinstance(name, TopicName) else TopicName.from_kafka(name),
        TopicId(topic_id),
        tuple(partition_image(index) for index in range(count)),
        {},
        False,
        terminated=terminated or {},
    )


def led_by(topic: TopicImage, index: int, state: PartitionImage) -> TopicImage:
    """The same topic with another state of one partition."""
    from msgspec.structs import replace

    states = list(topic.partitions)
    states[index] = state
    return replace(topic, partitions=tuple(states))
