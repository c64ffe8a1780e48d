"""Internal replication: the replicas that topics of coordinators lack, added as brokers come.

    offsets.topic.replication.factor=3     broker 1 is alone    __consumer_offsets has 1 replica
                                           broker 2 comes       2
                                           broker 3 comes       3

A cluster whose first broker serves groups before the others are there would otherwise keep them on that
broker for good.  The configured factor is what these topics are brought to and never more than there are
brokers; replicas are added by a reassignment, as an operator's would be, and never taken away.
"""

from collections.abc import Iterator, Mapping

from anabranch.base.errors import InvalidReplicaAssignment
from anabranch.base.ids import TopicName
from anabranch.cluster.placement import Replicas, place, start_of
from anabranch.cluster.reassignment import reassign
from anabranch.cluster.replica_index import Place
from anabranch.meta.documents import PartitionState
from anabranch.meta.image import ClusterImage, PartitionImage

Factors = Mapping[TopicName, int]


def lacking(image: ClusterImage, factors: Factors) -> Iterator[tuple[Place, Replicas]]:
    """The partitions with fewer replicas than they could have, and those that they are to have."""
    brokers = [broker for broker in image.brokers.values() if not broker.gives_way]
    for name, wanted in factors.items():
        topic, factor = image.topics.get(name), min(wanted, len(brokers))
        if topic is None or all(_count(state) >= factor for state in topic.partitions):
            continue
        start = start_of(brokers, topic.partitions[0].replicas)
        targets = place(brokers, range(topic.partition_count), factor, start)
        for state, target in zip(topic.partitions, targets, strict=True):
            if _count(state) < factor:
                yield Place(topic.id, state.index), target


def replicated(state: PartitionState, target: Replicas, image: ClusterImage) -> PartitionState:
    """The state on its way to `target`, or as it is if that is not possible or not needed any more."""
    if _count(state) >= len(target):
        return state
    try:
        return reassign(state, target, image.brokers, same_factor=False)
    except InvalidReplicaAssignment:  # a broker is gone again
        return state


def _count(state: PartitionState | PartitionImage) -> int:
    """How many replicas it has once nothing is on its way any more."""
    return len(state.replicas) - len(state.removing)
