"""Topics as Pulsar clients make and know them, stored or not: one way to both.

What topics need of the cluster (`topics/surroundings.py`, `Catalog`) is here too: what is written down about
one, and the rules that hold for it.  Rules are made when they are asked for and kept for as long as what they
were made from is the same.
"""

from collections.abc import Callable, Mapping

from anabranch.base.errors import (
    Exists,
    InvalidPartitions,
    PolicyViolation,
    UnknownNamespace,
    UnknownTopic,
)
from anabranch.base.ids import Namespace, TopicName, split_partition
from anabranch.cluster.cluster import ChangeOverrides, ChangePolicies, Cluster
from anabranch.cluster.topics import NewTopic
from anabranch.meta.image import AnyTopic, Located, locate
from anabranch.meta.policies import NamespacePolicies, TopicPolicies
from anabranch.meta.policy_defaults import PolicyDefaults
from anabranch.meta.rules import Rules, auto_creation_of, rules_of

_Sources = tuple[PolicyDefaults, NamespacePolicies, TopicPolicies | None]


class PulsarTopics:
    def __init__(self, cluster: Cluster, defaults: Callable[[], PolicyDefaults], cluster_name: str) -> None:
        self._cluster = cluster
        self._defaults = defaults
        self._cluster_name = cluster_name
        self._rules: dict[TopicName, tuple[_Sources, Rules]] = {}

    # --- what there is

    def find(self, name: TopicName) -> AnyTopic | None:
        """The topic of that name; a partition's name has none."""
        return self._cluster.image.topic(name)

    def locate(self, name: TopicName) -> Located | None:
        """The partition that clients attach to by that name (see `meta/image.py`)."""
        return locate(self._cluster.image, name)

    def policies(self, namespace: Namespace) -> NamespacePolicies:
        """UnknownNamespace if it is not there."""
        found = self._cluster.image.namespaces.get(namespace)
        if found is None:
            raise UnknownNamespace(f"there is no namespace '{namespace}'")
        return found

    def rules(self, name: TopicName) -> Rules:
        """The rules of a topic, there or not."""
        topic = self.find(name)
        namespace = self.policies(name.in_namespace)
        sources = (self._defaults(), namespace, None if topic is None else topic.policies)
        kept = self._rules.get(name)
        if kept is not None and all(a is b for a, b in zip(kept[0], sources, strict=True)):
            return kept[1]
        if len(self._rules) > 2 * len(self._cluster.image.topics) + 100:
            self._rules.clear()  # mostly of topics that are gone
        rules = rules_of(*sources, cluster=self._cluster_name)
        self._rules[name] = (sources, rules)
        return rules

    # --- making

    async def create(
        self, name: TopicName, partitions: int | None, properties: Mapping[str, str] = {}
    ) -> AnyTopic:
        """Make a topic with so many partitions, or one without if that is None."""
        self._check_room(name.in_namespace, partitions)
        if not name.is_persistent:
            return await self._cluster.non_persistent.create(name, partitions, properties)
        return await self._cluster.create_topic(
            NewTopic(
                name,
                1 if partitions is None else partitions,
                is_partitioned=partitions is not None,
                properties=properties,
                for_pulsar=True,
                asked_by="Pulsar",
            )
        )

    async def find_or_create(self, name: TopicName) -> AnyTopic:
        """The topic that a client uses, made if it is not there and may be; `name` may be a partition's.

        UnknownTopic if it may not.
        """
        whole = split_partition(name)[0]
        topic = self.find(name) or self.find(whole)
        if topic is not None:
            return topic
        creation = auto_creation_of(self._defaults(), self.policies(name.in_namespace))
        if not creation.is_allowed:
            raise UnknownTopic(f"topic '{name.pulsar}' is not there, and using it does not create it")
        try:
            return await self.create(name, creation.partitions)
        except Exists:  # somebody else used it first
            topic = self.find(name)
            if topic is None:
                raise
            return topic

    def _check_room(self, namespace: Namespace, partitions: int | None) -> None:
        defaults = self._defaults()
        if partitions is not None and partitions < 1:
            raise InvalidPartitions(f"a partitioned topic has at least 1 partition, not {partitions}")
        most = defaults.max_num_partitions
        if most and (partitions or 1) > most:
            raise PolicyViolation(f"{partitions} partitions are too many, the limit is {most}")
        policies = self.policies(namespace)
        limit = policies.max_topics_per_namespace
        limit = defaults.max_topics_per_namespace if limit is None else limit
        if limit > 0:
            there = sum(topic.partition_count for topic in self._cluster.image.topics_in(namespace))
            if there + (partitions or 1) > limit:
                raise PolicyViolation(f"namespace '{namespace}' may have {limit} topics and has {there}")

    # --- changing

    async def delete(self, name: TopicName) -> None:
        """Delete a topic with all of its partitions."""
        if name.is_persistent:
            await self._cluster.delete_topic(name, asked_by="Pulsar")
        else:
            await self._cluster.non_persistent.delete(name)

    async def add_partitions(self, name: TopicName, total: int) -> None:
        topic = self._there(name)
        self._check_room(name.in_namespace, max(1, total - topic.partition_count))
        most = self._defaults().max_num_partitions
        if most and total > most:
            raise PolicyViolation(f"{total} partitions are too many, the limit is {most}")
        if name.is_persistent:
            await self._cluster.add_partitions(name, total)
        else:
            await self._cluster.non_persistent.add_partitions(name, total)

    async def alter_policies(self, name: TopicName, change: ChangePolicies) -> None:
        if name.is_persistent:
            await self._cluster.alter_topic_policies(name, change)
        else:
            await self._cluster.non_persistent.alter_policies(name, change)

    async def alter_properties(self, name: TopicName, change: ChangeOverrides) -> None:
        if name.is_persistent:
            await self._cluster.alter_topic_properties(name, change)
        else:
            await self._cluster.non_persistent.alter_properties(name, change)

    async def store_epoch(self, name: TopicName, index: int, epoch: int) -> None:
        """Make a partition's topic epoch last; that of a topic which is not stored ends with the broker."""
        if name.is_persistent:
            await self._cluster.store_topic_epoch(name, index, epoch)

    async def store_terminated(self, name: TopicName, index: int, end: int) -> None:
        if name.is_persistent:
            await self._cluster.terminate(name, index, end)

    def _there(self, name: TopicName) -> AnyTopic:
        topic = self.find(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic '{name.pulsar}'")
        return topic
