"""Nodes in one process: each in a world of its own, on one store and one wire."""

import io
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kio.serial import entity_reader, entity_writer

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Unavailable
from anabranch.base.ids import BrokerId, TopicName
from anabranch.cluster.topics import NewTopic
from anabranch.meta.embedded import EmbeddedStore
from anabranch.node import Node
from anabranch.wire.kafka.schema import request_schema, response_schema
from tests.compat.clients.raw import METADATA, build
from tests.support.links import Upper
from tests.support.logs import records
from tests.support.memory_network import MemoryNetwork, Wire
from tests.support.waiting import until
from tests.support.worlds import Inline, a_node, a_world

VERSION = 12
ORDERS = TopicName.from_kafka("orders")


class Cluster(NamedTuple):
    """What the nodes share."""

    folder: Path
    wire: Wire
    store: EmbeddedStore


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    yield Cluster(tmp_path, Wire(), store)
    await store.close()


def node_of(cluster: Cluster, name: str) -> AbstractAsyncContextManager[Node]:
    world = a_world(network=cluster.wire.host(name), store=cluster.store)
    settings = {"listeners": f"PLAINTEXT://{name}:9092", "brokerServicePort": "-1"}
    return a_node(cluster.folder / name, world, node_id=str("-ab".index(name)), **settings)


async def metadata(network: MemoryNetwork, host: str) -> Any:
    """What the broker there says of the cluster."""
    body = io.BytesIO()
    entity_writer(request_schema(METADATA, VERSION))(body, build(request_schema(METADATA, VERSION), {}))
    request = struct.pack(">hhihB", METADATA, VERSION, 7, -1, 0) + body.getvalue()
    mine = Upper()
    link = await network.connect(host, 9092, mine, 10)
    link.send([struct.pack(">i", len(request)), request])
    await until(lambda: len(mine.got) > 4 and len(mine.got) == 4 + struct.unpack_from(">i", mine.got)[0])
    link.close()
    await until(lambda: "closed" in mine.happened)
    answer, _ = entity_reader(response_schema(METADATA, VERSION))(mine.got, 9)
    return answer


async def test_two_nodes_of_one_cluster(cluster: Cluster) -> None:
    async with node_of(cluster, "a") as a, node_of(cluster, "b") as b:
        assert (a.addresses["kafka"], b.addresses["kafka"]) == ("a:9092", "b:9092")
        await a.parts.cluster.create_topic(NewTopic(ORDERS))
        await until(lambda: ORDERS in b.parts.cluster.image.topics)
        await until(lambda: BrokerId(2) in a.parts.cluster.image.brokers)
        for host in ("a", "b"):
            answer = await metadata(cluster.wire.host("c"), host)
            assert [(broker.node_id, broker.host) for broker in answer.brokers] == [(1, "a"), (2, "b")]
            assert [topic.name for topic in answer.topics] == ["orders"]


async def test_one_node_stops_and_the_other_goes_on(cluster: Cluster) -> None:
    client = cluster.wire.host("c")
    async with node_of(cluster, "a") as a:
        async with node_of(cluster, "b"):
            await metadata(client, "b")
        with pytest.raises(Unavailable):
            await client.connect("b", 9092, Upper(), 10)
        await until(lambda: set(a.parts.cluster.image.brokers) == {1})
        await a.parts.cluster.create_topic(NewTopic(ORDERS))
        assert [topic.name for topic in (await metadata(client, "a")).topics] == ["orders"]
        assert a.failed is not None
        assert not a.failed.done()


async def test_a_part_that_is_cancelled_is_missed(cluster: Cluster) -> None:
    async with node_of(cluster, "a") as a:
        assert a.failed is not None
        a._tasks[-1].cancel()
        await until(a.failed.done)
        assert "was cancelled" in str(a.failed.exception())
    async with node_of(cluster, "b") as b:
        assert b.failed is not None
    assert not b.failed.done()


async def test_the_controller_stops_and_the_other_node_takes_over(cluster: Cluster) -> None:
    first = AsyncExitStack()
    b = await first.enter_async_context(node_of(cluster, "b"))
    async with node_of(cluster, "a") as a:
        one, other = a.parts.cluster, b.parts.cluster
        assert one.image.controller_id == BrokerId(2)
        await until(lambda: set(other.image.brokers) == {1, 2})
        await other.create_topic(NewTopic(ORDERS, assignments=[(0, [1, 2])]))
        await other.controller.elect_leader(ORDERS, 0, BrokerId(2), "a test")
        await until(lambda: ORDERS in one.image.topics and one.image.topics[ORDERS].partitions[0].leader == 2)
        await first.aclose()
        await until(lambda: one.controller.epoch == 1)
        assert set(one.image.brokers) == {1}
        state = one.image.topics[ORDERS].partitions[0]
        assert (state.leader, state.leader_epoch, state.isr) == (1, 2, (1,)), "it was handed over"
        state = await one.controller.elect_leader(ORDERS, 0, BrokerId(1), "a test")
        assert (state.leader, state.leader_epoch, state.isr) == (1, 3, (1,))


async def test_a_node_without_threads(tmp_path: Path) -> None:
    """Whatever blocks goes to the executors that it was given, and nowhere else."""
    wire, before = Wire(), threading.active_count()
    asked: list[str] = []

    def inline(name: str, threads: int) -> Inline:
        asked.append(name)
        return Inline(name, threads)

    world = a_world(network=wire.host("a"), executors=inline)
    listeners = {"listeners": "PLAINTEXT://a:9092"}
    async with a_node(tmp_path, world, **listeners) as node:
        await node.parts.cluster.create_topic(NewTopic(ORDERS, config={"flush.messages": "1"}))
        appended = node.parts.host.partition("orders", 0).append(memoryview(records("a")), -1)
        assert appended.acknowledged is not None
        await appended.acknowledged
        await metadata(wire.host("c"), "a")
        assert threading.active_count() == before
    assert threading.active_count() == before
    assert len(set(asked)) == len(asked)
