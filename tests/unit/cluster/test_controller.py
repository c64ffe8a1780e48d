"""Controllers: elected once at a time, replaced when they go, and refused when they were deposed."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import (
    Conflict,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    NotController,
    Unavailable,
    UnknownTopic,
)
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.elector import Rules
from anabranch.cluster.topics import NewTopic, TopicDefaults
from anabranch.meta import paths
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import NO_BROKER, BrokerImage, PartitionImage, TopicImage
from tests.support.waiting import until
from tests.unit.cluster.test_cluster import FixedClock, no_bad_config

B1, B2, B3 = BrokerId(1), BrokerId(2), BrokerId(3)
ORDERS = TopicName.from_kafka("orders")


class Brokers:
    """Some brokers on one store, each with a session of its own."""

    def __init__(self, path: Path, rules: Rules | None = None) -> None:
        self._rules = rules
        self._first = EmbeddedStore.open(path, DirectDisk(4))
        self._running: list[asyncio.Task[None]] = []

    async def open(self, id: int) -> tuple[EmbeddedStore, Cluster]:
        """One that is not registered yet."""
        store = self._first.new_session()
        cluster = await Cluster.open(
            store,
            BrokerId(id),
            FixedClock(),
            random.Random(id),
            TopicDefaults(1, 1),
            no_bad_config,
            rules=self._rules,
        )
        self._running.append(asyncio.create_task(cluster.run()))
        return store, cluster

    async def join(self, id: int, directory: str = "") -> tuple[EmbeddedStore, Cluster]:
        store, cluster = await self.open(id)
        await cluster.register_broker(BrokerImage(BrokerId(id), "127.0.0.1", 9090 + id, directory=directory))
        return store, cluster

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._first.close()


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    brokers = Brokers(tmp_path / "metadata")
    yield brokers
    await brokers.close()


async def make_topic(cluster: Cluster, *replicas: int, partitions: int = 1) -> TopicImage:
    assignments = [(index, replicas) for index in range(partitions)]
    return await cluster.create_topic(NewTopic(ORDERS, assignments=assignments))


def partition_of(cluster: Cluster, index: int = 0) -> PartitionImage:
    return cluster.image.topics[ORDERS].partitions[index]


async def test_the_first_broker_is_the_controller_and_the_next_when_it_goes(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, other = await brokers.join(2)
    third_store, third = await brokers.join(3)
    assert (one.controller.epoch, other.controller.epoch, third.controller.epoch) == (0, None, None)
    assert {cluster.image.controller_id for cluster in (one, other, third)} == {B1}
    await store.close()
    await until(lambda: other.image.controller_id in (B2, B3))
    await until(lambda: third.image.controller_id == other.image.controller_id)
    assert {other.controller.epoch, third.controller.epoch} == {None, 1}
    assert one.controller.epoch is None
    for open in (other_store, third_store):
        await open.close()


async def test_who_is_not_registered_is_not_the_controller(brokers: Brokers) -> None:
    """It recovers its logs, say, which may take minutes: nobody would choose leaders."""
    starting_store, starting = await brokers.open(1)
    store, other = await brokers.join(2)
    assert (starting.controller.epoch, other.controller.epoch) == (None, 0)
    await store.close()
    await until(lambda: starting.image.controller_id == NO_BROKER)
    third_store, third = await brokers.join(3)
    assert third.controller.epoch == 1
    await third_store.close()
    await starting.register_broker(BrokerImage(B1, "127.0.0.1", 9091))
    assert starting.controller.epoch == 2
    await starting_store.close()


async def test_the_epoch_of_a_controller_rises_with_every_start(tmp_path: Path) -> None:
    for expected in range(4):
        brokers = Brokers(tmp_path / "metadata")
        store, cluster = await brokers.join(1)
        assert cluster.controller.epoch == expected
        await store.close()
        await brokers.close()


async def test_an_election_is_seen_by_all(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    store, one = await brokers.join(1)
    other_store, other = await brokers.join(2)
    await until(lambda: set(one.image.brokers) == {1, 2})
    made = await make_topic(one, 1, 2)
    with caplog.at_level(logging.INFO):
        state = await one.controller.elect_leader(ORDERS, 0, B2, "broker 1 stops")
    assert "orders-0: broker 2 leads from epoch 1 on: broker 1 stops" in caplog.text
    assert state == PartitionImage(0, B2, LeaderEpoch(1), 1, (B1, B2), (B1, B2))
    assert partition_of(one) == state
    await until(lambda: ORDERS in other.image.topics and partition_of(other) == state)
    with pytest.raises(NotController):
        await other.controller.elect_leader(ORDERS, 0, B1, "a test")
    gone = await one.controller.elect_leader(ORDERS, 0, NO_BROKER, "a test")
    assert (gone.leader, gone.leader_epoch) == (NO_BROKER, 2)
    assert made.partitions[0].leader_epoch == 0
    for open in (store, other_store):
        await open.close()


async def test_the_isr_is_changed_by_the_leader_of_now(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, _ = await brokers.join(2)
    await until(lambda: set(one.image.brokers) == {1, 2})
    await make_topic(one, 1, 2)
    state = await one.controller.change_isr(ORDERS, 0, [B1], LeaderEpoch(0), 0)
    assert partition_of(one) == state == PartitionImage(0, B1, LeaderEpoch(0), 1, (B1, B2), (B1,))
    with pytest.raises(Conflict):
        await one.controller.change_isr(ORDERS, 0, [B1, B2], LeaderEpoch(0), 0)
    with pytest.raises(EligibleLeadersNotAvailable):
        await one.controller.elect_leader(ORDERS, 0, B2, "a test")
    await one.controller.elect_leader(ORDERS, 0, B2, "a test", is_unclean=True)
    assert partition_of(one) == PartitionImage(0, B2, LeaderEpoch(1), 2, (B1, B2), (B2,))
    with pytest.raises(FencedLeaderEpoch):
        await one.controller.change_isr(ORDERS, 0, [B1, B2], LeaderEpoch(0), 2)
    for open in (store, other_store):
        await open.close()


async def test_a_leader_that_a_reassignment_brings_is_no_unclean_one(brokers: Brokers) -> None:
    """It comes into the in-sync set, and leads, by one change."""
    store, one = await brokers.join(1)
    other_store, _ = await brokers.join(2)
    await until(lambda: set(one.image.brokers) == {1, 2})
    await make_topic(one, 1)
    state = await one.controller.reassign(ORDERS, 0, (B2,))
    state = await one.controller.change_isr(ORDERS, 0, [B2, B1], state.leader_epoch, state.partition_epoch)
    assert (state.leader, state.isr, state.replicas) == (B2, (B2,), (B2,))
    assert (one.controller.elections.count, one.controller.unclean_elections) == (1, 0)
    for open in (store, other_store):
        await open.close()


async def test_partitions_change_at_the_same_time(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    await make_topic(one, 1, partitions=40)
    elections = [one.controller.elect_leader(ORDERS, index % 40, B1, "a test") for index in range(80)]
    config = [one.alter_topic_config(ORDERS, lambda _, i=i: {"x": str(i)}) for i in range(5)]  # type: ignore[misc]
    await asyncio.gather(*elections, *config)
    assert {partition.leader_epoch for partition in one.image.topics[ORDERS].partitions} == {2}
    assert one.image.topics[ORDERS].config == {"x": "4"}
    await store.close()


async def test_what_is_not_there_has_no_leader(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    with pytest.raises(UnknownTopic):
        await one.controller.elect_leader(ORDERS, 0, B1, "a test")
    await make_topic(one, 1)
    for index in (-1, 1):
        with pytest.raises(UnknownTopic):
            await one.controller.elect_leader(ORDERS, index, B1, "a test")
    await store.close()


async def test_topics_are_made_and_grow_while_a_broker_is_away(brokers: Brokers) -> None:
    """It gets replicas, is not in sync, and leads nothing."""
    stores, clusters = zip(*[await brokers.join(id) for id in (1, 2, 3)], strict=True)
    one, other = clusters[:2]
    await until(lambda: set(other.image.seen_brokers) == {B1, B2, B3})
    await stores[2].close()
    await until(lambda: [broker.id for broker in other.image.away] == [B3])
    await other.create_topic(NewTopic(ORDERS, 2, 3))
    await other.add_partitions(ORDERS, 3)
    await until(lambda: [sorted(partition_of(one, index).isr) for index in range(3)] == [[1, 2]] * 3)
    assert [partition_of(one, index).replicas[2] for index in range(3)] == [3, 3, 3]
    for store in stores[:2]:
        await store.close()


async def test_a_controller_that_was_deposed_is_refused(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, other = await brokers.join(2)
    await make_topic(one, 1)
    # Its session is over for the store, and it has not noticed.
    await other_store.delete(paths.CONTROLLER)
    await other.controller.claim()
    assert one.controller.epoch == 0
    assert other.controller.epoch == 1
    with pytest.raises(NotController, match="broker 1 was the controller at epoch 0"):
        await one.controller.elect_leader(ORDERS, 0, B1, "a test")
    assert one.controller.epoch is None
    assert (await other.controller.elect_leader(ORDERS, 0, B1, "a test")).leader_epoch == 1
    for open in (store, other_store):
        await open.close()


async def test_an_election_of_a_topic_that_goes_leaves_no_state(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    for _ in range(10):
        await make_topic(one, 1)
        await asyncio.gather(
            one.controller.elect_leader(ORDERS, 0, B1, "a test"),
            one.delete_topic(ORDERS),
            return_exceptions=True,
        )
        assert ORDERS not in one.image.topics
    assert await store.children(paths.PARTITIONS) == []
    await store.close()


async def test_a_subscriber_that_fails_is_no_end_of_who_asked(brokers: Brokers) -> None:
    """A future that is cancelled would end the controller's task as if somebody had told it to stop."""
    store, one = await brokers.join(1)
    await make_topic(one, 1)

    def fail(change: object) -> None:
        stop()
        raise KeyError("a defect")

    watching = brokers._running.pop()  # that one is to fail, and does so loudly
    watching.cancel()
    await asyncio.wait([watching])
    stop = one.subscribe(fail)
    with pytest.raises(Unavailable, match="a defect"):
        await one.controller.elect_leader(ORDERS, 0, B1, "to see")
    state = await one.controller.elect_leader(ORDERS, 0, B1, "to see")
    assert state.leader_epoch == 2
    await store.close()
