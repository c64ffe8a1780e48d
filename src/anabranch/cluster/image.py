"""The cluster as this node knows it: one immutable value, replaced as a whole when it changes.

Handlers read `cluster.image` once and see a state that existed, without locks and without waiting.
Whoever must act on change (open a log, close one) subscribes and compares two images; what did not
change is the same object in both, so that comparing is by identity.

A topic is found by its name, by what Kafka clients call it, and by its id.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName

NO_BROKER = BrokerId(-1)

Overrides = Mapping[str, str]


class BrokerImage(msgspec.Struct, frozen=True):
    id: BrokerId
    host: str
    port: int
    rack: str | None = None


class PartitionImage(msgspec.Struct, frozen=True):
    index: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


class TopicImage(msgspec.Struct, frozen=True):
    name: TopicName
    id: TopicId
    partitions: tuple[PartitionImage, ...]
    config: Overrides
    is_internal: bool

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class ClusterImage(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    controller_id: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerImage] = {}
    topics: Mapping[TopicName, TopicImage] = {}
    topics_by_kafka_name: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[TopicId, TopicImage] = {}
    topics_by_collision_key: Mapping[str, TopicName] = {}
    broker_configs: Mapping[BrokerId, Overrides] = {}
    default_broker_config: Overrides = {}
    client_metrics: Mapping[str, Overrides] = {}


class TopicChange(NamedTuple):
    """`before` is None for a new topic, `after` for a deleted one.  Both have the same id."""

    before: TopicImage | None
    after: TopicImage | None


def topic_changes(old: ClusterImage, new: ClusterImage) -> Iterator[TopicChange]:
    """What became of the topics from `old` to `new`, deletions first.

    A topic that was deleted and made again under its name is two changes.
    """
    if old.topics_by_id is new.topics_by_id:
        return
    for id, before in old.topics_by_id.items():
        if id not in new.topics_by_id:
            yield TopicChange(before, None)
    for id, after in new.topics_by_id.items():
        earlier = old.topics_by_id.get(id)
        if earlier is not after:
            yield TopicChange(earlier, after)


def collision_key(name: TopicName) -> str | None:
    """What two topics must not share.  None if this one cannot collide.

    Kafka's rule: metric names turn '.' into '_', so `a.b` and `a_b` would be one there.
    """
    local = name.local
    if "." not in local and "_" not in local:
        return None
    return f"{name.tenant}/{name.namespace}/{local.replace('.', '_')}"
