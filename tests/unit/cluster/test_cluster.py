"""Changes of the cluster, with Kafka's rules.  The errors were compared with Apache Kafka 4.3's."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import (
    AnabranchError,
    DiskFull,
    Exists,
    Invalid,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    PolicyViolation,
    Unavailable,
    UnknownTopic,
    UnknownTopicId,
)
from anabranch.base.ids import BrokerId, TopicId, TopicName, id_text
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.identity import random_id
from anabranch.cluster.topics import NewTopic, TopicDefaults
from anabranch.meta import paths
from anabranch.meta.documents import ProducerIdsDocument, encode
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import BrokerImage, ImageChange
from tests.support.tenancy import make_namespace
from tests.unit.meta.faulty_disk import FaultyDisk


class FixedClock:
    def now_ms(self) -> int:
        return 1_000

    def monotonic(self) -> float:
        return 1.0


def no_bad_config(config: Mapping[str, str]) -> None:
    if "bad" in config:
        raise InvalidConfig("bad")


def topic(name: str) -> TopicName:
    return TopicName.from_kafka(name)


def new(name: str, partitions: int = -1, factor: int = -1, **more: object) -> NewTopic:
    return NewTopic(topic(name), partitions, factor, **more)  # type: ignore[arg-type]


async def join(store: EmbeddedStore, brokers: int = 1) -> Cluster:
    defaults = TopicDefaults(num_partitions=3, replication_factor=1)
    cluster = await Cluster.open(store, BrokerId(1), FixedClock(), random.Random(5), defaults, no_bad_config)
    for id in range(1, brokers + 1):
        await cluster.register_broker(BrokerImage(BrokerId(id), "127.0.0.1", 9090 + id))
    return cluster


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "metadata.journal"


@pytest.fixture
async def store(journal: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore.open(journal, DirectDisk(4))
    yield store
    await store.close()


@pytest.fixture
async def cluster(store: EmbeddedStore) -> Cluster:
    return await join(store)


@pytest.fixture
async def trio(store: EmbeddedStore) -> Cluster:
    return await join(store, brokers=3)


async def test_a_new_cluster(cluster: Cluster) -> None:
    image = cluster.image
    assert len(image.cluster_id) == 22
    assert len(base64.urlsafe_b64decode(image.cluster_id + "==")) == 16
    assert image.controller_id == 1
    (broker,) = image.brokers.values()
    assert broker == BrokerImage(BrokerId(1), "127.0.0.1", 9091, epoch=broker.epoch)
    assert broker.epoch > 0
    assert image.topics == {}


async def test_everything_is_there_after_a_restart(journal: Path) -> None:
    store = EmbeddedStore.open(journal, DirectDisk(4))
    cluster = await join(store)
    await cluster.create_topic(new("orders", 4, config={"retention.ms": "5"}))
    await make_namespace(cluster, "a/b")
    await cluster.create_topic(new("persistent://a/b/c"))
    await cluster.add_partitions(topic("orders"), 6)
    await cluster.replace_broker_config(BrokerId(1), {"x": "1"})
    await cluster.replace_broker_config(None, {"y": "2"})
    await cluster.replace_client_metrics("m", {"z": "3"})
    await store.close()
    again = EmbeddedStore.open(journal, DirectDisk(4))
    reopened = await join(again, brokers=0)
    assert reopened.image.brokers == {}
    await reopened.register_broker(BrokerImage(BrokerId(1), "127.0.0.1", 9091))
    assert reopened.image.brokers[BrokerId(1)].epoch > cluster.image.brokers[BrokerId(1)].epoch
    unlike = {"brokers": {}, "controller_epoch": 0}
    assert replace(reopened.image, **unlike) == replace(cluster.image, **unlike)
    await again.close()


async def test_create_with_defaults(cluster: Cluster) -> None:
    made = await cluster.create_topic(new("orders"))
    assert made is cluster.image.topics[topic("orders")]
    assert len(made.partitions) == 3
    assert made.id.version == 4
    assert all(partition.replicas == partition.isr == (1,) for partition in made.partitions)


async def test_create_on_several_brokers(trio: Cluster) -> None:
    made = await trio.create_topic(new("orders", 6, 2))
    leaders = [partition.leader for partition in made.partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    grown = await trio.add_partitions(topic("orders"), 9)
    assert [partition.leader for partition in grown.partitions] == leaders + leaders[:3]
    assert grown.partitions[0] is made.partitions[0]


async def test_create_as_assigned(trio: Cluster) -> None:
    made = await trio.create_topic(new("orders", assignments=[(1, [3, 2]), (0, [1, 2])]))
    assert [partition.replicas for partition in made.partitions] == [(1, 2), (3, 2)]


async def test_validate_only_changes_nothing(cluster: Cluster, store: EmbeddedStore) -> None:
    before = cluster.image
    planned = await cluster.create_topic(new("orders", 5), validate_only=True)
    assert len(planned.partitions) == 5
    assert cluster.image is before
    assert await store.get("/topics/public/default/orders") is None
    await cluster.create_topic(new("orders", 1))
    planned = await cluster.add_partitions(topic("orders"), 4, validate_only=True)
    assert len(planned.partitions) == 4
    assert len(cluster.image.topics[topic("orders")].partitions) == 1


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (new("a_b"), InvalidTopicName),
        (new("a.b"), Exists),
        (new("a.b", 0, 9), Exists),
        (new("x", 0), InvalidPartitions),
        (new("x", -2), InvalidPartitions),
        (new("x", 1, 0), InvalidReplicationFactor),
        (new("x", 1, -2), InvalidReplicationFactor),
        (new("x", 1, 5), InvalidReplicationFactor),
        (new("x", 0, 0), InvalidReplicationFactor),
        (new("x", 0, 0, config={"bad": "1"}), InvalidConfig),
        (new("x", 10_001), PolicyViolation),
        (new("x", 2**31 - 1), PolicyViolation),
        (new("x", 20_000, 5), PolicyViolation),
        (new("x", 1, -1, assignments=[(0, [1])]), Invalid),
        (new("x", -1, 1, assignments=[(0, [1])]), Invalid),
        (new("x", assignments=[(1, [1])]), InvalidReplicaAssignment),
        (new("x", assignments=[(-1, [1])]), InvalidReplicaAssignment),
        (new("x", assignments=[(0, [1]), (2, [1])]), InvalidReplicaAssignment),
        (new("x", assignments=[(0, [1]), (0, [1])]), InvalidReplicaAssignment),
        (new("x", assignments=[(0, [9])]), InvalidReplicaAssignment),
        (new("x", assignments=[(0, [1, 1])]), InvalidReplicaAssignment),
        (new("x", assignments=[(0, [])]), InvalidReplicaAssignment),
        (new("x", assignments=[(i, [1]) for i in range(10_001)]), PolicyViolation),
        (new("__cluster_metadata"), Invalid),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_topics_that_cannot_be(
    cluster: Cluster, wanted: NewTopic, error: type[AnabranchError], validate_only: bool
) -> None:
    await cluster.create_topic(new("a.b"))
    with pytest.raises(error) as caught:
        await cluster.create_topic(wanted, validate_only)
    assert type(caught.value) is error
    assert list(cluster.image.topics) == [topic("a.b")]


async def test_names_collide_within_a_namespace_only(cluster: Cluster) -> None:
    await cluster.create_topic(new("a.b"))
    await make_namespace(cluster, "public/other")
    await cluster.create_topic(new("persistent://public/other/a_b"))
    await cluster.delete_topic(topic("a.b"))
    await cluster.create_topic(new("a_b"))


async def test_of_concurrent_creations_one_wins(cluster: Cluster) -> None:
    outcomes = await asyncio.gather(
        *(cluster.create_topic(new("orders")) for _ in range(10)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Exists"] * 9 + ["TopicImage"]


async def test_of_concurrent_colliding_creations_one_wins(cluster: Cluster) -> None:
    outcomes = await asyncio.gather(
        cluster.create_topic(new("a.b")), cluster.create_topic(new("a_b")), return_exceptions=True
    )
    assert isinstance(outcomes[1], InvalidTopicName)
    assert list(cluster.image.topics) == [topic("a.b")]


async def test_many_creations_share_syncs_and_images(journal: Path) -> None:
    disk = FaultyDisk()
    store = EmbeddedStore.open(journal, disk)
    cluster = await join(store)
    before, images = disk.syncs, []
    cluster.subscribe(lambda change: images.append(change.new))
    await asyncio.gather(*(cluster.create_topic(new(f"t{i}", 10)) for i in range(200)))
    assert disk.syncs - before <= 2
    assert len(images) <= 2
    assert len(cluster.image.topics) == 200
    await store.close()


async def test_a_full_disk_refuses_a_topic_and_later_takes_it(journal: Path) -> None:
    disk = FaultyDisk()
    store = EmbeddedStore.open(journal, disk)
    cluster = await join(store)
    disk.room_bytes = 20
    with pytest.raises(DiskFull):
        await cluster.create_topic(new("orders"))
    assert cluster.image.topics == {}
    disk.room_bytes = None
    await cluster.create_topic(new("orders"))
    await store.close()


async def test_delete_by_name_and_by_id(cluster: Cluster) -> None:
    first = await cluster.create_topic(new("first"))
    second = await cluster.create_topic(new("second"))
    assert await cluster.delete_topic(topic("first")) is first
    assert await cluster.delete_topic(second.id) is second
    assert cluster.image.topics_by_id == {}
    with pytest.raises(UnknownTopic):
        await cluster.delete_topic(topic("first"))
    with pytest.raises(UnknownTopicId):
        await cluster.delete_topic(second.id)


async def test_of_concurrent_deletions_one_wins(cluster: Cluster) -> None:
    made = await cluster.create_topic(new("orders"))
    outcomes = await asyncio.gather(
        cluster.delete_topic(made.id), cluster.delete_topic(made.name), return_exceptions=True
    )
    assert outcomes[0] is made
    assert isinstance(outcomes[1], UnknownTopic)


async def test_internal_topics_can_be_deleted_and_grown(cluster: Cluster) -> None:
    made = await cluster.create_topic(new("__consumer_offsets", 1))
    assert made.is_internal
    assert len((await cluster.add_partitions(made.name, 2)).partitions) == 2
    await cluster.delete_topic(made.name)


async def test_deletion_takes_the_state_of_partitions_along(cluster: Cluster, store: EmbeddedStore) -> None:
    made = await cluster.create_topic(new("orders", 2))
    assert await store.children(paths.PARTITIONS) == [], "a topic is made without"
    await cluster.controller.elect_leader(made.name, 1, BrokerId(1), "a test")
    assert len(await store.children(paths.PARTITIONS)) == 1
    await cluster.delete_topic(made.name)
    assert await store.children(paths.PARTITIONS) == []
    assert cluster.image.partition_states == {}


@pytest.mark.parametrize(
    ("total", "assignments", "error"),
    [
        (2, None, InvalidPartitions),
        (1, None, InvalidPartitions),
        (-1, None, InvalidPartitions),
        (10_003, None, PolicyViolation),
        (3, [[1], [1]], InvalidReplicaAssignment),
        (4, [[1]], InvalidReplicaAssignment),
        (3, [[9]], InvalidReplicaAssignment),
        (3, [[1, 1]], InvalidReplicaAssignment),
        (3, [[]], InvalidReplicaAssignment),
        (3, [], InvalidReplicaAssignment),
    ],
)
async def test_partitions_that_cannot_be_added(
    cluster: Cluster, total: int, assignments: list[list[int]] | None, error: type[AnabranchError]
) -> None:
    await cluster.create_topic(new("orders", 2))
    with pytest.raises(error):
        await cluster.add_partitions(topic("orders"), total, assignments)
    with pytest.raises(UnknownTopic):
        await cluster.add_partitions(topic("nope"), total, assignments)
    assert len(cluster.image.topics[topic("orders")].partitions) == 2


async def test_add_partitions_as_assigned(trio: Cluster) -> None:
    await trio.create_topic(new("orders", assignments=[(0, [1, 2])]))
    grown = await trio.add_partitions(topic("orders"), 3, [[3, 1], [2, 3]])
    assert [partition.replicas for partition in grown.partitions] == [(1, 2), (3, 1), (2, 3)]
    with pytest.raises(InvalidReplicaAssignment):
        await trio.add_partitions(topic("orders"), 4, [[1]])


async def test_topic_configuration(cluster: Cluster) -> None:
    made = await cluster.create_topic(new("orders", config={"a": "1"}))
    changed = await cluster.replace_topic_config(topic("orders"), {"b": "2"})
    assert changed.config == {"b": "2"}
    assert changed.partitions == made.partitions
    with pytest.raises(InvalidConfig):
        await cluster.replace_topic_config(topic("orders"), {"bad": ""})
    with pytest.raises(UnknownTopic):
        await cluster.replace_topic_config(topic("nope"), {})
    assert cluster.image.topics[topic("orders")].config == {"b": "2"}


async def test_concurrent_alterations_are_not_lost(cluster: Cluster) -> None:
    await cluster.create_topic(new("orders"))
    for alter in (
        lambda key: cluster.alter_topic_config(topic("orders"), lambda was: {**was, key: "1"}),
        lambda key: cluster.alter_broker_config(BrokerId(1), lambda was: {**was, key: "1"}),
        lambda key: cluster.alter_broker_config(None, lambda was: {**was, key: "1"}),
        lambda key: cluster.alter_client_metrics("m", lambda was: {**was, key: "1"}),
    ):
        await asyncio.gather(*(alter(f"k{i}") for i in range(10)))
    image = cluster.image
    for overrides in (
        image.topics[topic("orders")].config,
        image.broker_configs[BrokerId(1)],
        image.default_broker_config,
        image.client_metrics["m"],
    ):
        assert len(overrides) == 10


async def test_configuration_that_is_emptied_is_gone(cluster: Cluster, store: EmbeddedStore) -> None:
    for overrides in ({"a": "1"}, {}, {}):
        await cluster.replace_broker_config(None, overrides)
        await cluster.replace_broker_config(BrokerId(2), overrides)
        await cluster.replace_client_metrics("m", overrides)
        assert cluster.image.default_broker_config == overrides
        assert len(cluster.image.broker_configs) == len(cluster.image.client_metrics) == len(overrides)
    assert await store.children(paths.BROKER_CONFIGS) == []
    with pytest.raises(Invalid):
        await cluster.replace_client_metrics("", {})


async def test_an_id_in_use_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Exists, match=r"node\.id"):
        await cluster.register_broker(BrokerImage(BrokerId(1), "elsewhere", 1))


async def test_producer_ids_are_never_given_twice(journal: Path) -> None:
    taken: list[range] = []
    for _ in range(3):
        store = EmbeddedStore.open(journal, DirectDisk(4))
        cluster = await join(store)
        taken += await asyncio.gather(*(cluster.allocate_producer_ids() for _ in range(4)))
        await store.close()
    assert taken == [range(start, start + 1000) for start in range(0, 12_000, 1000)]


async def test_two_nodes_share_producer_ids(store: EmbeddedStore) -> None:
    one, other = await join(store), await join(store, brokers=0)
    blocks = await asyncio.gather(*(node.allocate_producer_ids() for _ in range(5) for node in (one, other)))
    assert sorted(block.start for block in blocks) == list(range(0, 10_000, 1000))


async def test_producer_ids_end(cluster: Cluster, store: EmbeddedStore) -> None:
    await store.put(paths.PRODUCER_IDS, encode(ProducerIdsDocument(2**63 - 500)))
    with pytest.raises(Unavailable):
        await cluster.allocate_producer_ids()


async def test_subscribers_see_a_topic_before_its_creator_does(cluster: Cluster) -> None:
    seen: list[tuple[str | None, str | None]] = []

    def subscriber(change: ImageChange) -> None:
        assert change.new is cluster.image
        for before, after in change.topics:
            seen.append((before and before.name.kafka, after and after.name.kafka))

    stop = cluster.subscribe(subscriber)
    await cluster.create_topic(new("a"))
    assert seen == [(None, "a")]
    await cluster.delete_topic(topic("a"))
    assert seen[1:] == [("a", None)]
    stop()
    await cluster.create_topic(new("b"))
    assert len(seen) == 2


async def test_what_another_node_changes_arrives_by_itself(store: EmbeddedStore) -> None:
    one, other = await join(store), await join(store, brokers=0)
    arrived = asyncio.Event()
    other.subscribe(lambda change: arrived.set())
    following = asyncio.create_task(other.run())
    made = await one.create_topic(new("orders"))
    await asyncio.wait_for(arrived.wait(), 60)
    assert other.image.topics_by_id[made.id].name == made.name
    assert other.image.cluster_id == one.image.cluster_id
    arrived.clear()
    await one.controller.elect_leader(made.name, 0, BrokerId(1), "a test")
    await asyncio.wait_for(arrived.wait(), 60)
    assert other.image.topics_by_id[made.id].partitions[0].leader_epoch == 1
    following.cancel()
    await asyncio.wait([following])


async def test_who_lags_does_not_grow_a_topic_twice(store: EmbeddedStore) -> None:
    one, late = await join(store, brokers=3), await join(store, brokers=0)
    made = await one.create_topic(new("orders", 4))
    await late.is_gone("orders", 0)
    await one.add_partitions(made.name, 6)
    assert late.image.topics[made.name].partition_count == 4
    with pytest.raises(InvalidPartitions, match="has 6 partition"):
        await late.add_partitions(made.name, 6)
    assert (await late.add_partitions(made.name, 7)).partition_count == 7


async def test_who_lags_deletes_no_other_topic_of_the_name(store: EmbeddedStore) -> None:
    one, late = await join(store), await join(store, brokers=0)
    made = await one.create_topic(new("orders"))
    await late.is_gone("orders", 0)
    await one.delete_topic(made.name)
    again = await one.create_topic(new("orders"))
    assert late.image.topics[made.name].id == made.id
    with pytest.raises(UnknownTopicId):
        await late.delete_topic(made.id)
    assert await store.get(paths.topic(made.name)) is not None
    await one.delete_topic(again.id)
    with pytest.raises(UnknownTopic):
        await late.delete_topic(made.name)


async def test_who_lags_makes_a_topic_that_another_broker_has_deleted(store: EmbeddedStore) -> None:
    one, late = await join(store), await join(store, brokers=0)
    made = await one.create_topic(new("orders"))
    await late.is_gone("orders", 0)
    await one.delete_topic(made.name)
    assert made.name in late.image.topics
    assert (await late.create_topic(new("orders"))).id != made.id


async def test_two_brokers_change_the_same_at_once(store: EmbeddedStore) -> None:
    one, other = await join(store), await join(store, brokers=0)
    made = await one.create_topic(new("orders"))
    changes = [
        change
        for number, cluster in enumerate((one, other) * 5)
        for overrides in [{str(number): "1"}]
        for change in (
            cluster.alter_topic_config(made.name, lambda now, more=overrides: {**now, **more}),  # type: ignore[misc]
            cluster.alter_broker_config(None, lambda now, more=overrides: {**now, **more}),  # type: ignore[misc]
        )
    ]
    await asyncio.gather(*changes)
    expected = {str(number): "1" for number in range(10)}
    await asyncio.gather(*(cluster.is_gone("none", 0) for cluster in (one, other)))
    assert one.image.topics[made.name].config == expected
    assert one.image.default_broker_config == expected
    gone = [cluster.alter_broker_config(None, lambda now: {}) for cluster in (one, other)]
    await asyncio.gather(*gone)
    assert one.image.default_broker_config == {}


async def test_a_creator_that_gives_up_leaves_no_gap(cluster: Cluster) -> None:
    creation = asyncio.create_task(cluster.create_topic(new("orders")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    creation.cancel()
    await asyncio.wait([creation])
    await cluster.create_topic(new("other"))  # shares or follows the round of the first
    assert {name.kafka for name in cluster.image.topics} in ({"other"}, {"orders", "other"})
    made = TopicId(random_id(random.Random(1)))
    with pytest.raises(UnknownTopicId, match=id_text(made)):
        await cluster.delete_topic(made)


def test_ids_do_not_start_like_an_option() -> None:
    chance = random.Random(0)
    texts = [id_text(random_id(chance)) for _ in range(2000)]
    assert not any(text.startswith("-") for text in texts)
    assert any("-" in text for text in texts)
    assert {len(text) for text in texts} == {22}
