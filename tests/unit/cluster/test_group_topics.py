"""Topics as groups see them: racks of each partition, the same object for as long as nothing changed."""

from collections.abc import Mapping
from uuid import UUID

from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.cluster.group_topics import GroupTopics
from anabranch.meta.image import BrokerImage, ClusterImage, PartitionImage, TopicImage


def topic(name: str, number: int, *replicas: tuple[int, ...]) -> TopicImage:
    partitions = []
    for index, held in enumerate(replicas):
        brokers = tuple(map(BrokerId, held))
        partitions.append(PartitionImage(index, brokers[0], LeaderEpoch(0), 0, brokers, brokers))
    return TopicImage(TopicName.from_kafka(name), TopicId(UUID(int=number)), tuple(partitions), {}, False)


def image(racks: Mapping[int, str | None], *topics: TopicImage) -> ClusterImage:
    return ClusterImage(
        cluster_id="c",
        brokers={BrokerId(id): BrokerImage(BrokerId(id), "h", 1, rack) for id, rack in racks.items()},
        topics={one.name: one for one in topics},
        topics_by_kafka_name={one.name.kafka: one for one in topics},
        topics_by_id={one.id: one for one in topics},
    )


def test_racks_of_replicas_as_far_as_they_are_known() -> None:
    now = image({1: "a", 2: "b", 3: None}, topic("t", 7, (1, 2), (2, 3), (3, 4)))
    topics = GroupTopics(lambda: now)
    facts = topics.by_name("t")
    assert facts is not None
    assert facts.num_partitions == 3
    assert facts.partition_racks == (frozenset("ab"), frozenset("b"), frozenset())
    assert topics.by_id(UUID(int=7)) is facts
    assert topics.by_name("u") is None
    assert topics.by_id(UUID(int=8)) is None


def test_facts_are_made_anew_when_what_they_say_may_have_changed() -> None:
    now = image({1: "a"}, topic("t", 7, (1,)))
    topics = GroupTopics(lambda: now)
    first = topics.by_name("t")
    assert topics.by_name("t") is first
    now = image({1: "b"}, *now.topics.values())
    assert topics.by_name("t") != first
    now = image({1: "b"}, topic("t", 7, (1,), (1,)))
    grown = topics.by_name("t")
    assert grown is not None
    assert grown.num_partitions == 2


def test_names_are_the_same_object_until_there_are_others() -> None:
    now = image({1: "a"}, topic("t", 7, (1,)))
    topics = GroupTopics(lambda: now)
    names = topics.names()
    assert names == {"t"}
    now = image({1: "a"}, topic("t", 7, (1,), (1,)))
    assert topics.names() is names
    now = image({1: "a"}, topic("t", 7, (1,)), topic("u", 8, (1,)))
    assert topics.names() == {"t", "u"}


def test_what_is_kept_is_bounded_by_the_topics_there_are() -> None:
    now = image({1: "a"})
    topics = GroupTopics(lambda: now)
    brokers = now.brokers
    for number in range(100):
        one = topic(f"t{number}", number, (1,))
        now = ClusterImage(
            cluster_id="c",
            brokers=brokers,
            topics={one.name: one},
            topics_by_kafka_name={one.name.kafka: one},
            topics_by_id={one.id: one},
        )
        assert topics.by_name(f"t{number}") is not None
    assert len(topics._facts) <= 4
