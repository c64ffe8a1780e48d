"""Topics and the configuration they get, when both change at once."""

import asyncio
from pathlib import Path

from anabranch.base.ids import TopicName
from anabranch.cluster.topics import NewTopic
from anabranch.node import Node
from anabranch.server.config_file import load


async def test_a_topic_made_while_the_brokers_defaults_change(tmp_path: Path) -> None:
    """Both arrive in one image: the topic is hosted before the defaults are applied to all."""
    node = Node(load(None, {}, {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await node.start()
    try:
        cluster, host = node._listener.services.cluster, node._listener.services.partitions
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
