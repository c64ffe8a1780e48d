"""The cluster's topics as the group coordinator sees them: name, id, and the racks of each partition.

Facts are made when they are asked for and kept for as long as what they were made from is the same.
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from anabranch.base.ids import BrokerId, TopicId
from anabranch.groups.parts import TopicFacts
from anabranch.meta.image import BrokerImage, ClusterImage, TopicImage


class GroupTopics:
    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._names: tuple[Mapping[str, TopicImage], frozenset[str]] = ({}, frozenset())
        self._brokers: Mapping[BrokerId, BrokerImage] = {}
        self._facts: dict[str, tuple[TopicImage, TopicFacts]] = {}

    def by_name(self, name: str) -> TopicFacts | None:
        image = self._image()
        topic = image.topics_by_kafka_name.get(name)
        return None if topic is None else self._facts_of(image, topic)

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        image = self._image()
        topic = image.topics_by_id.get(TopicId(topic_id))
        return None if topic is None else self._facts_of(image, topic)

    def names(self) -> frozenset[str]:
        topics = self._image().topics_by_kafka_name
        if topics is not self._names[0]:
            names = frozenset(topics)
            self._names = (topics, self._names[1] if names == self._names[1] else names)
        return self._names[1]

    def _facts_of(self, image: ClusterImage, topic: TopicImage) -> TopicFacts:
        if image.brokers is not self._brokers or len(self._facts) > 2 * len(image.topics) + 1:
            self._brokers = image.brokers
            self._facts.clear()
        kept = self._facts.get(topic.name.kafka)
        if kept is not None and kept[0] is topic:
            return kept[1]
        racks = {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}
        facts = TopicFacts(
            topic.name.kafka,
            topic.id,
            tuple(
                frozenset(racks[replica] for replica in partition.replicas if replica in racks)
                for partition in topic.partitions
            ),
        )
        self._facts[topic.name.kafka] = (topic, facts)
        return facts
