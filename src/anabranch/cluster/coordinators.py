"""Coordinators, put together from what they need of the cluster and of the partitions.

They stand below the cluster and see it through the narrow functions given here.
"""

from collections.abc import Awaitable, Callable
from random import Random

from anabranch.base.clock import Clock
from anabranch.base.ids import TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.group_topics import GroupTopics
from anabranch.cluster.topics import NewTopic
from anabranch.groups.config import GroupConfig
from anabranch.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from anabranch.groups.marker_queues import MarkerQueues
from anabranch.groups.other_brokers import OtherBrokers
from anabranch.groups.parts import NO_SUBSCRIPTIONS, Subscriptions, Surroundings
from anabranch.groups.share_config import ShareStateConfig
from anabranch.groups.share_coordinator import ShareCoordinator
from anabranch.groups.share_states import SHARE_STATE_TOPIC, KeptShareStates
from anabranch.groups.share_states_anywhere import ShareStatesAnywhere
from anabranch.groups.transaction_config import TransactionConfig
from anabranch.groups.transaction_coordinator import STATE_TOPIC, TransactionCoordinator
from anabranch.groups.transaction_markers import Markers
from anabranch.partition.host import PartitionHost
from anabranch.partition.led_partitions import LedPartitions


def group_coordinator(
    cluster: Cluster,
    host: PartitionHost,
    clock: Clock,
    chance: Random,
    config: Callable[[], GroupConfig],
    subscriptions: Subscriptions = NO_SUBSCRIPTIONS,
) -> GroupCoordinator:
    """The group coordinator of this broker, told of topics that are deleted."""

    async def create_topic() -> None:
        told = config()
        await cluster.create_topic(
            NewTopic(
                TopicName.from_kafka(OFFSETS_TOPIC),
                told.topic_partitions,
                told.topic_replication_factor,
                config=told.topic_config,
                asked_by="the group coordinator",
            )
        )

    coordinator = GroupCoordinator(
        clock,
        Surroundings(
            config,
            GroupTopics(lambda: cluster.image),
            chance,
            lambda group_id: cluster.image.group_configs.get(group_id),
            subscriptions=subscriptions,
        ),
        LedPartitions(host, OFFSETS_TOPIC),
        create_topic,
    )

    cluster.subscribe(
        lambda change: coordinator.topics_deleted({topic.name.kafka: topic.id for topic in change.deleted})
    )
    return coordinator


def transaction_coordinator(
    cluster: Cluster,
    host: PartitionHost,
    clock: Clock,
    config: Callable[[], TransactionConfig],
    new_producer_id: Callable[[], Awaitable[int]],
    groups: GroupCoordinator,
    others: OtherBrokers,
    chance: Random,
) -> TransactionCoordinator:
    """The transaction coordinator of this broker; `others` are who get its markers."""

    async def create_topic() -> None:
        told = config()
        new = NewTopic(
            TopicName.from_kafka(STATE_TOPIC),
            told.topic_partitions,
            told.topic_replication_factor,
            config=told.topic_config(),
            asked_by="the transaction coordinator",
        )
        await cluster.create_topic(new)

    queues = MarkerQueues(others, chance)
    cluster.subscribe(lambda change: queues.image_changed())
    markers = Markers(host, groups, queues, cluster.is_gone)
    return TransactionCoordinator(
        clock, LedPartitions(host, STATE_TOPIC), config, new_producer_id, create_topic, markers
    )


def share_coordinator(
    cluster: Cluster,
    host: PartitionHost,
    clock: Clock,
    config: Callable[[], ShareStateConfig],
    groups: GroupCoordinator,
    others: OtherBrokers,
    chance: Random,
) -> ShareCoordinator:
    """The coordinator of share groups on this broker, told of topics that are deleted."""

    async def create_topic() -> None:
        told = config()
        new = NewTopic(
            TopicName.from_kafka(SHARE_STATE_TOPIC),
            told.topic_partitions,
            told.topic_replication_factor,
            config=told.topic_config,
            asked_by="the share coordinator",
        )
        await cluster.create_topic(new)

    topics = GroupTopics(lambda: cluster.image)
    states = KeptShareStates(
        clock,
        topics,
        config,
        LedPartitions(host, SHARE_STATE_TOPIC),
        create_topic,
    )

    cluster.subscribe(lambda change: states.topics_deleted({topic.id for topic in change.deleted}))
    anywhere = ShareStatesAnywhere(states, others, chance)
    return ShareCoordinator(groups, states, anywhere, topics)
