"""Tenants and namespaces, and topics as Pulsar clients make them."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.base.config import section
from anabranch.base.disk import DirectDisk
from anabranch.base.errors import (
    Conflict,
    Exists,
    Fenced,
    Invalid,
    InvalidNamespace,
    InvalidPartitions,
    InvalidTopicName,
    NotEmpty,
    PolicyViolation,
    UnknownNamespace,
    UnknownTenant,
    UnknownTopic,
)
from anabranch.base.ids import BrokerId, Namespace, TopicId, TopicName
from anabranch.cluster.bundles import equal_bundles
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.pulsar_topics import PulsarTopics
from anabranch.cluster.topics import NewTopic, TopicDefaults
from anabranch.meta import paths
from anabranch.meta.documents import TenantDocument, TopicDocument, encode
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import BrokerImage, locate
from anabranch.meta.policies import (
    AutoTopicCreationOverride,
    NamespacePolicies,
    RetentionPolicies,
    TopicPolicies,
)
from anabranch.meta.policy_defaults import PolicyDefaults
from tests.support.tenancy import make_namespace
from tests.unit.cluster.test_cluster import FixedClock

PUBLIC = Namespace("public", "default")


async def opened(store: EmbeddedStore) -> Cluster:
    cluster = await Cluster.open(
        store, BrokerId(1), FixedClock(), random.Random(5), TopicDefaults(), lambda config: None, "here"
    )
    await cluster.register_broker(BrokerImage(BrokerId(1), "127.0.0.1", 9092))
    return cluster


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    yield store
    await store.close()


@pytest.fixture
async def cluster(store: EmbeddedStore) -> Cluster:
    return await opened(store)


def pulsar(cluster: Cluster, **options: str) -> PulsarTopics:
    defaults = section(PolicyDefaults, options)
    return PulsarTopics(cluster, lambda: defaults, "here")


def named(text: str) -> TopicName:
    return TopicName.from_pulsar(text)


# --- tenants and namespaces


async def test_what_a_new_cluster_has(cluster: Cluster) -> None:
    assert set(cluster.image.tenants) == {"public", "pulsar"}
    assert set(cluster.image.namespaces) == {PUBLIC, Namespace("pulsar", "system")}
    assert cluster.image.tenants["public"].allowed_clusters == ["here"]
    policies = cluster.image.namespaces[PUBLIC]
    assert policies.replication_clusters == ["here"]
    assert policies.bundles is not None
    assert policies.bundles.boundaries == [
        "0x00000000",
        "0x40000000",
        "0x80000000",
        "0xc0000000",
        "0xffffffff",
    ]


async def test_a_store_from_before_there_were_namespaces(store: EmbeddedStore) -> None:
    name = TopicName("old", "times", "t")
    document = b'{"id":"%s","replicas":[[1]],"config":{},"created_ms":5}' % str(uuid.UUID(int=3)).encode()
    await store.put(paths.topic(name), document)
    cluster = await opened(store)
    assert name.in_namespace in cluster.image.namespaces
    assert "old" in cluster.image.tenants
    topic = cluster.image.topics[name]
    assert (topic.id, topic.is_partitioned, topic.created_ms) == (TopicId(uuid.UUID(int=3)), True, 5)
    assert (topic.policies, topic.properties, topic.terminated) == (None, {}, {})


async def test_tenants_come_and_go(cluster: Cluster) -> None:
    tenants = cluster.tenants
    await tenants.create_tenant("t", TenantDocument(["admin"], ["here"]))
    assert cluster.image.tenants["t"] == TenantDocument(["admin"], ["here"])
    with pytest.raises(Exists):
        await tenants.create_tenant("t", TenantDocument())
    await tenants.update_tenant("t", TenantDocument([], ["here", "there"]))
    assert cluster.image.tenants["t"].allowed_clusters == ["here", "there"]
    await make_namespace(cluster, "t/n")
    with pytest.raises(NotEmpty, match="t/n"):
        await tenants.delete_tenant("t")
    await tenants.delete_namespace(Namespace("t", "n"))
    await tenants.delete_tenant("t")
    assert "t" not in cluster.image.tenants
    for change in (tenants.delete_tenant("t"), tenants.update_tenant("t", TenantDocument())):
        with pytest.raises(UnknownTenant):
            await change


@pytest.mark.parametrize("name", ["", "a/b", "..", "ü", "x" * 250, "a b"])
async def test_names_that_no_tenant_has(cluster: Cluster, name: str) -> None:
    with pytest.raises(InvalidNamespace):
        await cluster.tenants.create_tenant(name, TenantDocument())


async def test_namespaces_come_and_go(cluster: Cluster, store: EmbeddedStore) -> None:
    tenants, name = cluster.tenants, Namespace("public", "a=b:c")
    with pytest.raises(UnknownTenant):
        await tenants.create_namespace(Namespace("nobody", "n"), NamespacePolicies())
    await tenants.create_namespace(name, NamespacePolicies(message_ttl_in_seconds=5))
    with pytest.raises(Exists):
        await tenants.create_namespace(name, NamespacePolicies())
    await asyncio.gather(
        tenants.alter_namespace(name, lambda p: msgspec.structs.replace(p, max_producers_per_topic=1)),
        tenants.alter_namespace(name, lambda p: msgspec.structs.replace(p, max_consumers_per_topic=2)),
    )
    policies = cluster.image.namespaces[name]
    assert (policies.message_ttl_in_seconds, policies.max_producers_per_topic) == (5, 1)
    assert policies.max_consumers_per_topic == 2
    await cluster.create_topic(NewTopic(TopicName("public", "a=b:c", "t")))
    with pytest.raises(NotEmpty, match="public/a=b:c/t"):
        await tenants.delete_namespace(name)
    await cluster.delete_topic(TopicName("public", "a=b:c", "t"))
    await tenants.delete_namespace(name)
    assert name not in cluster.image.namespaces
    with pytest.raises(UnknownNamespace):
        await cluster.create_topic(NewTopic(TopicName("public", "a=b:c", "t")))
    with pytest.raises(UnknownNamespace):
        await tenants.alter_namespace(name, lambda p: p)
    with pytest.raises(UnknownNamespace):
        await tenants.delete_namespace(name)


async def test_no_topic_slips_into_a_namespace_that_goes(cluster: Cluster) -> None:
    for i in range(20):
        name = await make_namespace(cluster, f"public/n{i}")
        topic = TopicName("public", f"n{i}", "t")
        made, gone = await asyncio.gather(
            *(
                [cluster.create_topic(NewTopic(topic)), cluster.tenants.delete_namespace(name)]
                if i % 2
                else [asyncio.sleep(0, cluster), cluster.tenants.delete_namespace(name)]
            ),
            return_exceptions=True,
        )
        if name in cluster.image.namespaces:
            assert isinstance(gone, NotEmpty)
        else:
            assert topic not in cluster.image.topics
            assert not i % 2 or isinstance(made, Conflict | UnknownNamespace)


async def test_what_was_set_is_there_after_a_restart(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path / "m", DirectDisk(4))
    cluster = await opened(store)
    await make_namespace(cluster, "t/n")
    await cluster.tenants.alter_namespace(
        Namespace("t", "n"), lambda p: msgspec.structs.replace(p, retention_policies=RetentionPolicies(1, 2))
    )
    topics = pulsar(cluster)
    await topics.create(named("t/n/über alles"), None, {"k": "v"})
    await topics.create(named("non-persistent://t/n/parts"), 3)
    await topics.create(named("non-persistent://t/n/one"), None)
    await topics.alter_policies(named("t/n/über alles"), lambda p: TopicPolicies(max_producers_per_topic=4))
    await topics.store_epoch(named("t/n/über alles"), 0, 7)
    await topics.store_terminated(named("t/n/über alles"), 0, 100)
    await store.close()
    store = EmbeddedStore.open(tmp_path / "m", DirectDisk(4))
    again = await opened(store)
    topic = again.image.topics[named("t/n/über alles")]
    assert not topic.is_partitioned
    assert (topic.properties, topic.epochs, topic.terminated) == ({"k": "v"}, {0: 7}, {0: 100})
    assert topic.policies == TopicPolicies(max_producers_per_topic=4)
    assert again.image.namespaces[Namespace("t", "n")].retention_policies == RetentionPolicies(1, 2)
    assert set(again.image.non_persistent) == {named("non-persistent://t/n/parts")}  # the other is gone
    await store.close()


# --- topics


async def test_partitioned_and_not(cluster: Cluster) -> None:
    topics = pulsar(cluster)
    await topics.create(named("plain"), None)
    await topics.create(named("parts"), 3)
    for name in ("plain", "parts"):
        with pytest.raises(Exists):
            await topics.create(named(name), 2)
    image = cluster.image
    plain, parts = image.topics[named("plain")], image.topics[named("parts")]
    assert locate(image, named("plain")) == (plain, 0)
    assert locate(image, named("parts-partition-2")) == (parts, 2)
    for absent in ("parts", "parts-partition-3", "plain-partition-0", "nothing", "nothing-partition-0"):
        assert locate(image, named(absent)) is None
    await topics.add_partitions(named("parts"), 5)
    assert locate(cluster.image, named("parts-partition-4")) is not None
    for name, total in (("parts", 5), ("parts", 1), ("plain", 2)):
        with pytest.raises(InvalidPartitions):
            await topics.add_partitions(named(name), total)
    with pytest.raises(InvalidPartitions):
        await cluster.add_partitions(named("plain"), 4)  # as a Kafka client would
    with pytest.raises(UnknownTopic):
        await topics.add_partitions(named("nothing"), 2)


@pytest.mark.parametrize("name", ["t-partition-0", "parts-partition-1", "parts-partition-9"])
@pytest.mark.parametrize("count", [None, 2])
async def test_a_partitions_name_is_no_topics(cluster: Cluster, name: str, count: int | None) -> None:
    topics = pulsar(cluster)
    await topics.create(named("parts"), 2)
    with pytest.raises(InvalidTopicName):
        await topics.create(named(name), count)


async def test_names_that_collide_for_kafka_do_not_for_pulsar(cluster: Cluster) -> None:
    topics = pulsar(cluster)
    await topics.create(named("a.b"), None)
    await topics.create(named("a_b"), None)
    await cluster.create_topic(NewTopic(named("a.b_c")))
    with pytest.raises(InvalidTopicName):
        await cluster.create_topic(NewTopic(named("a_b_c")))
    await topics.delete(named("a.b"))
    assert set(cluster.image.topics) == {named("a_b"), named("a.b_c")}


async def test_creation_by_use(cluster: Cluster) -> None:
    topics = pulsar(cluster)
    made = await asyncio.gather(*(topics.find_or_create(named("t")) for _ in range(5)))
    assert {topic.name for topic in made} == {named("t")}
    assert not made[0].is_partitioned
    three = pulsar(cluster, allowAutoTopicCreationType="partitioned", defaultNumPartitions="3")
    assert (await three.find_or_create(named("three"))).partition_count == 3
    assert (await three.find_or_create(named("three-partition-1"))).partition_count == 3
    with pytest.raises(UnknownNamespace):
        await three.find_or_create(named("no/where/t"))
    with pytest.raises(UnknownTopic, match="does not create"):
        await pulsar(cluster, allowAutoTopicCreation="false").find_or_create(named("u"))
    await cluster.tenants.alter_namespace(
        PUBLIC,
        lambda p: msgspec.structs.replace(p, auto_topic_creation_override=AutoTopicCreationOverride(False)),
    )
    with pytest.raises(UnknownTopic):
        await topics.find_or_create(named("u"))
    assert (await topics.find_or_create(named("t"))).name == named("t")


async def test_topics_that_are_not_stored(cluster: Cluster) -> None:
    topics = pulsar(cluster)
    name = named("non-persistent://public/default/t")
    await topics.create(name, None)
    await topics.create(named("t"), 2)  # another topic
    with pytest.raises(Exists):
        await topics.create(name, 3)
    assert [topic.name for topic in cluster.image.topics_in(PUBLIC)] == [name, named("t")]
    await topics.alter_policies(name, lambda p: TopicPolicies(max_consumers_per_topic=3))
    await topics.alter_properties(name, lambda p: {**p, "a": "b"})
    assert topics.rules(name).max_consumers == 3
    assert cluster.image.non_persistent[name].properties == {"a": "b"}
    with pytest.raises(InvalidPartitions):
        await topics.add_partitions(name, 2)
    await topics.delete(name)
    with pytest.raises(UnknownTopic):
        await topics.delete(name)
    with pytest.raises(UnknownNamespace):
        await topics.create(named("non-persistent://public/none/t"), None)
    await topics.create(name, 2)
    await topics.add_partitions(name, 4)
    with pytest.raises(InvalidPartitions):
        await topics.add_partitions(name, 3)
    assert locate(cluster.image, name.partition(3)) is not None


@pytest.mark.parametrize(
    ("options", "wanted", "error"),
    [
        ({"maxNumPartitionsPerPartitionedTopic": "3"}, 4, PolicyViolation),
        ({"maxTopicsPerNamespace": "3"}, 4, PolicyViolation),
        ({"maxTopicsPerNamespace": "3"}, 3, None),
        ({}, 0, InvalidPartitions),
        ({}, -1, InvalidPartitions),
    ],
)
async def test_limits(
    cluster: Cluster, options: dict[str, str], wanted: int, error: type[Exception] | None
) -> None:
    topics = pulsar(cluster, **options)
    if error is None:
        await topics.create(named("t"), wanted)
        return
    with pytest.raises(error):
        await topics.create(named("t"), wanted)


async def test_rules_follow_what_is_set(cluster: Cluster) -> None:
    topics = pulsar(cluster)
    await topics.create(named("t"), None)
    before = topics.rules(named("t"))
    assert topics.rules(named("t")) is before
    await cluster.tenants.alter_namespace(
        PUBLIC, lambda p: msgspec.structs.replace(p, max_producers_per_topic=5)
    )
    assert topics.rules(named("t")).max_producers == 5
    await topics.alter_policies(named("t"), lambda p: msgspec.structs.replace(p, max_producers_per_topic=2))
    assert topics.rules(named("t")).max_producers == 2
    await topics.alter_policies(named("t"), lambda p: TopicPolicies())
    assert cluster.image.topics[named("t")].policies is None
    assert topics.rules(named("t")).max_producers == 5
    with pytest.raises(UnknownNamespace):
        topics.rules(named("no/where/t"))


async def test_an_epoch_only_grows_and_an_end_stays(cluster: Cluster) -> None:
    topics = pulsar(cluster)
    await topics.create(named("t"), 2)
    await topics.store_epoch(named("t"), 1, 3)
    with pytest.raises(Fenced):
        await topics.store_epoch(named("t"), 1, 2)
    await topics.store_terminated(named("t"), 0, 10)
    await topics.store_terminated(named("t"), 0, 20)
    topic = cluster.image.topics[named("t")]
    assert (topic.epochs, topic.terminated, topic.partition_count) == ({1: 3}, {0: 10}, 2)


async def test_documents_of_plain_topics_did_not_grow(cluster: Cluster, store: EmbeddedStore) -> None:
    await cluster.create_topic(NewTopic(named("t")))
    value = await store.get(paths.topic(named("t")))
    assert value is not None
    document: dict[str, Any] = msgspec.json.decode(value.data)
    assert set(document) == {"id", "replicas", "config", "created_ms"}
    assert encode(msgspec.json.decode(value.data, type=TopicDocument)) == value.data


@pytest.mark.parametrize("count", [0, -1, 1 << 20])
def test_numbers_of_bundles_there_are_none_of(count: int) -> None:
    with pytest.raises(Invalid):
        equal_bundles(count)
