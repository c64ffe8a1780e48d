"""Leaders chosen by a controller as brokers come, go and restart, on one store with a session for each."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from anabranch.base.errors import (
    ElectionNotNeeded,
    IneligibleReplica,
    Invalid,
    NotController,
    PreferredLeaderNotAvailable,
)
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicName
from anabranch.cluster import elector, state_writer
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.config import ControlConfig
from anabranch.cluster.elector import Rules
from anabranch.cluster.topics import NewTopic
from anabranch.meta import paths
from anabranch.meta.documents import BrokersSeenDocument, decode, encode
from anabranch.meta.image import NO_BROKER, ClusterImage
from anabranch.meta.store import Operation, Put
from tests.support.waiting import until
from tests.unit.cluster.test_controller import B1, B2, B3, ORDERS, Brokers, make_topic, partition_of


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    brokers = Brokers(tmp_path / "metadata")
    yield brokers
    await brokers.close()


async def all_know(*clusters: Cluster) -> None:
    ids = {cluster.controller._node_id for cluster in clusters}
    await until(lambda: all(set(cluster.image.brokers) == ids for cluster in clusters))


def leads(cluster: Cluster, index: int = 0) -> tuple[int, tuple[int, ...]]:
    state = partition_of(cluster, index)
    return state.leader, state.isr


async def test_a_leader_that_goes_is_replaced_and_rejoins_by_catching_up(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    third_store, three = await brokers.join(3)
    await all_know(one, two, three)
    await make_topic(one, 2, 3, 1)
    await other_store.close()
    await until(lambda: leads(one) == (3, (3, 1)))
    await third_store.close()
    await until(lambda: leads(one) == (1, (1,)))
    state = partition_of(one)
    with pytest.raises(IneligibleReplica):
        await one.controller.change_isr(ORDERS, 0, [B1, B2], state.leader_epoch, state.partition_epoch)
    back, _ = await brokers.join(2)
    await until(lambda: B2 in one.image.brokers)
    with pytest.raises(IneligibleReplica):
        await one.controller.change_isr(
            ORDERS, 0, [B1, B2], state.leader_epoch, state.partition_epoch, broker_epochs={B2: 0}
        )
    await one.controller.change_isr(ORDERS, 0, [B1, B2], state.leader_epoch, state.partition_epoch)
    assert leads(one) == (1, (1, 2))
    for open in (store, back):
        await open.close()


async def test_the_last_in_sync_is_waited_for(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 2, 1)
    await one.controller.change_isr(ORDERS, 0, [B2], LeaderEpoch(0), 0)
    await other_store.close()
    await until(lambda: leads(one) == (NO_BROKER, (2,)))
    back, _ = await brokers.join(2)
    await until(lambda: leads(one) == (2, (2,)))
    assert partition_of(one).leader_epoch == 2
    for open in (store, back):
        await open.close()


async def test_unclean_elections_where_the_topic_allows_them(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 2, 1)
    await one.controller.change_isr(ORDERS, 0, [B2], LeaderEpoch(0), 0)
    await other_store.close()
    await until(lambda: leads(one) == (NO_BROKER, (2,)))
    await one.alter_topic_config(ORDERS, lambda _: {"unclean.leader.election.enable": "true"})
    await until(lambda: leads(one) == (1, (1,)))
    await until(lambda: one.controller.unclean_elections == 1)
    await store.close()


async def test_unclean_elections_that_one_broker_is_told_to_allow(tmp_path: Path) -> None:
    allowed: list[bool] = []
    brokers = Brokers(tmp_path / "metadata", Rules(allows_unclean=lambda overrides: bool(allowed)))
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 2, 1)
    await one.controller.change_isr(ORDERS, 0, [B2], LeaderEpoch(0), 0)
    await other_store.close()
    await until(lambda: leads(one) == (NO_BROKER, (2,)))
    allowed.append(True)
    await one.alter_broker_config(B1, lambda _: {"unclean.leader.election.enable": "true"})
    await until(lambda: leads(one) == (1, (1,)))
    await store.close()
    await brokers.close()


async def test_an_unclean_election_that_is_asked_for(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 2, 1)
    with pytest.raises(ElectionNotNeeded):
        await one.controller.elect_any(ORDERS, 0)
    await one.controller.change_isr(ORDERS, 0, [B2], LeaderEpoch(0), 0)
    await other_store.close()
    await until(lambda: leads(one) == (NO_BROKER, (2,)))
    with pytest.raises(PreferredLeaderNotAvailable):
        await one.controller.elect_preferred(ORDERS, 0)
    before = one.controller.elections.count
    assert (await one.controller.elect_any(ORDERS, 0)).leader == 1
    assert (one.controller.elections.count, one.controller.unclean_elections) == (before + 1, 1)
    await store.close()


async def test_a_restart_that_nobody_saw_is_one(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 2, 1)
    known = await store.get(paths.CONTROLLER_BROKERS)
    assert known is not None
    seen = decode(known.data, BrokersSeenDocument, paths.CONTROLLER_BROKERS)
    assert seen.epochs == {id: broker.epoch for id, broker in one.image.brokers.items()}
    # The next controller finds another registration of broker 2 than the one before went by.
    older = encode(BrokersSeenDocument(seen.epochs | {B2: seen.epochs[B2] - 1}))
    await store.multi([Put(paths.CONTROLLER_BROKERS, older, known.version)])
    await store.delete(paths.CONTROLLER)
    await until(lambda: leads(one) == (1, (1,)))
    for open in (store, other_store):
        await open.close()


async def test_who_is_back_before_a_new_controller_has_decided_was_gone(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    third_store, three = await brokers.join(3)
    store, one = await brokers.join(1)
    _, two = await brokers.join(2)
    await all_know(one, two, three)
    await make_topic(one, 2, 1)
    claim, restarted = one.controller.claim, one.controller._seen.restarted

    async def late() -> None:
        await store.delete(paths.broker(B2))
        await until(lambda: B2 not in one.image.brokers)
        await claim()

    async def slowly(image: ClusterImage) -> list[BrokerId]:
        found = await restarted(image)
        await brokers.join(2)
        await until(lambda: B2 in one.image.brokers)
        return found

    async def never() -> None: ...

    monkeypatch.setattr(two.controller, "claim", never)
    monkeypatch.setattr(one.controller, "claim", late)
    monkeypatch.setattr(one.controller._seen, "restarted", slowly)
    await third_store.close()
    await until(lambda: leads(one) == (1, (1,)))


async def test_who_is_back_with_an_empty_disk_does_not_lead(brokers: Brokers) -> None:
    """All were down together, and one has lost its disk: the others have what was acknowledged."""
    store, one = await brokers.join(1, "a")
    other_store, two = await brokers.join(2, "b")
    await all_know(one, two)
    await make_topic(one, 2, 1)
    known = await store.get(paths.CONTROLLER_BROKERS)
    assert known is not None
    seen = decode(known.data, BrokersSeenDocument, paths.CONTROLLER_BROKERS)
    assert seen.directories == {1: "a", 2: "b"}
    older = {id: epoch - 1 for id, epoch in seen.epochs.items()}
    before = encode(BrokersSeenDocument(older, seen.directories | {B2: "lost"}))
    await store.multi([Put(paths.CONTROLLER_BROKERS, before, known.version)])
    await store.delete(paths.CONTROLLER)
    await until(lambda: leads(one) == (1, (1,)))
    for open in (store, other_store):
        await open.close()


async def test_a_new_controller_goes_over_everything(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    third_store, three = await brokers.join(3)
    await all_know(one, two, three)
    await one.create_topic(NewTopic(ORDERS, assignments=[(0, (1, 2, 3)), (1, (2, 1, 3)), (2, (3, 1, 2))]))
    await until(lambda: ORDERS in two.image.topics and ORDERS in three.image.topics)
    await store.close()
    await until(lambda: [leads(two, index) for index in range(3)] == [(2, (2, 3)), (2, (2, 3)), (3, (3, 2))])
    for open in (other_store, third_store):
        await open.close()


async def test_many_partitions_go_in_few_multis(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    for number in range(20):
        name = ORDERS.__class__.from_kafka(f"topic-{number}")
        await one.create_topic(NewTopic(name, assignments=[(index, (2, 1)) for index in range(50)]))
    multis = 0
    multi = store.multi

    async def counted(operations: object) -> object:
        nonlocal multis
        multis += 1
        return await multi(operations)  # type: ignore[arg-type]

    store.multi = counted  # type: ignore[method-assign, assignment]
    await other_store.close()
    await until(
        lambda: all(state.leader == 1 for topic in one.image.topics.values() for state in topic.partitions)
    )
    assert multis <= 2
    await store.close()


async def test_first_leaders_are_there_before_the_last_are_decided(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousands, all of which at once would hold the event loop for long."""
    monkeypatch.setattr(elector, "_SETTLED_AT_ONCE", 20)
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    names = [TopicName.from_kafka(f"topic-{number}") for number in range(10)]
    for name in names:
        await one.create_topic(NewTopic(name, assignments=[(index, (2, 1)) for index in range(10)]))
    led: list[int] = []
    multi = store.multi

    async def counted(operations: Sequence[Operation]) -> list[str | int | None]:
        if any(operation.path.startswith(paths.PARTITIONS) for operation in operations):
            led.append(
                sum(state.leader == 1 for name in names for state in one.image.topics[name].partitions)
            )
        return await multi(operations)

    store.multi = counted  # type: ignore[method-assign]
    await other_store.close()
    await until(
        lambda: all(state.leader == 1 for name in names for state in one.image.topics[name].partitions)
    )
    assert led == [0, 20, 40, 60, 80]
    await store.close()


async def test_preferred_leaders_come_back(tmp_path: Path) -> None:
    rules = Rules(lambda: ControlConfig(imbalance_check_interval_seconds=1))
    brokers = Brokers(tmp_path / "metadata", rules)
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 2, 1)
    await one.controller.elect_leader(ORDERS, 0, B1, "a test")
    with pytest.raises(NotController):
        await two.controller.elect_preferred(ORDERS, 0)
    await until(lambda: leads(one) == (2, (2, 1)))
    for open in (store, other_store):
        await open.close()
    await brokers.close()


async def test_a_broker_that_stops_leads_no_more(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 2, 1)
    await two.depart(10)
    assert leads(two) == (1, (1,))
    await one.depart(10)  # nobody else is left who could: it does not wait
    assert leads(one) == (1, (1,))
    await two.deregister()
    await until(lambda: set(one.image.brokers) == {B1})
    for open in (store, other_store):
        await open.close()


async def test_unregistering(brokers: Brokers) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    third_store, three = await brokers.join(3)
    await all_know(one, two, three)
    await third_store.close()
    await until(lambda: B3 not in one.image.brokers)
    await one.controller.unregister(BrokerId(3))
    value = await store.get(paths.CONTROLLER_BROKERS)
    assert value is not None
    assert B3 not in decode(value.data, BrokersSeenDocument, paths.CONTROLLER_BROKERS).epochs
    for open in (store, other_store):
        await open.close()


@pytest.mark.parametrize("comes_back", [True, False])
async def test_who_goes_while_it_is_let_in_is_not_in_sync(brokers: Brokers, comes_back: bool) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    await make_topic(one, 1, 2)
    await one.controller.change_isr(ORDERS, 0, [B1], LeaderEpoch(0), 0)
    epoch, multi = one.image.brokers[B2].epoch, store.multi

    async def late(operations: Sequence[Operation]) -> list[str | int | None]:
        if any(operation.path.startswith(paths.PARTITIONS) for operation in operations):
            store.multi = multi  # type: ignore[method-assign]
            await other_store.close()
            await until(lambda: B2 not in one.image.brokers)
            if comes_back:
                await brokers.join(2)
                await until(lambda: B2 in one.image.brokers)
        return await multi(operations)

    store.multi = late  # type: ignore[method-assign]
    await one.controller.change_isr(ORDERS, 0, [B1, B2], LeaderEpoch(0), 1, broker_epochs={B1: -1, B2: epoch})
    await until(lambda: leads(one) == (1, (1,)))
    await store.close()


async def test_a_damaged_document_keeps_no_others_from_leaders(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    made = await make_topic(one, 2, 1)
    damaged = await one.create_topic(NewTopic(TopicName.from_kafka("damaged"), assignments=[(0, (2, 1))]))
    await store.put(paths.partition_states(damaged.id, 0), b"{")
    await other_store.close()
    await until(lambda: leads(one) == (1, (1,)))
    assert str(damaged.id) in caplog.text
    await one.controller.change_isr(ORDERS, 0, [B1], LeaderEpoch(1), 1, topic_id=made.id)
    assert not any(task.done() for task in brokers._running[:1])
    await store.close()


async def test_what_cannot_be_written_ends_no_controller(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    """Its broker would go with it, and the next controller after that one."""
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    third_store, three = await brokers.join(3)
    await all_know(one, two, three)
    await make_topic(one, 3, 2, 1)
    multi = store.multi

    async def refused(operations: Sequence[Operation]) -> list[str | int | None]:
        if any(operation.path.startswith(paths.PARTITIONS) for operation in operations):
            store.multi = multi  # type: ignore[method-assign]
            raise Invalid("the document is too large")
        return await multi(operations)

    store.multi = refused  # type: ignore[method-assign]
    await other_store.close()
    await until(lambda: "some leaders cannot be elected" in caplog.text)
    assert leads(one) == (3, (3, 2, 1))
    await third_store.close()
    await until(lambda: leads(one) == (1, (1,)))
    await store.close()


@pytest.mark.parametrize("comes_back", [True, False])
async def test_who_goes_while_it_is_elected_uncleanly_does_not_stay_the_leader(
    brokers: Brokers, comes_back: bool
) -> None:
    """It was neither the leader nor in sync when it went."""
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    third_store, three = await brokers.join(3)
    await all_know(one, two, three)
    await make_topic(one, 2, 3)
    await one.controller.change_isr(ORDERS, 0, [B2], LeaderEpoch(0), 0)
    await other_store.close()
    await until(lambda: leads(one) == (NO_BROKER, (2,)))
    multi = store.multi

    async def late(operations: Sequence[Operation]) -> list[str | int | None]:
        if any(operation.path.startswith(paths.PARTITIONS) for operation in operations):
            store.multi = multi  # type: ignore[method-assign]
            await third_store.close()
            await until(lambda: B3 not in one.image.brokers)
        return await multi(operations)

    store.multi = late  # type: ignore[method-assign]
    assert (await one.controller.elect_any(ORDERS, 0)).leader == 3
    await until(lambda: leads(one) == (NO_BROKER, (3,)))
    if comes_back:
        await brokers.join(3)
        await until(lambda: leads(one) == (3, (3,)))
    await store.close()


async def test_a_damaged_list_of_brokers_ends_no_controller(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    third_store, three = await brokers.join(3)
    await all_know(one, two, three)
    await make_topic(one, 3, 2, 1)
    await until(lambda: ORDERS in two.image.topics and ORDERS in three.image.topics)
    await store.put(paths.CONTROLLER_BROKERS, b"{")
    await store.close()
    await until(lambda: B1 not in leads(two)[1] and leads(two)[0] in (2, 3))
    assert "all brokers are taken for new" in caplog.text
    await until(lambda: set(two.image.seen_brokers) == {B2, B3})
    for open in (other_store, third_store):
        await open.close()


async def test_what_is_too_large_keeps_no_others_from_leaders(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_writer, "_MULTI_BYTES", 0)  # each document goes alone
    store, one = await brokers.join(1)
    other_store, two = await brokers.join(2)
    await all_know(one, two)
    large = await one.create_topic(NewTopic(TopicName.from_kafka("large"), assignments=[(0, (2, 1))]))
    await make_topic(one, 2, 1)
    multi = store.multi

    async def refused(operations: Sequence[Operation]) -> list[str | int | None]:
        if any(str(large.id) in operation.path for operation in operations):
            raise Invalid("the document is too large")
        return await multi(operations)

    store.multi = refused  # type: ignore[method-assign]
    await other_store.close()
    await until(lambda: leads(one) == (1, (1,)))
    await store.close()
