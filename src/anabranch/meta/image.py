"""Cluster image: the cluster as this node knows it, one immutable value that is replaced when it changes.

Handlers read `cluster.image` once and see a state that existed, without locks and without waiting.
Whoever must act on change (open a log, close one) subscribes and is told the step from one to the next: its
cost is that of what changed, whatever there is besides.

A topic is found by its name, by what Kafka clients call it, and by its id; `locate` finds what Pulsar clients
mean by a name, which may be a partition's.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from anabranch.base.ids import BrokerId, LeaderEpoch, Namespace, TopicId, TopicName, split_partition
from anabranch.client.destinations import Address
from anabranch.meta.documents import PartitionState, TenantDocument
from anabranch.meta.policies import NamespacePolicies, TopicPolicies

NO_BROKER = BrokerId(-1)
NO_EPOCH = -1

Overrides = Mapping[str, str]

NOTHING: Mapping[str, str] = {}  # one for all: most of ten thousand topics have none
NO_NUMBERS: Mapping[int, int] = {}


class BrokerImage(msgspec.Struct, frozen=True):
    """A broker that is registered."""

    id: BrokerId
    host: str  # where Kafka's clients find it
    port: int
    rack: str | None = None
    internal: Address | None = None  # where brokers find it, if that is elsewhere
    pulsar: Address | None = None
    http: Address | None = None
    host_id: str | None = None  # the machine: what is on it fails together
    version: str = ""
    instance: str = ""  # another one at each start of the process
    directory: str = ""  # the id of its data folder
    epoch: int = NO_EPOCH  # a later registration has a higher one
    gives_way: bool = False  # it leads no more where another can

    @property
    def for_brokers(self) -> Address:
        """Where other brokers find it."""
        return self.internal or Address(self.host, self.port)


class PartitionImage(msgspec.Struct, frozen=True):
    index: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class TopicImage(msgspec.Struct, frozen=True):
    name: TopicName
    id: TopicId
    partitions: tuple[PartitionImage, ...]
    config: Overrides
    is_internal: bool
    created_ms: int = 0
    is_partitioned: bool = True
    policies: TopicPolicies | None = None
    properties: Mapping[str, str] = NOTHING
    epochs: Mapping[int, int] = NO_NUMBERS  # by partition: how often a producer had it alone
    terminated: Mapping[int, int] = NO_NUMBERS  # by partition: the offset at which it ended, for good
    placement: Sequence[tuple[BrokerId, ...]] = ()  # by partition: its replicas when it was made

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


class NonPersistentImage(msgspec.Struct, frozen=True):
    """A topic that is not stored."""

    name: TopicName
    partition_count: int
    is_partitioned: bool
    created_ms: int = 0
    policies: TopicPolicies | None = None
    properties: Mapping[str, str] = NOTHING
    epochs: Mapping[int, int] = NO_NUMBERS  # they do not outlive the broker
    terminated: Mapping[int, int] = NO_NUMBERS
    is_internal: bool = False


AnyTopic = TopicImage | NonPersistentImage


class ClusterImage(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    controller_id: BrokerId = NO_BROKER
    controller_epoch: int = -1
    brokers: Mapping[BrokerId, BrokerImage] = {}
    seen_brokers: Mapping[BrokerId, BrokerImage] = {}
    """Those that were there once and are not forgotten, with what clients may know of them."""
    topics: Mapping[TopicName, TopicImage] = {}
    topics_by_kafka_name: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[TopicId, TopicImage] = {}
    topics_by_collision_key: Mapping[str, TopicName] = {}
    partition_states: Mapping[tuple[TopicId, int], Mapping[int, PartitionState]] = {}
    """By topic and page, of topics that are there or not: a document may come before its topic's."""
    broker_configs: Mapping[BrokerId, Overrides] = {}
    default_broker_config: Overrides = {}
    client_metrics: Mapping[str, Overrides] = {}
    group_configs: Mapping[str, Overrides] = {}
    tenants: Mapping[str, TenantDocument] = {}
    namespaces: Mapping[Namespace, NamespacePolicies] = {}
    non_persistent: Mapping[TopicName, NonPersistentImage] = {}

    @property
    def away(self) -> list[BrokerImage]:
        """The brokers that belong to the cluster and are not there; Kafka's are fenced then."""
        return [broker for id, broker in self.seen_brokers.items() if id not in self.brokers]

    def topic(self, name: TopicName) -> AnyTopic | None:
        """The topic of that name, stored or not."""
        return self.topics.get(name) if name.is_persistent else self.non_persistent.get(name)

    def topics_in(self, namespace: Namespace) -> list[AnyTopic]:
        """The topics of a namespace, stored or not, in order of their names."""
        found: list[AnyTopic] = [
            topic
            for table in (self.topics, self.non_persistent)
            for topic in table.values()
            if topic.name.namespace == namespace.name and topic.name.tenant == namespace.tenant
        ]
        return sorted(found, key=lambda topic: topic.name.pulsar)


class Located(NamedTuple):
    """One partition of a topic, as a Pulsar client names it."""

    topic: AnyTopic
    partition: int


def locate(image: ClusterImage, name: TopicName) -> Located | None:
    """What a Pulsar client attaches to by `name`: a partition, or the one of a topic without partitions.

    None if there is no such thing; a partitioned topic itself is none, its clients attach to its partitions.
    """
    whole, index = split_partition(name)
    topic = image.topic(whole)
    if index is not None and topic is not None and topic.is_partitioned:
        return Located(topic, index) if index < topic.partition_count else None
    topic = image.topic(name)
    return None if topic is None or topic.is_partitioned else Located(topic, 0)


def part_name(image: ClusterImage, topic: str, index: int) -> TopicName | None:
    """The reverse: what Pulsar clients call a partition of what Kafka clients call `topic`."""
    found = image.topics_by_kafka_name.get(topic)
    if found is None or index >= found.partition_count:
        return None
    return found.name.partition(index) if found.is_partitioned else found.name


class TopicChange(NamedTuple):
    """`before` is None for a new topic, `after` for a deleted one.  Both have the same id."""

    before: TopicImage | None
    after: TopicImage | None


class ImageChange(NamedTuple):
    """A step from one image to the next.  A table that is in both the same object has not changed."""

    old: ClusterImage
    new: ClusterImage
    topics: Sequence[TopicChange]
    """What became of stored topics, deletions first.  One that was deleted and made again is two."""

    @property
    def deleted(self) -> list[TopicImage]:
        return [before for before, after in self.topics if before is not None and after is None]


def appearance(image: ClusterImage) -> ImageChange:
    """The step from nothing to `image`: for whoever begins to follow."""
    nothing = ClusterImage(cluster_id=image.cluster_id)
    return ImageChange(nothing, image, [TopicChange(None, topic) for topic in image.topics.values()])


def collision_key(name: TopicName) -> str | None:
    """What two topics must not share.  None if this one cannot collide.

    Kafka's rule: metric names turn '.' into '_', so `a.b` and `a_b` would be one there.
    """
    local = name.local
    if "." not in local and "_" not in local:
        return None
    return f"{name.tenant}/{name.namespace}/{local.replace('.', '_')}"
