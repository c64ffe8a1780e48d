"""Coordinators on the partitions of a host, without a cluster: a topic is there if the host has it."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.ids import TopicName
from anabranch.groups.config import GroupConfig
from anabranch.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from anabranch.groups.parts import NO_SUBSCRIPTIONS, Subscriptions, Surroundings, TopicFacts
from anabranch.groups.share_config import ShareStateConfig
from anabranch.groups.share_states import SHARE_STATE_TOPIC, KeptShareStates
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC, SubscriptionStates
from anabranch.groups.transaction_config import TransactionConfig
from anabranch.groups.transaction_coordinator import TransactionCoordinator
from anabranch.groups.transaction_markers import Markers
from anabranch.log.config import LogConfig
from anabranch.partition.host import PartitionHost

Create = Callable[[], Awaitable[None]]
"""Makes the coordinator's own topic."""


class HostTopics:
    """The topics of a host, as coordinators see those of a cluster."""

    def __init__(self, host: PartitionHost) -> None:
        self._host = host

    def by_name(self, name: str) -> TopicFacts | None:
        found = self._host.find(name)
        return (
            None
            if found is None
            else TopicFacts(name, found.topic_id, (frozenset(),) * len(found.partitions))
        )

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        found = self._host.find(topic_id)
        return None if found is None else self.by_name(found.name.kafka)

    def names(self) -> frozenset[str]:
        return frozenset(topic.name.kafka for topic in self._host.topics())


class Coordinators(NamedTuple):
    """Makes coordinators."""

    host: PartitionHost
    clock: Clock

    def groups(
        self,
        create: Create,
        config: Callable[[], GroupConfig] = GroupConfig,
        subscriptions: Subscriptions = NO_SUBSCRIPTIONS,
    ) -> GroupCoordinator:
        around = Surroundings(config, HostTopics(self.host), Random(1), subscriptions=subscriptions)
        return GroupCoordinator(
            self.clock,
            around,
            lambda index: self.host.partition(OFFSETS_TOPIC, index),
            lambda index: self.host.is_stored(OFFSETS_TOPIC, index),
            create,
        )

    def subscription_states(self, create: Create) -> SubscriptionStates:
        return SubscriptionStates(
            self.clock,
            HostTopics(self.host),
            lambda index: self.host.partition(SUBSCRIPTION_TOPIC, index),
            lambda index: self.host.is_stored(SUBSCRIPTION_TOPIC, index),
            create,
        )

    def share_states(self, create: Create, config: Callable[[], ShareStateConfig]) -> KeptShareStates:
        return KeptShareStates(
            self.clock,
            HostTopics(self.host),
            config,
            lambda index: self.host.partition(SHARE_STATE_TOPIC, index),
            lambda index: self.host.is_stored(SHARE_STATE_TOPIC, index),
            create,
        )

    def transactions(
        self,
        create: Create,
        config: Callable[[], TransactionConfig],
        new_producer_id: Callable[[], Awaitable[int]],
        groups: GroupCoordinator,
    ) -> TransactionCoordinator:
        markers = Markers(self.host, groups)
        return TransactionCoordinator(self.clock, self.host, config, new_producer_id, create, markers)


def add_topic(host: PartitionHost, name: str, topic_id: UUID, partitions: int, **config: str) -> None:
    """As the cluster would; a setting's dots are underscores."""
    told = {option.replace("_", "."): value for option, value in config.items()}
    host.add_topic(TopicName.from_kafka(name), topic_id, partitions, LogConfig.build(told, {}))
