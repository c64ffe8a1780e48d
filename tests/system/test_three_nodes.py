"""Three nodes in one process: brokers that die, stop and come back, and partitions that move between them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.aio import AsyncClient
from anabranch.client.destinations import CONTROLLER, Address
from anabranch.client.requests import FIND_COORDINATOR, Request
from anabranch.client.sending import metadata
from anabranch.cluster import doubted_brokers
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import NewTopic
from anabranch.meta.image import PartitionImage
from anabranch.partition.fetcher import ReplicaFetcher
from tests.support.two_nodes import THREE, TwoNodes, two_nodes
from tests.support.waiting import until

ORDERS = TopicName.from_kafka("orders")
B1, B2, B3 = (BrokerId(id) for id in (1, 2, 3))
FIRST = Address("a", 9092)
ELECT_LEADERS, ALTER, LIST, UNREGISTER, QUORUM, LOG_DIRS = 43, 45, 46, 64, 55, 35


def cluster(nodes: TwoNodes, id: int) -> Cluster:
    return nodes.nodes[BrokerId(id)].parts.cluster


def states(nodes: TwoNodes, id: int = 1) -> tuple[PartitionImage, ...]:
    return cluster(nodes, id).image.topics[ORDERS].partitions


def controller(nodes: TwoNodes) -> BrokerId:
    return nodes.nodes[B1].parts.cluster.image.controller_id


async def make(nodes: TwoNodes, *assignments: tuple[int, ...]) -> None:
    await cluster(nodes, 1).create_topic(NewTopic(ORDERS, assignments=list(enumerate(assignments))))
    await until(lambda: all(ORDERS in node.parts.cluster.image.topics for node in nodes.nodes.values()))


async def ask(client: AsyncClient, key: int, **values: Any) -> Any:
    return await client.send(CONTROLLER, Request(key, values), 20.0)


async def test_a_broker_whose_sockets_close_is_replaced_before_its_session_ends(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, THREE) as nodes:
        await make(nodes, (3, 1), (3, 2), (1, 3))
        first = cluster(nodes, 1).image.brokers[B3].epoch
        await until(lambda: len([link for link in nodes.wire.links if link.host == "c"]) >= 2)
        nodes.wire.down("c")
        await until(lambda: [state.leader for state in states(nodes)] == [1, 2, 1])
        await until(lambda: all(B3 not in state.isr for state in states(nodes)))
        # It lives, and nobody reaches it: it is registered again, and leads nothing.
        await until(lambda: cluster(nodes, 1).image.brokers[B3].epoch > first)
        assert [state.leader for state in states(nodes)] == [1, 2, 1]


async def test_who_asks_for_a_leader_that_may_be_dead_is_told_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubted_brokers, "_DOUBTED_S", 60.0)
    group = Request(FIND_COORDINATOR, {"key": "g", "key_type": 0, "coordinator_keys": ["g"]})
    async with two_nodes(tmp_path, THREE, offsets_topic_num_partitions="1") as nodes:
        await make(nodes, (3, 1))
        clients = [nodes.client(host) for host in "xyz"]
        doubted = nodes.nodes[B1].parts.peers.doubted
        asking: list[asyncio.Task[Any]] = []
        try:
            coordinator = (await clients[0].ask(FIRST, group, 20.0)).coordinators[0].node_id
            doubted.doubt(coordinator)
            doubted.doubt(B3)
            for client, request in zip(clients, (metadata(["orders"]), group), strict=False):
                asking.append(asyncio.ensure_future(client.ask(FIRST, request, 60.0)))
            for _ in range(3):
                await clients[2].ask(FIRST, metadata([]), 20.0)
            assert not any(task.done() for task in asking)
            await nodes.elect(ORDERS, 0, B1)
            assert (await asking[0]).topics[0].partitions[0].leader_id == 1
            doubted.trust(coordinator)
            assert (await asking[1]).coordinators[0].node_id == coordinator
        finally:
            for task in asking:
                task.cancel()
            for client in clients:
                client.close()


async def test_a_broker_tells_of_the_replicas_that_it_has(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, THREE) as nodes:
        await make(nodes, (1, 2), (2, 3))
        client = nodes.client("x")
        try:
            told = [
                (await client.ask(Address(host, 9092), Request(LOG_DIRS, {"topics": None}), 20.0)).results[0]
                for host in THREE
            ]
        finally:
            client.close()
        found = [[part.partition_index for part in folder.topics[0].partitions] for folder in told]
        assert found == [[0], [0, 1], [1]]


async def test_the_controller_is_replaced_in_the_same_way(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, THREE) as nodes:
        assert controller(nodes) == 1
        await make(nodes, (1, 2), (2, 3))
        await until(lambda: len([link for link in nodes.wire.links if link.host == "a"]) >= 2)
        for task in nodes.nodes[B1]._tasks:  # a dead process claims nothing
            task.cancel()
        nodes.wire.down("a")
        await until(lambda: cluster(nodes, 2).image.controller_id in (B2, B3))
        await until(lambda: states(nodes, 2)[0].leader == 2)
        assert B1 not in states(nodes, 2)[0].isr


async def test_a_topic_is_made_while_a_broker_is_away_that_is_to_have_it(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, THREE) as nodes:
        await until(lambda: len(cluster(nodes, 1).image.seen_brokers) == 3)
        await nodes.nodes[B3].parts.hand_over()
        await cluster(nodes, 3).deregister()
        await until(lambda: [broker.id for broker in cluster(nodes, 1).image.away] == [B3])
        await cluster(nodes, 1).create_topic(NewTopic(ORDERS, 2, 3))
        assert [set(state.replicas) for state in states(nodes)] == [{B1, B2, B3}] * 2
        assert all(state.leader in (B1, B2) for state in states(nodes))
        await until(lambda: all(set(state.isr) == {B1, B2} for state in states(nodes)))
        await cluster(nodes, 1).add_partitions(ORDERS, 3, [[B3, B1, B2]])
        await until(lambda: (states(nodes)[2].leader, set(states(nodes)[2].isr)) == (B1, {B1, B2}))


async def test_a_broker_that_stops_hands_over_what_it_leads(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, THREE) as nodes:
        await make(nodes, (1, 2), (1, 3), (2, 1))
        await nodes.nodes[B1].parts.hand_over()
        await until(lambda: cluster(nodes, 2).image.controller_id in (B2, B3))
        assert [state.leader for state in states(nodes, 1)] == [2, 3, 2]
        assert [state.isr for state in states(nodes, 1)] == [(2,), (3,), (2,)]
        assert cluster(nodes, 1).controller.epoch is None


async def test_replicas_move_and_preferred_leaders_are_elected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplicaFetcher, "_due", lambda self: {})  # who is in sync is said here
    async with two_nodes(tmp_path, THREE) as nodes:
        await make(nodes, (1, 2))
        client = nodes.client("x")
        try:
            moved = {"partition_index": 0, "replicas": [3, 2]}
            topics = [{"name": "orders", "partitions": [moved]}]
            answer = await ask(client, ALTER, timeout=10_000, topics=topics)
            assert [part.error_code for topic in answer.responses for part in topic.partitions] == [0]
            (state,) = states(nodes, 1)
            assert (state.replicas, state.adding, state.removing) == ((3, 2, 1), (3,), (1,))
            listed = await ask(client, LIST, timeout=10_000, topics=None)
            (found,) = listed.topics[0].partitions
            assert (found.adding_replicas, found.removing_replicas) == ([3], [1])
            # The leader says so, when it has caught up.
            await cluster(nodes, 1).controller.change_isr(
                ORDERS, 0, [B1, B2, B3], state.leader_epoch, state.partition_epoch
            )
            (state,) = states(nodes, 1)
            assert (state.replicas, state.adding, state.removing, state.leader) == ((3, 2), (), (), 3)
            folder = nodes.nodes[B1].parts.host.data
            await until(lambda: not list((folder / "topics").rglob("*orders*/0")))
            listed = await ask(client, LIST, timeout=10_000, topics=None)
            assert not listed.topics
            await nodes.elect(ORDERS, 0, B2)
            wanted = [{"topic": "orders", "partitions": [0, 7]}]
            answer = await ask(
                client, ELECT_LEADERS, election_type=0, topic_partitions=wanted, timeout=10_000
            )
            results = answer.replica_election_results[0].partition_result
            assert [(one.partition_id, int(one.error_code)) for one in results] == [(0, 0), (7, 3)]
            await until(lambda: states(nodes, 2)[0].leader == 3)
            answer = await ask(client, ELECT_LEADERS, election_type=0, topic_partitions=None, timeout=9000)
            assert not [part for one in answer.replica_election_results for part in one.partition_result]
            quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
            answer = await ask(client, QUORUM, topics=quorum)
            (part,) = answer.topics[0].partitions
            assert (part.leader_id, sorted(one.replica_id for one in part.observers)) == (1, [2, 3])
            assert (await ask(client, UNREGISTER, broker_id=9)).error_code == 102
        finally:
            client.close()
