"""Topic creation and growth: Kafka's rules for names and replicas, as pure functions of an image.

The order of the checks is Kafka's, since the first one that fails is what the client is told: the
name, whether it is taken or collides, the configuration (the caller's), the factor and the number of
partitions, the placement.
Internal topics are topics: clients may make, grow and delete them, as on Kafka.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from anabranch.base.errors import (
    Exists,
    Invalid,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    PolicyViolation,
    UnknownNamespace,
)
from anabranch.base.ids import BrokerId, TopicName, split_partition
from anabranch.cluster.placement import Replicas, check_assignment, place, start_of
from anabranch.meta.image import BrokerImage, ClusterImage, TopicImage, collision_key

# Kafka takes no more in one request (its MAX_PARTITIONS_PER_BATCH).
MAX_NEW_PARTITIONS = 10_000

_INTERNAL = frozenset(
    TopicName.from_kafka(name)
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state", "__subscription_state")
)
_RESERVED = TopicName.from_kafka("__cluster_metadata")  # Kafka's own log of metadata


class NewTopic(msgspec.Struct, frozen=True):
    """A topic somebody wants.  -1 stands for the default, and must where `assignments` is given.

    `assignments` are partition indexes with the brokers to hold them.
    """

    name: TopicName
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    config: Mapping[str, str] = {}
    is_partitioned: bool = True
    """Whether Pulsar clients know it by its partitions."""
    properties: Mapping[str, str] = {}
    for_pulsar: bool = False
    """Pulsar's rules of names hold, not Kafka's."""
    asked_by: str = ""
    """Who wants it, for the log."""


class TopicDefaults(msgspec.Struct, frozen=True):
    num_partitions: int = 1
    replication_factor: int = 1


def is_internal(name: TopicName) -> bool:
    return name in _INTERNAL


def check_name_is_free(image: ClusterImage, name: TopicName, *, for_pulsar: bool = False) -> None:
    """Exists, UnknownNamespace, or InvalidTopicName if the name cannot stand beside the others."""
    if image.topic(name) is not None:
        raise Exists(f"topic '{name.kafka}' already exists")
    if name == _RESERVED:
        raise Invalid(f"topic '{name.kafka}' is reserved and cannot be created")
    if name.in_namespace not in image.namespaces:
        raise UnknownNamespace(
            f"there is no namespace '{name.in_namespace}' for topic '{name.kafka}'; create it first"
        )
    if for_pulsar:
        _check_pulsar_name(image, name)
        return
    key = collision_key(name)
    other = image.topics_by_collision_key.get(key) if key is not None else None
    if other is not None:
        raise InvalidTopicName(
            f"topic '{name.kafka}' collides with '{other.kafka}': they differ in '.' and '_' only"
        )


def _check_pulsar_name(image: ClusterImage, name: TopicName) -> None:
    whole, index = split_partition(name)
    if index is not None:
        topic = image.topic(whole)
        if topic is not None and topic.is_partitioned:
            raise InvalidTopicName(
                f"topic '{whole.pulsar}' has {topic.partition_count} partition(s), {index} is not one of them"
            )
        raise InvalidTopicName(
            f"topic '{name.pulsar}' cannot be created: a name that ends in -partition-{index} is that of a "
            "partition, and there is no such partitioned topic"
        )


def place_new_topic(
    image: ClusterImage, new: NewTopic, defaults: TopicDefaults, start: int
) -> list[Replicas]:
    """Replicas of each partition of a topic that is to be made."""
    if new.assignments:
        return _as_assigned(image, new)
    factor = defaults.replication_factor if new.replication_factor == -1 else new.replication_factor
    _check_number(new.num_partitions)
    if factor <= 0:
        raise InvalidReplicationFactor(f"replication factor {factor} is not positive, nor -1 for the default")
    count = defaults.num_partitions if new.num_partitions == -1 else new.num_partitions
    if count <= 0:
        raise InvalidPartitions(f"{count} partitions: the number must be positive, or -1 for the default")
    if is_internal(new.name):
        factor = min(factor, max(1, len(image.brokers)))  # `internal_replication` adds the others
    return place(image.brokers.values(), range(count), factor, start, image.away)


def place_more_partitions(
    image: ClusterImage, topic: TopicImage, total: int, assignments: Sequence[Sequence[int]] | None
) -> list[Replicas]:
    """Replicas of the partitions that bring `topic` to `total`."""
    present = len(topic.partitions)
    if not topic.is_partitioned:
        raise InvalidPartitions(f"topic '{topic.name.kafka}' was made without partitions and stays so")
    if total <= present:
        raise InvalidPartitions(
            f"topic '{topic.name.kafka}' has {present} partition(s), {total} is no increase"
        )
    _check_number(total - present)
    if assignments is None:
        start = start_of(image.brokers.values(), topic.partitions[0].replicas)
        new = range(present, total)
        return place(image.brokers.values(), new, topic.replication_factor, start, image.away)
    if len(assignments) != total - present:
        raise InvalidReplicaAssignment(
            f"{total - present} partition(s) are to be added, but {len(assignments)} assignment(s) were given"
        )
    return check_assignment(assignments, image.brokers, topic.replication_factor, _ids(image.away))


def _as_assigned(image: ClusterImage, new: NewTopic) -> list[Replicas]:
    if new.replication_factor != -1:
        raise Invalid("with a manual assignment the replication factor must be -1")
    if new.num_partitions != -1:
        raise Invalid("with a manual assignment the number of partitions must be -1")
    _check_number(len(new.assignments))
    by_index = dict(new.assignments)
    if len(by_index) < len(new.assignments):
        raise InvalidReplicaAssignment("the assignment names a partition more than once")
    assigned = [by_index[index] for index in sorted(by_index)]
    replicas = check_assignment(assigned, image.brokers, None, _ids(image.away))
    if by_index.keys() != set(range(len(by_index))):
        raise InvalidReplicaAssignment("the assignment must name partitions 0, 1, 2 ... without a gap")
    return replicas


def _ids(brokers: Iterable[BrokerImage]) -> list[BrokerId]:
    return [broker.id for broker in brokers]


def _check_number(count: int) -> None:
    if count > MAX_NEW_PARTITIONS:
        raise PolicyViolation(f"{count} partitions at once are too many, the limit is {MAX_NEW_PARTITIONS}")
