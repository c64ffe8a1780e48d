"""From documents to images."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.base.errors import Corrupt
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.cluster.builder import ImageBuilder
from anabranch.meta import paths
from anabranch.meta.documents import (
    BrokerDocument,
    BrokerPlace,
    BrokersSeenDocument,
    ConfigDocument,
    ControllerDocument,
    PartitionState,
    PartitionStatesDocument,
    TopicDocument,
    encode,
)
from anabranch.meta.image import (
    NO_BROKER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicChange,
    collision_key,
)

EMPTY = ClusterImage(cluster_id="c")
ORDERS = TopicName.from_kafka("orders")
B1, B2, B3 = BrokerId(1), BrokerId(2), BrokerId(3)
ID = TopicId(uuid.UUID(int=1))
OLD = PartitionState(B1, LeaderEpoch(1), 2, (B1, B2), (B1, B2))
MOVED = PartitionState(B2, LeaderEpoch(4), 9, (B2,), (B1, B2))


def builder_of(image: ClusterImage, *documents: tuple[str, object]) -> ImageBuilder:
    builder = ImageBuilder(image)
    for path, document in documents:
        builder.apply(path, None if document is None else encode(document))
    return builder


def applied(image: ClusterImage, *documents: tuple[str, object]) -> ClusterImage:
    return builder_of(image, *documents).build()


def topic(name: str, id: int, partitions: int = 2, **config: str) -> tuple[str, TopicDocument]:
    document = TopicDocument(TopicId(uuid.UUID(int=id)), [(B1, B2)] * partitions, config, 0)
    return paths.topic(TopicName.from_kafka(name)), document


def states(topic: int, found: dict[int, PartitionState] | None, page: int = 0) -> tuple[str, object]:
    path = paths.partition_states(TopicId(uuid.UUID(int=topic)), page)
    return path, None if found is None else PartitionStatesDocument(found)


def test_a_topic_is_found_by_name_by_kafka_name_and_by_id() -> None:
    image = applied(EMPTY, topic("orders", 1, retention="5"), topic("persistent://a/b/c", 2))
    orders = image.topics[ORDERS]
    assert image.topics_by_kafka_name["orders"] is orders
    assert image.topics_by_id[TopicId(uuid.UUID(int=1))] is orders
    assert image.topics_by_kafka_name["persistent://a/b/c"].name == TopicName("a", "b", "c")
    assert orders.config == {"retention": "5"}
    assert orders.partitions[1] == PartitionImage(1, B1, LeaderEpoch(0), 0, (B1, B2), (B1, B2))
    assert orders.replication_factor == 2
    assert EMPTY.topics == {}


def test_internal_topics_are_known_by_name() -> None:
    image = applied(
        EMPTY,
        topic("orders", 1),
        topic("__consumer_offsets", 2),
        topic("persistent://a/b/__consumer_offsets", 3),
    )
    assert [t.is_internal for t in image.topics.values()] == [False, True, False]


def test_a_deleted_topic_is_nowhere() -> None:
    image = applied(EMPTY, topic("a.b", 1), topic("other", 2))
    image = applied(
        image, (paths.topic(TopicName.from_kafka("a.b")), None), ("/topics/public/default/x", None)
    )
    tables = (image.topics, image.topics_by_kafka_name, image.topics_by_id)
    assert [len(table) for table in tables] == [1, 1, 1]
    assert image.topics_by_collision_key == {}


def test_partition_state_replaces_the_default_and_survives_changes_of_the_topic() -> None:
    image = applied(EMPTY, topic("orders", 1), states(1, {1: MOVED}))
    expected = PartitionImage(1, B2, LeaderEpoch(4), 9, (B1, B2), (B2,))
    assert image.topics[ORDERS].partitions[1] == expected
    assert image.topics[ORDERS].partitions[0].leader_epoch == 0
    assert image.topics_by_id[ID] is image.topics_by_kafka_name["orders"] is image.topics[ORDERS]
    grown = applied(image, topic("orders", 1, partitions=3, a="b"))
    assert grown.topics[ORDERS].partitions[1] is image.topics[ORDERS].partitions[1]
    assert grown.topics[ORDERS].partitions[2].leader == B1
    again = applied(grown, states(1, {0: MOVED, 1: MOVED}))
    assert again.topics[ORDERS].partitions[1] is image.topics[ORDERS].partitions[1]
    assert again.topics[ORDERS].partitions[0].leader_epoch == 4
    assert again.topics[ORDERS].partitions[2] is grown.topics[ORDERS].partitions[2]


def test_replicas_are_those_of_the_state_whatever_the_topic_says() -> None:
    """Or a changed list would make the partition anew: epoch 0, and everybody in sync."""
    moved = PartitionState(B3, LeaderEpoch(4), 9, (B3,), (B3, B1))
    image = applied(EMPTY, topic("orders", 1), states(1, {0: moved}))
    expected = PartitionImage(0, B3, LeaderEpoch(4), 9, (B3, B1), (B3,))
    assert image.topics[ORDERS].partitions[0] == expected
    path, document = topic("orders", 1)
    document = replace(document, replicas=[(B3, B1), (B1, B2)])
    assert applied(image, (path, document)).topics[ORDERS].partitions[0] == expected


def test_a_topic_made_again_does_not_find_its_predecessors_state() -> None:
    image = applied(EMPTY, topic("orders", 1), states(1, {0: MOVED}), topic("orders", 2))
    assert image.topics[ORDERS].partitions[0].leader_epoch == 0
    assert list(image.topics_by_id) == [uuid.UUID(int=2)]
    assert applied(image, states(1, {0: MOVED})) == image
    assert applied(image, states(1, None)).partition_states == {}


def test_the_state_of_a_topic_on_several_pages() -> None:
    last = 2 * 4096 + 1
    image = applied(
        EMPTY,
        states(1, {last: MOVED}, page=2),
        topic("orders", 1, partitions=last + 1),
        states(1, {5: MOVED}),
    )
    epochs = [partition.leader_epoch for partition in image.topics[ORDERS].partitions]
    assert [index for index, epoch in enumerate(epochs) if epoch] == [5, last]


@given(st.data())
def test_the_image_does_not_depend_on_the_order_of_documents(data: st.DataObject) -> None:
    """Each document as it is in the end, in any order; before that as it was, or not there."""
    final = [
        topic("orders", 1, partitions=3),
        topic("bills", 2),
        topic("a.b", 4, x="y"),
        states(1, {0: MOVED, 2: MOVED}),
        states(2, {1: MOVED}),
        states(3, {0: MOVED}),
        ("/brokers/1", BrokerDocument("h", 9)),
        ("/controller", ControllerDocument(B1)),
        ("/topics/public/default/gone", None),
        states(5, None),
    ]
    earlier = [
        topic("orders", 9, partitions=1),
        topic("orders", 1, partitions=2),
        topic("gone", 5),
        (topic("bills", 2)[0], None),
        states(1, {0: OLD, 1: OLD}),
        states(2, None),
        states(5, {0: MOVED}),
    ]
    before = applied(EMPTY, *data.draw(st.lists(st.sampled_from(earlier), max_size=8)))
    order = data.draw(st.permutations(final))
    cut = data.draw(st.integers(0, len(order)))
    # A document that is replaced later may come between, and so may another build.
    image = applied(applied(before, *order[:cut]), *order[cut:])
    assert image == applied(EMPTY, *final)
    assert not builder_of(image, *data.draw(st.permutations(final))).changed


def test_brokers_and_the_controller_come_and_go() -> None:
    image = applied(
        EMPTY,
        ("/brokers", ""),
        ("/brokers/1", BrokerDocument("h", 9)),
        ("/controller", ControllerDocument(B1)),
    )
    assert image.brokers == {1: BrokerImage(B1, "h", 9, None)}
    assert image.controller_id == 1
    image = applied(image, ("/brokers/1", None), ("/controller", None))
    assert image.brokers == {}
    assert image.controller_id == NO_BROKER


def test_configs() -> None:
    image = applied(
        EMPTY,
        (paths.broker_config(B1), ConfigDocument({"a": "1"})),
        (paths.broker_config(None), ConfigDocument({"b": "2"})),
        (paths.client_metrics("x/y"), ConfigDocument({"c": "3"})),
    )
    assert image.broker_configs == {1: {"a": "1"}}
    assert image.default_broker_config == {"b": "2"}
    assert image.client_metrics == {"x/y": {"c": "3"}}
    gone = [
        (path, None)
        for path in ("/config/brokers/1", "/config/brokers/default", "/config/client-metrics/x%2Fy")
    ]
    assert applied(image, *gone) == EMPTY


@pytest.mark.parametrize("path", ["/", "/cluster", "/producer-ids", "/topics/public", "/later/things/1"])
def test_other_paths_mean_nothing(path: str) -> None:
    builder = ImageBuilder(EMPTY)
    builder.apply(path, b"anything")
    assert builder.build() == EMPTY


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/x",
        "/partitions/x",
        "/partitions/00000000-0000-0000-0000-000000000007-y",
        "/config/brokers/x",
        "/topics/public/default/a",
    ],
)
def test_damaged_documents_are_named(path: str) -> None:
    with pytest.raises(Corrupt, match=path):
        ImageBuilder(EMPTY).apply(path, b"{")


def test_changes_between_images() -> None:
    before = applied(EMPTY, topic("same", 1), topic("changed", 2), topic("deleted", 3), topic("again", 4))
    change = builder_of(
        before,
        topic("same", 1),
        topic("changed", 2, partitions=5),
        ("/topics/public/default/deleted", None),
        topic("again", 5),
        topic("new", 6),
    ).change()
    after = change.new

    def named(image: ClusterImage, name: str) -> object:
        return image.topics_by_kafka_name[name]

    assert change.old is before
    assert change.topics == [
        TopicChange(named(before, "deleted"), None),  # type: ignore[arg-type]
        TopicChange(named(before, "again"), None),  # type: ignore[arg-type]
        TopicChange(named(before, "changed"), named(after, "changed")),  # type: ignore[arg-type]
        TopicChange(None, named(after, "again")),  # type: ignore[arg-type]
        TopicChange(None, named(after, "new")),  # type: ignore[arg-type]
    ]
    assert [topic.name.local for topic in change.deleted] == ["deleted", "again"]
    assert ImageBuilder(after).change().topics == []


def test_what_did_not_change_is_the_same_object() -> None:
    before = applied(EMPTY, topic("a", 1), topic("b", 2))
    after = applied(before, topic("c", 3))
    assert after.topics is not before.topics
    assert after.topics_by_kafka_name["a"] is before.topics_by_kafka_name["a"]
    assert after.namespaces is before.namespaces
    assert after.brokers is before.brokers


def test_collision_keys() -> None:
    def key(name: str) -> str | None:
        return collision_key(TopicName.from_kafka(name))

    assert key("plain-name") is None
    assert key("a.b_c") == key("a_b.c") == key("a_b_c")
    assert key("a.b") != key("persistent://x/y/a.b")


def test_brokers_that_were_seen_and_are_away() -> None:
    seen = BrokersSeenDocument({B1: 5, B2: 6}, {}, {B1: BrokerPlace("a", 1), B2: BrokerPlace("b", 2, "r")})
    image = applied(EMPTY, (paths.CONTROLLER_BROKERS, seen), (paths.broker(B1), BrokerDocument("a", 1)))
    assert image.away == [BrokerImage(B2, "b", 2, "r")]
    assert applied(image, (paths.CONTROLLER_BROKERS, None)).away == []
