"""Leader balance: which partitions go back to their preferred leaders, by Kafka's rule.

The first replica of a partition is its preferred leader.  A broker that is the preferred leader of 20 and
does not lead 3 of them is out of balance by 15 percent.  Those of a broker that is out of balance by more
than `leader.imbalance.per.broker.percentage` are elected back, as far as it is there and in sync.
"""

from collections.abc import Iterable, Iterator

from anabranch.base.ids import BrokerId
from anabranch.cluster.elections import Brokers
from anabranch.cluster.reassignment import is_under_way
from anabranch.cluster.replica_index import Place
from anabranch.meta.image import ClusterImage, PartitionImage


def imbalance(partitions: Iterable[PartitionImage]) -> dict[BrokerId, float]:
    """By preferred leader, the share of its partitions that it does not lead, in percent."""
    preferred: dict[BrokerId, int] = {}
    elsewhere: dict[BrokerId, int] = {}
    for state in partitions:
        first = state.replicas[0]
        preferred[first] = preferred.get(first, 0) + 1
        if state.leader != first:
            elsewhere[first] = elsewhere.get(first, 0) + 1
    return {broker: 100 * elsewhere.get(broker, 0) / count for broker, count in preferred.items()}


def to_move_back(image: ClusterImage, brokers: Brokers, percentage: int) -> list[Place]:
    """The partitions that are to have their preferred leaders again."""
    shares = imbalance(state for _, state in _partitions(image))
    uneven = {id for id, share in shares.items() if share > percentage and brokers.is_steady(id)}
    if not uneven:
        return []
    return [
        place
        for place, state in _partitions(image)
        if state.replicas[0] in uneven and state.leader != state.replicas[0] and _can(state)
    ]


def _can(state: PartitionImage) -> bool:
    return state.replicas[0] in state.isr and not is_under_way(state)


def _partitions(image: ClusterImage) -> Iterator[tuple[Place, PartitionImage]]:
    for topic in image.topics.values():
        for state in topic.partitions:
            yield Place(topic.id, state.index), state
