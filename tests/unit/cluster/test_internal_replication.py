"""Topics of coordinators: as many replicas as there are brokers, and more as brokers come."""

from pathlib import Path

from anabranch.base.ids import BrokerId, LeaderEpoch, TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.elector import Rules
from anabranch.cluster.topics import NewTopic
from anabranch.meta.image import PartitionImage
from tests.support.waiting import until
from tests.unit.cluster.test_controller import Brokers

OFFSETS = TopicName.from_kafka("__consumer_offsets")
RULES = Rules(internal_factors=lambda: {OFFSETS: 3})


def states(cluster: Cluster) -> tuple[PartitionImage, ...]:
    return cluster.image.topics[OFFSETS].partitions


def replicas(cluster: Cluster) -> list[set[int]]:
    return [set(state.replicas) for state in states(cluster)]


async def catch_up(controller: Cluster, *brokers: int) -> None:
    """Their leaders say that these brokers are in sync."""
    for state in states(controller):
        await controller.controller.change_isr(
            OFFSETS,
            state.index,
            [BrokerId(id) for id in brokers],
            LeaderEpoch(state.leader_epoch),
            state.partition_epoch,
        )


async def test_replicas_are_added_as_brokers_come(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path / "metadata", RULES)
    store, one = await brokers.join(1)
    await one.create_topic(NewTopic(OFFSETS, 4, 3))
    assert replicas(one) == [{1}] * 4
    second, _ = await brokers.join(2)
    await until(lambda: replicas(one) == [{1, 2}] * 4)
    third, _ = await brokers.join(3)  # what was on its way to two goes on to three
    await until(lambda: replicas(one) == [{1, 2, 3}] * 4)
    assert {state.isr for state in states(one)} == {(1,)}
    await catch_up(one, 1, 2, 3)
    assert {state.adding for state in states(one)} == {()}
    assert {state.replicas[0] for state in states(one)} == {1, 2, 3}, "others will lead some"
    fourth, _ = await brokers.join(4)
    await third.close()
    await until(lambda: BrokerId(3) not in one.image.brokers)
    assert replicas(one) == [{1, 2, 3}] * 4, "none is taken away"
    for open in (fourth, second, store):
        await open.close()
    await brokers.close()


async def test_a_new_controller_adds_what_is_missing(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path / "metadata")
    store, one = await brokers.join(1)
    await one.create_topic(NewTopic(OFFSETS, 1, 3))
    other_store, two = await brokers.join(2)
    await until(lambda: set(two.image.brokers) == {1, 2})
    two.controller._elector._rules = RULES
    await store.close()
    await until(lambda: two.controller.epoch == 1)
    third, _ = await brokers.join(1)
    await until(lambda: replicas(two) == [{1, 2}])
    for open in (third, other_store):
        await open.close()
    await brokers.close()


async def test_other_topics_stay_as_they_are(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path / "metadata", RULES)
    store, one = await brokers.join(1)
    orders = TopicName.from_kafka("orders")
    await one.create_topic(NewTopic(orders, 1, 1))
    other_store, _ = await brokers.join(2)
    await one.create_topic(NewTopic(OFFSETS, 1, 3))
    assert replicas(one) == [{1, 2}]
    assert one.image.topics[orders].partitions[0].replicas == (1,)
    for open in (other_store, store):
        await open.close()
    await brokers.close()
