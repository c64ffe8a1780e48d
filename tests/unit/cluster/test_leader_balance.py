"""Which partitions go back to their preferred leaders."""

from uuid import UUID

from msgspec.structs import replace

from anabranch.base.ids import BrokerId
from anabranch.cluster.elections import brokers_of
from anabranch.cluster.leader_balance import imbalance, to_move_back
from anabranch.meta.image import BrokerImage, ClusterImage, PartitionImage
from tests.support.images import partition_image, topic_image


def states(*leaders: int) -> list[PartitionImage]:
    return [partition_image(index, leader=leader, replicas=(1, 2)) for index, leader in enumerate(leaders)]


def image(partitions: list[PartitionImage], *live: int) -> ClusterImage:
    topic = replace(topic_image("orders", UUID(int=1)), partitions=tuple(partitions))
    brokers = {BrokerId(id): BrokerImage(BrokerId(id), "h", 1) for id in live}
    return ClusterImage(cluster_id="x", brokers=brokers, topics={topic.name: topic})


def moved(partitions: list[PartitionImage], *live: int) -> list[int]:
    of = image(partitions, *live)
    return [place.partition for place in to_move_back(of, brokers_of(of), 10)]


def test_the_share_of_a_broker() -> None:
    assert imbalance(states(1, 1, 1, 2)) == {1: 25.0}


def test_a_few_may_be_elsewhere() -> None:
    assert moved(states(*[1] * 9, 2), 1, 2) == []
    assert moved(states(*[1] * 8, 2, 2), 1, 2) == [8, 9]


def test_only_to_brokers_that_are_there_and_in_sync() -> None:
    assert moved(states(2, 2), 2) == []
    assert moved([replace(one, isr=(BrokerId(2),)) for one in states(2, 2)], 1, 2) == []
    assert moved([replace(one, adding=(BrokerId(2),)) for one in states(2, 2)], 1, 2) == []
