"""Who may produce: together, alone, one after the other; and what a topic epoch keeps out."""

import asyncio
from pathlib import Path

import pytest

from anabranch.topics.errors import (
    ProducerBusy,
    ProducerFenced,
    ProducerNameInUse,
    TopicClosed,
    TopicTerminated,
)
from anabranch.topics.producer import AccessMode
from tests.support.topics import Bench, Line, send

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAITING, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


async def test_one_of_a_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    first = await bench.producer(topic, "p", id=1)
    with pytest.raises(ProducerNameInUse):
        await bench.producer(topic, "p", id=2)
    with pytest.raises(ProducerNameInUse):
        await bench.producer(topic, "p", line=Line())
    again = await bench.producer(topic, "p", id=1, epoch=1)
    assert first.is_closed
    assert bench.line.closed == []
    topic.remove_producer(first)
    assert list(topic.producers) == [again]


async def test_a_dead_connection_gives_its_names_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    dead = Line()
    dead.alive = False
    await bench.producer(topic, "p", line=dead)
    again = await bench.producer(topic, "p")
    assert list(topic.producers) == [again]


async def test_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    alone = bench.new_producer("a", EXCLUSIVE)
    assert (await topic.add_producer(alone)).topic_epoch == 0
    with pytest.raises(ProducerBusy, match="existing exclusive producer: a"):
        await bench.producer(topic, "b")
    with pytest.raises(ProducerFenced):
        await bench.producer(topic, "b", EXCLUSIVE)
    topic.remove_producer(alone)
    shared = await bench.producer(topic, "b")
    with pytest.raises(ProducerFenced, match="shared producers"):
        await bench.producer(topic, "a", EXCLUSIVE)
    topic.remove_producer(shared)
    assert (await topic.add_producer(bench.new_producer("c", EXCLUSIVE))).topic_epoch == 1


async def test_fencing_and_who_was_fenced_stays_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    old = await bench.producer(topic, "old", EXCLUSIVE)
    new = await bench.producer(topic, "new", FENCING)
    assert bench.line.closed == [old]
    assert topic.publish(old, [send(0)]).refused is not None
    assert topic.publish(new, [send(0)]).offsets == [0]
    assert (old.topic_epoch, new.topic_epoch) == (0, 1)
    topic.remove_producer(new)
    await bench.restart()
    topic = await bench.open("orders")
    with pytest.raises(ProducerFenced, match="Current epoch: 1, Producer epoch: 0"):
        await bench.producer(topic, "old", EXCLUSIVE, topic_epoch=0)
    back = bench.new_producer("new", EXCLUSIVE, topic_epoch=1)
    assert (await topic.add_producer(back)).topic_epoch == 1


async def test_waiting_in_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    first = await bench.producer(topic, "a")
    waiting = [bench.new_producer(name, WAITING) for name in ("b", "c")]
    turns = [asyncio.ensure_future(topic.add_producer(producer)) for producer in waiting]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.line.waiting == waiting
    with pytest.raises(ProducerBusy):
        await bench.producer(topic, "d")
    topic.remove_producer(first)
    assert (await turns[0]).topic_epoch == 0
    assert not turns[1].done()
    topic.remove_producer(waiting[0])
    assert (await turns[1]).topic_epoch == 1


async def test_one_that_waits_may_go_or_be_fenced(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    first = await bench.producer(topic, "a", EXCLUSIVE)
    gone, fenced = bench.new_producer("b", WAITING), bench.new_producer("c", WAITING)
    leaves = asyncio.ensure_future(topic.add_producer(gone))
    stays = asyncio.ensure_future(topic.add_producer(fenced))
    await asyncio.sleep(0)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    await bench.producer(topic, "d", FENCING)
    with pytest.raises(ProducerFenced):
        await stays
    assert first.is_closed
    assert [producer.name for producer in topic.producers] == ["d"]


async def test_who_waits_when_the_topic_closes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    await bench.producer(topic, "a", EXCLUSIVE)
    waiting = asyncio.ensure_future(topic.add_producer(bench.new_producer("b", WAITING)))
    await asyncio.sleep(0)
    topic.abandon()
    with pytest.raises(TopicClosed):  # its client is told: it waits for an answer, and has no timer
        await waiting


async def test_who_comes_when_the_topic_closes_is_not_fenced(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    is_stored = asyncio.Event()

    async def store(epoch: int) -> None:
        await is_stored.wait()

    topic.producers._store_epoch = store
    coming = asyncio.ensure_future(topic.add_producer(bench.new_producer("a", EXCLUSIVE)))
    await asyncio.sleep(0)
    topic.abandon()
    is_stored.set()
    with pytest.raises(TopicClosed):  # it may come back; who is fenced may not
        await coming


async def test_who_waits_when_the_topic_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    await bench.producer(topic, "a", EXCLUSIVE)
    waiting = asyncio.ensure_future(topic.add_producer(bench.new_producer("b", WAITING)))
    await asyncio.sleep(0)
    await topic.terminate()
    with pytest.raises(TopicTerminated):
        await waiting


async def test_who_waits_where_nothing_is_stored(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("non-persistent://public/default/orders")
    await bench.producer(topic, "a", EXCLUSIVE)
    waiting = asyncio.ensure_future(topic.add_producer(bench.new_producer("b", WAITING)))
    await asyncio.sleep(0)
    topic.abandon()
    with pytest.raises(TopicClosed):
        await waiting


async def test_who_waits_gets_the_topic_of_one_whose_connection_is_dead(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    dead = Line()
    dead.alive = False
    await bench.producer(topic, "a", EXCLUSIVE, line=dead)
    waiting = asyncio.ensure_future(topic.add_producer(bench.new_producer("b", WAITING)))
    await asyncio.sleep(0)
    with pytest.raises(ProducerFenced):
        await bench.producer(topic, "a", EXCLUSIVE, topic_epoch=0)
    assert (await asyncio.wait_for(waiting, 10)).topic_epoch == 1


async def test_an_epoch_that_cannot_be_kept_is_not_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")

    async def fail(epoch: int) -> None:
        raise OSError("no store")

    topic.producers._store_epoch = fail
    with pytest.raises(OSError, match="no store"):
        await bench.producer(topic, "a", EXCLUSIVE)
    assert topic.producers.epoch is None
    await bench.producer(topic, "b")


async def test_made_up_names_are_never_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    names = {bench.topics.new_producer_name() for _ in range(10)}
    await bench.restart()
    bench.clock.advance(1)
    names |= {bench.topics.new_producer_name() for _ in range(10)}
    assert len(names) >= 10
    assert all(name.startswith("standalone-") for name in names)
