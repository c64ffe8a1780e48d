"""Topics and the configuration they get, when both change at once."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from anabranch.base.errors import PolicyViolation
from anabranch.base.ids import TopicName
from anabranch.cluster.topics import NewTopic
from anabranch.meta.policies import RetentionPolicies, TopicPolicies
from anabranch.node import Node, this_machine
from anabranch.server.config_file import load
from tests.support.logs import records

NO_PORTS = {"listeners": "PLAINTEXT://127.0.0.1:0", "brokerServicePort": "-1", "webServicePort": "-1"}


async def test_a_topic_made_while_the_brokers_defaults_change(tmp_path: Path) -> None:
    """Both arrive in one image: the topic is hosted before the defaults are applied to all."""
    node = Node(load(None, {}, {"log.dirs": str(tmp_path), **NO_PORTS}), this_machine())
    await node.start()
    try:
        cluster, host = node.parts.cluster, node.parts.host
        for i in range(10):
            name = TopicName.from_kafka(f"t{i}")
            await asyncio.gather(
                cluster.replace_broker_config(None, {"log.retention.ms": str(1000 + i)}),
                cluster.create_topic(NewTopic(name, 1)),
            )
            assert host.topic(name.kafka).config.retention_ms == 1000 + i
        assert node.failed is not None
        assert not node.failed.done()
    finally:
        await node.stop()


async def test_retention_set_the_pulsar_way(tmp_path: Path) -> None:
    """A namespace's or a topic's retention takes the place of the log's; without one the log has its own."""
    node = Node(load(None, {}, {"log.dirs": str(tmp_path), **NO_PORTS}), this_machine())
    await node.start()
    try:
        cluster, host = node.parts.cluster, node.parts.host
        name = TopicName.from_kafka("t")
        await cluster.create_topic(NewTopic(name, 1, config={"retention.ms": "7"}))

        def retention() -> tuple[int, int]:
            config = host.topic("t").config
            return config.retention_ms, config.retention_bytes

        assert retention() == (7, -1)
        await cluster.tenants.alter_namespace(
            name.in_namespace, lambda p: replace(p, retention_policies=RetentionPolicies(1, 2))
        )
        assert retention() == (60_000, 2 << 20)
        own = TopicPolicies(retention_policies=RetentionPolicies(-1, -1))
        await cluster.alter_topic_policies(name, lambda p: own)
        assert retention() == (-1, -1)
        await cluster.replace_broker_config(None, {"log.retention.ms": "9"})
        assert retention() == (-1, -1)
        await cluster.alter_topic_policies(name, lambda p: TopicPolicies())
        await cluster.tenants.alter_namespace(
            name.in_namespace, lambda p: replace(p, retention_policies=None)
        )
        assert retention() == (7, -1)
    finally:
        await node.stop()


async def test_a_terminated_topic_takes_nothing_from_kafka_either(tmp_path: Path) -> None:
    for restarted in (False, True):
        node = Node(load(None, {}, {"log.dirs": str(tmp_path), **NO_PORTS}), this_machine())
        await node.start()
        try:
            cluster, host = node.parts.cluster, node.parts.host
            name = TopicName.from_kafka("t")
            if not restarted:
                await cluster.create_topic(NewTopic(name, 2))
                host.partition("t", 1).append(memoryview(records("a")), 1)
                await cluster.terminate(name, 1, 1)
            host.partition("t", 0).append(memoryview(records("a")), 1)
            with pytest.raises(PolicyViolation, match="terminated"):
                host.partition("t", 1).append(memoryview(records("b")), 1)
        finally:
            await node.stop()
