"""Metrics of a cluster: what they tell when followers are cut off and come back, leaders move, brokers go."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.admin.measured import standing
from anabranch.admin.metric_families import families
from anabranch.base.ids import BrokerId
from anabranch.node import Node
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.two_nodes import THREE, TwoNodes, two_nodes
from tests.support.waiting import until
from tests.system.test_isr import B1, B2, B3, LAG, ORDERS, isr, produce

CONTROLLER = "kafka_controller_kafkacontroller_"
REPLICAS = "kafka_server_replicamanager_"
TOPICS = "kafka_server_brokertopicmetrics_"


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[TwoNodes]:
    async with two_nodes(tmp_path, THREE, **LAG) as nodes:
        yield nodes


class Told:
    """What a node tells at once: of a sample by its name and labels, 0 if there is none."""

    def __init__(self, samples: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> None:
        self._samples = samples

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples.get((name, frozenset(labels.items())), 0)

    @property
    def partitions(self) -> tuple[float, float, float]:
        """Replicas, leaders, and of these those that are under-replicated."""
        names = ("partitioncount", "leadercount", "underreplicatedpartitions")
        replicas, leaders, under = [self(REPLICAS + name) for name in names]
        return replicas, leaders, under


async def told(node: Node) -> Told:
    measured = node.measured()
    found = families(measured, await standing(measured), most_topics=0)
    return Told(
        {(one.name, frozenset(one.labels.items())): one.value for family in found for one in family.samples}
    )


def image_leader(node: Node) -> BrokerId:
    return node.parts.cluster.image.topics[ORDERS].partitions[0].leader


async def all_told(nodes: TwoNodes) -> dict[BrokerId, Told]:
    return {id: await told(node) for id, node in nodes.nodes.items()}


async def test_followers_that_leave_and_come_back(three: TwoNodes) -> None:
    await three.create(ORDERS, 1, min_insync_replicas="2")
    assert await produce(three, "a", "b", "c") == 0
    await three.settled(ORDERS, 0)
    one, two, _ = (await all_told(three)).values()
    assert one.partitions == (1, 1, 0)
    assert two.partitions == (1, 0, 0)
    assert one(TOPICS + "messagesin_total") == 3
    assert two(TOPICS + "messagesin_total") == 0, "it follows"
    size = one(TOPICS + "bytesin_total")
    assert size > 0
    assert two(TOPICS + "replicationbytesin_total") == size
    assert one(TOPICS + "replicationbytesout_total") == 2 * size
    requests = "kafka_network_requestmetrics_requests_total"
    waited = "kafka_network_requestmetrics_remotetimems_sum"
    assert one(requests, request="Produce") == 1
    assert one(waited, request="Produce") > 0, "for its followers"
    assert one(requests, request="FetchFollower") > 0
    assert one(requests, request="FetchConsumer") == 0

    three.wire.cut("a", "c")
    assert await produce(three, "d", "e") == 0
    await until(lambda: isr(three) == (B1, B2))
    one = await told(three.nodes[B1])
    assert one.partitions == (1, 1, 1)
    assert (one(REPLICAS + "isrshrinks_total"), one(REPLICAS + "isrexpands_total")) == (1, 0)
    assert one(REPLICAS + "atminisrpartitioncount") == 1
    assert one("anabranch_follower_lag_messages", follower="3") == 2
    assert one("anabranch_follower_lag_messages", follower="2") == 0
    three.wire.cut("a", "b")
    assert await produce(three, "f", acks=1) == 0
    await until(lambda: isr(three) == (B1,), "nobody is in sync but the leader")
    assert await produce(three, "g") == ErrorCode.not_enough_replicas
    one = await told(three.nodes[B1])
    assert one(REPLICAS + "underminisrpartitioncount") == 1
    assert one(TOPICS + "failedproducerequests_total") == 1

    three.wire.mend("a", "b")
    three.wire.mend("a", "c")
    await until(lambda: isr(three) == (B1, B2, B3))
    await three.settled(ORDERS, 0)
    one, _, back = (await all_told(three)).values()
    assert one.partitions == (1, 1, 0)
    assert one(REPLICAS + "isrshrinks_total") == 2
    assert one(REPLICAS + "isrexpands_total") == 2
    assert back("kafka_server_replicafetchermanager_maxlag") == 0
    assert back("kafka_server_fetcherlagmetrics_consumerlag", clientId="ReplicaFetcherThread-0-1") == 0


async def test_leaders_that_move(three: TwoNodes) -> None:
    await three.create(ORDERS, 3)
    assert await produce(three, "a", "b") == 0
    await three.settled(ORDERS, 0)
    before = await all_told(three)
    counts = [one(CONTROLLER + "activecontrollercount") for one in before.values()]
    assert sorted(counts) == [0, 0, 1]
    controller = BrokerId(counts.index(1) + 1)
    assert before[controller](CONTROLLER + "globalpartitioncount") == 3
    assert before[controller](CONTROLLER + "activebrokercount") == 3
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
    await three.elect(ORDERS, 0, B2)
    await until(lambda: all(image_leader(node) == B2 for node in three.nodes.values()))
    after = await all_told(three)
    assert after[controller](elections) == before[controller](elections) + 1
    assert after[controller]("kafka_controller_controllerstats_uncleanleaderelections_total") == 0
    assert after[controller](CONTROLLER + "preferredreplicaimbalancecount") == 1
    assert [one(REPLICAS + "leadercount") for one in after.values()] == [0, 2, 1]
    assert after[B1](TOPICS + "messagesin_total") == 2, "what it was given while it led"
    assert after[B2](TOPICS + "messagesin_total") == 0
