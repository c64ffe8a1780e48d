"""One INFO line for every change of a topic, a namespace or a configuration, by the broker that made it."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.base.errors import AnabranchError, Exists, UnknownTopic
from anabranch.base.ids import BrokerId, Namespace, TopicName, id_text
from anabranch.cluster import change_lines
from anabranch.cluster.topics import NewTopic
from anabranch.meta.policies import NO_TOPIC_POLICIES, NamespacePolicies
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker

ORDERS = TopicName.from_kafka("orders")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with open_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, broker: WholeBroker) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="anabranch.cluster")
    caplog.clear()
    return caplog


async def test_the_life_of_a_topic(broker: WholeBroker, lines: pytest.LogCaptureFixture) -> None:
    cluster = broker.services.cluster
    made = await cluster.create_topic(NewTopic(ORDERS, 3, config={"retention.ms": "5000"}, asked_by="a test"))
    id = id_text(made.id)
    assert lines.messages == [f"orders: created with 3 partitions of 1 replica, id {id}, asked for by a test"]
    lines.clear()
    await cluster.add_partitions(ORDERS, 4)
    await cluster.alter_topic_config(ORDERS, lambda _: {"retention.ms": "1000", "segment.bytes": "1048576"})
    await cluster.alter_topic_config(ORDERS, lambda _: {"segment.bytes": "1048576"})
    await cluster.alter_topic_config(ORDERS, lambda before: before)
    await cluster.alter_topic_properties(ORDERS, lambda _: {"owner": "shop"})
    await cluster.terminate(ORDERS, 2, 17)
    await cluster.store_topic_epoch(ORDERS, 0, 1)
    await cluster.delete_topic(made.id, asked_by="another")
    assert lines.messages == [
        "orders: grown from 3 to 4 partitions",
        "orders: configuration changed: retention.ms=1000 (was 5000), segment.bytes=1048576",
        "orders: configuration changed: retention.ms unset",
        "orders: properties changed: owner=shop",
        "orders: partition 2 terminated at offset 17, it takes no more messages",
        f"orders: deleted with its 4 partitions, id {id}, asked for by another",
    ]


async def test_what_does_not_happen_is_not_told(broker: WholeBroker, lines: pytest.LogCaptureFixture) -> None:
    cluster = broker.services.cluster
    await cluster.create_topic(NewTopic(ORDERS, 1), validate_only=True)
    await cluster.create_topic(NewTopic(ORDERS, 1))
    lines.clear()
    await cluster.add_partitions(ORDERS, 2, validate_only=True)
    with pytest.raises(Exists):
        await cluster.create_topic(NewTopic(ORDERS, 1))
    with pytest.raises(UnknownTopic):
        await cluster.delete_topic(TopicName.from_kafka("other"))
    with pytest.raises(AnabranchError):
        await cluster.alter_topic_config(ORDERS, lambda _: {"retention.ms": "soon"})
    assert lines.messages == []


async def test_policies_and_namespaces(broker: WholeBroker, lines: pytest.LogCaptureFixture) -> None:
    cluster = broker.services.cluster
    await cluster.create_topic(NewTopic(ORDERS, 1))
    lines.clear()
    policies = NO_TOPIC_POLICIES.__class__(max_producers_per_topic=2)
    await cluster.alter_topic_policies(ORDERS, lambda _: policies)
    shop = Namespace("public", "shop")
    await cluster.tenants.create_namespace(shop, NamespacePolicies())
    await cluster.tenants.alter_namespace(shop, lambda _: NamespacePolicies(max_topics_per_namespace=5))
    await cluster.tenants.alter_namespace(shop, lambda before: before)
    await cluster.tenants.delete_namespace(shop)
    assert lines.messages == [
        "orders: policies changed: max_producers_per_topic=2",
        "namespace public/shop: created",
        "namespace public/shop: policies changed: max_topics_per_namespace=5",
        "namespace public/shop: deleted",
    ]


async def test_other_configuration(broker: WholeBroker, lines: pytest.LogCaptureFixture) -> None:
    cluster = broker.services.cluster
    await cluster.alter_broker_config(BrokerId(1), lambda _: {"ssl.key.password": "hush"})
    await cluster.alter_broker_config(None, lambda _: {"log.retention.ms": "2"})
    await cluster.alter_broker_config(None, lambda before: before)
    await cluster.alter_group_config("shop", lambda _: {"consumer.session.timeout.ms": "50000"})
    await cluster.replace_client_metrics("all", {"interval.ms": "1000"})
    told = [record.getMessage() for record in lines.records if record.levelno == logging.INFO]
    assert told == [
        "broker 1: configuration changed: ssl.key.password",
        "all brokers: configuration changed: log.retention.ms",
        "group shop: configuration changed: consumer.session.timeout.ms=50000",
        "client metrics all: configuration changed: interval.ms=1000",
    ]


async def test_a_request_says_who_asked(broker: WholeBroker, lines: pytest.LogCaptureFixture) -> None:
    await broker.ask(19, 7, topics=[{"name": "orders", "num_partitions": 1, "replication_factor": 1}])
    await broker.ask(20, 6, topics=[{"name": "orders"}])
    await broker.ask(3, 12, topics=[{"name": "clicks"}], allow_auto_topic_creation=True)
    asked = "asked for by client 'test' at 127.0.0.1:50000"
    assert [(line.split(" ")[:2], line.endswith(asked)) for line in lines.messages] == [
        (["orders:", "created"], True),
        (["orders:", "deleted"], True),
        (["clicks:", "created"], True),
    ]


def test_overrides_are_told_by_what_differs() -> None:
    before, after = {"a": "1", "b": "2", "c": "3"}, {"b": "2", "c": "4", "d": "5"}
    assert change_lines.overrides(before, after) == "a unset, c=4 (was 3), d=5"
    assert change_lines.names(before, after) == "a, c, d"
