"""What only the controller does, asked of another broker."""

from pathlib import Path
from typing import Any

from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.destinations import Address
from anabranch.client.requests import Request
from anabranch.meta.image import NO_BROKER
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.two_nodes import TwoNodes, two_nodes

ELECT_LEADERS, REASSIGN, LIST_REASSIGNMENTS, UNREGISTER = 43, 45, 46, 64
MOVED = TopicName.from_kafka("moved")


async def ask(nodes: TwoNodes, key: int, **values: Any) -> Any:
    """The answer of the broker that is not the controller."""
    (other,) = (id for id, node in nodes.nodes.items() if node.parts.cluster.controller.epoch is None)
    address = Address("ab"[other - 1], 9092)
    client = nodes.client("x")
    try:
        return await client.ask(address, Request(key, values), 20)
    finally:
        client.close()


async def test_another_broker_has_the_controller_answer(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        await nodes.create(MOVED, 1)
        await nodes.settled(MOVED, 0)
        parts = [{"partition_index": 0, "replicas": [BrokerId(2), BrokerId(1)]}]
        topics = [{"name": "moved", "partitions": parts}]
        answer = await ask(nodes, REASSIGN, timeout=5000, topics=topics, allow_replication_factor_change=True)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
        listed = await ask(nodes, LIST_REASSIGNMENTS, timeout=5000, topics=None)
        assert (listed.error_code, listed.topics) == (0, [])
        wanted = [{"topic": "moved", "partitions": [0, 9]}]
        asked = {"timeout": 5000, "election_type": 0}
        elected = await ask(nodes, ELECT_LEADERS, **asked, topic_partitions=wanted)
        (topic,) = elected.replica_election_results
        assert [(part.partition_id, part.error_code) for part in topic.partition_result] == [
            (0, ErrorCode.none),
            (9, ErrorCode.unknown_topic_or_partition),
        ]
        everything = await ask(nodes, ELECT_LEADERS, **asked, topic_partitions=None)
        assert [one.topic for one in everything.replica_election_results] == ["moved"]
        gone = await ask(nodes, UNREGISTER, broker_id=9)
        assert gone.error_code == ErrorCode.broker_id_not_registered


async def test_without_a_controller_the_client_asks_again(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        for node in nodes.nodes.values():
            await node.parts.cluster.controller.resign()
        (first, *_) = nodes.nodes.values()
        assert first.parts.cluster.image.controller_id in (NO_BROKER, 1, 2)
        client = nodes.client("x")
        request = Request(LIST_REASSIGNMENTS, {"timeout": 1000, "topics": None})
        answer = await client.ask(Address("a", 9092), request, 20)
        client.close()
        assert answer.error_code == ErrorCode.not_controller
