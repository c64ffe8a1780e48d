"""A topic: producing to it, subscribing to it, its end, and what is there after a restart."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import DiskFull, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.groups.transaction_ids import TxnId
from anabranch.meta.rules import Quota, Rate
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.consumer import KeySharing
from anabranch.subscriptions.durable import CursorName, SubscriptionGone
from anabranch.subscriptions.errors import ConsumerAssignError, ConsumerBusy
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.topics.errors import (
    BacklogExceeded,
    BacklogHold,
    NotAllowed,
    NotEncrypted,
    ProducerBusy,
    ProducerClosed,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicBusy,
    TopicClosed,
    TopicTerminated,
)
from anabranch.topics.publish import DUPLICATE
from tests.support.logs import records
from tests.support.topics import Bench, FakeCatalog, Line, send, wanted

ORDERS = TopicName.from_pulsar("orders")


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_messages_get_the_offset_of_their_entry(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    published = topic.publish(producer, [send(0), send(1, 3), send(4)])
    assert published.offsets == [0, 1, 4]
    assert published.refused is None
    assert published.pause_s == 0
    assert topic.end == 5
    assert topic.last_message() == (0, 4, -1)
    assert (producer.messages_in, topic.publishing.messages_in) == (5, 5)


async def test_no_such_topic(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(UnknownTopic):
        await bench.topics.open(ORDERS)


async def test_opened_once_however_many_ask(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add("orders")
    opened = await asyncio.gather(*[bench.topics.open(ORDERS) for _ in range(5)])
    assert len(set(map(id, opened))) == 1
    assert list(bench.topics) == [opened[0]]


async def test_partitions_are_topics_of_their_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add("orders", partitions=3)
    two = await bench.topics.open(TopicName.from_pulsar("orders-partition-2"))
    assert (two.name, two.index, two.partition_index) == (ORDERS, 2, 2)
    assert two.full_name == "persistent://public/default/orders-partition-2"
    with pytest.raises(UnknownTopic):
        await bench.topics.open(ORDERS)


async def test_a_large_message_is_refused_and_those_around_it_are_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", max_message_bytes=1000)
    producer = await bench.producer(topic)
    sends = [send(0), send(1), send(2, size=20_000), send(3)]
    published = topic.publish(producer, sends)
    assert published.offsets == [0, 1]
    assert "the limit is" in str(published.refused)
    assert topic.publish(producer, sends[3:]).offsets == [2]


async def test_what_does_not_fit_a_segment_together_goes_in_parts(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add("orders", segment_bytes=1000)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    published = topic.publish(producer, [send(i, size=200) for i in range(20)])
    assert published.offsets == list(range(20))
    assert len(topic.partition.log.segments) > 3
    refused = topic.publish(producer, [send(20, size=2000)]).refused
    assert "segment.bytes" in str(refused)


async def test_a_closed_producer_sends_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.remove_producer(producer)
    topic.remove_producer(producer)
    assert isinstance(topic.publish(producer, [send(0)]).refused, ProducerClosed)


async def test_consumers_get_what_was_sent_and_their_acks_survive(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i) for i in range(5)])
    line = Line()
    consumer = bench.consumer(line=line)
    subscription = await topic.attach(consumer, wanted())
    subscription.flow(consumer, 100)
    await settle()
    assert line.offsets == [0, 1, 2, 3, 4]
    subscription.ack(consumer, [Ack(1)], cumulative=True)
    await topic.save(subscription)
    assert topic.mark_delete_position(subscription) == (0, 1)
    await bench.restart(clean=False)
    again = await bench.open("orders")
    kept = again.subscriptions.find("s")
    assert kept is not None
    assert kept.cursor.mark_delete == 2
    assert again.subscriptions.get("s").durable.document.kind == "Exclusive"


async def test_readers_leave_nothing_behind(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i) for i in range(5)])
    line = Line()
    reader = bench.consumer(line=line)
    subscription = await topic.attach(reader, wanted("r", is_durable=False, start=(3, -1)))
    subscription.flow(reader, 10)
    await settle()
    assert line.offsets == [3, 4]
    with pytest.raises(NotAllowed):
        await topic.attach(bench.consumer(), wanted("r"))
    await topic.detach(subscription, reader)
    assert topic.subscriptions.find("r") is None
    assert not bench.store.documents


@pytest.mark.parametrize(
    ("start", "expected"), [((-1, -1), 0), (((1 << 63) - 1, -1), 5), ((2, 0), 2), ((99, -1), 5)]
)
async def test_where_readers_start(tmp_path: Path, start: tuple[int, int], expected: int) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    topic.publish(await bench.producer(topic), [send(i) for i in range(5)])
    subscription = await topic.attach(bench.consumer(), wanted("r", is_durable=False, start=start))
    assert subscription.cursor.mark_delete == expected


async def test_seek_by_time_and_by_offset(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    topic.publish(await bench.producer(topic), [send(i, publish_time=1000 + i) for i in range(5)])
    line = Line()
    consumer = bench.consumer(line=line)
    subscription = await topic.attach(consumer, wanted(from_earliest=False))
    assert subscription.cursor.mark_delete == 5
    assert await topic.offset_for_time(1003) == 3
    assert await topic.offset_for_time(9999) == 5
    await topic.seek(subscription, 3)
    assert subscription.cursor.mark_delete == 3
    assert line.disconnected == [consumer]
    await topic.seek(subscription, -1)
    assert subscription.cursor.mark_delete == 0
    assert bench.store.positions[topic.subscriptions.get("s").durable.name] == 0


async def test_unsubscribing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    line, other = Line(), Line()
    one, two = bench.consumer(line=line), bench.consumer(line=other)
    subscription = await topic.attach(one, wanted(kind=SubscriptionKind.SHARED))
    await topic.attach(two, wanted(kind=SubscriptionKind.SHARED))
    with pytest.raises(SubscriptionBusy):
        await topic.unsubscribe("s", consumer=one)
    await topic.detach(subscription, two)
    await topic.unsubscribe("s", consumer=one)
    assert line.disconnected == []
    assert not bench.store.documents
    with pytest.raises(SubscriptionNotFound):
        await topic.unsubscribe("s")
    await topic.attach(bench.consumer(line=other), wanted())
    with pytest.raises(SubscriptionBusy):
        await topic.unsubscribe("s")
    await topic.unsubscribe("s", force=True)
    assert len(other.disconnected) == 1


async def test_a_subscription_that_could_not_be_deleted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i) for i in range(5)])
    line = Line()
    consumer = bench.consumer(line=line)
    subscription = await topic.attach(consumer, wanted())
    subscription.ack(consumer, [Ack(1)], cumulative=True)

    async def fail(name: CursorName) -> None:
        raise OSError("no store")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "delete", fail)
        with pytest.raises(OSError, match="no store"):
            await topic.unsubscribe("s", force=True)
    assert line.disconnected == [consumer]
    assert not bench.positions.is_attached("s", ORDERS.kafka)
    again = bench.consumer(line=line)
    subscription = await topic.attach(again, wanted())
    subscription.flow(again, 10)
    await settle()
    assert line.offsets == [2, 3, 4]
    subscription.ack(again, [Ack(3)], cumulative=True)
    await topic.save(subscription)
    assert list(bench.store.positions.values()) == [4]


async def test_what_transactions_hold_of_a_subscription_that_could_not_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i) for i in range(2)])
    consumer, txn = bench.consumer(), TxnId(0, 1 << 15)
    await topic.attach(consumer, wanted(kind=SubscriptionKind.SHARED))
    await topic.ack_within(txn, "s", consumer, [Ack(0)], cumulative=False)

    async def fail(name: CursorName, txn: TxnId) -> None:
        raise OSError("no store")

    with monkeypatch.context() as patch:
        patch.setattr(bench.pending_acks, "drop", fail)
        with pytest.raises(OSError, match="no store"):
            await topic.unsubscribe("s", force=True)
    await topic.end_transaction(txn, "s", commit=True)
    assert topic.subscriptions.get("s").cursor.mark_delete == 1


async def test_a_subscription_that_goes_while_it_is_moved_leaves_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i) for i in range(5)])
    subscription = await topic.create_subscription("s", from_earliest=True)
    async with bench.positions._flushing._writing:
        gone = asyncio.ensure_future(topic.unsubscribe("s"))
        await settle()
        moved = asyncio.ensure_future(topic.seek(subscription, 3))
        await settle()
    await gone
    with pytest.raises(SubscriptionGone):
        await moved
    assert not bench.store.positions


async def test_a_consumer_that_comes_while_its_subscription_is_given_up_keeps_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", subscription_expiration_s=60)
    await topic.create_subscription("s", from_earliest=True)
    bench.clock.advance(61_000)
    consumer = bench.consumer()
    async with bench.positions._flushing._writing:
        attached = asyncio.ensure_future(topic.attach(consumer, wanted()))
        await settle()
        given_up = asyncio.ensure_future(bench.topics.upkeep.drop_abandoned(topic))
        await settle()
    await attached
    await given_up
    assert topic.subscriptions.get("s").subscription.consumers == [consumer]


async def test_limits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", max_producers=1, max_consumers=2, max_subscriptions=2)
    await bench.producer(topic, "a")
    with pytest.raises(ProducerBusy, match="max producers"):
        await bench.producer(topic, "b")
    await topic.attach(bench.consumer(), wanted("s1"))
    await topic.attach(bench.consumer(), wanted("s2"))
    with pytest.raises(ConsumerBusy, match="max consumers"):
        await topic.attach(bench.consumer(), wanted("s1"))
    bench.rule("orders", max_consumers=None)
    with pytest.raises(NotAllowed, match="maximum number of subscriptions"):
        await topic.attach(bench.consumer(), wanted("s3"))
    bench.rule("orders", max_subscriptions=None, subscription_types=frozenset(("Shared",)))
    with pytest.raises(NotAllowed, match="doesn't support Exclusive"):
        await topic.attach(bench.consumer(), wanted("s3"))


async def test_subscriptions_are_not_made_where_the_rules_forbid_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", auto_create_subscriptions=False)
    with pytest.raises(SubscriptionNotFound):
        await topic.attach(bench.consumer(), wanted())
    await topic.create_subscription("s", from_earliest=True)
    await topic.attach(bench.consumer(), wanted())


async def test_subscribing_too_often(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", subscribe_rate=2, subscribe_period_s=10)
    for _ in range(2):
        consumer = bench.consumer("c", address="1.2.3.4:5")
        await topic.detach(await topic.attach(consumer, wanted()), consumer)
    with pytest.raises(NotAllowed, match="subscribe rate"):
        await topic.attach(bench.consumer("c", address="1.2.3.4:6"), wanted())
    await topic.attach(bench.consumer("d", address="1.2.3.4:6"), wanted("s2"))
    bench.clock.advance(10_000)
    await topic.attach(bench.consumer("c", address="1.2.3.4:7"), wanted())


async def test_the_publish_rate_pauses_the_connection(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", publish_rate=Rate(messages=10))
    producer = await bench.producer(topic)
    assert topic.publish(producer, [send(i) for i in range(5)]).pause_s == 0
    pause_s = topic.publish(producer, [send(i) for i in range(5, 20)]).pause_s
    assert 1.0 < pause_s < 1.2
    bench.clock.advance(1500)
    assert topic.publish(producer, [send(21)]).pause_s == 0


async def test_a_terminated_topic_takes_no_more_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(0), send(1, 2)])
    line = Line()
    consumer = bench.consumer(line=line)
    subscription = await topic.attach(consumer, wanted())
    assert await topic.terminate() == (0, 1, 1)
    assert bench.line.closed == [producer]
    assert isinstance(topic.publish(producer, [send(3)]).refused, TopicTerminated)
    assert line.ended == []
    subscription.flow(consumer, 10)
    await settle()
    subscription.ack(consumer, [Ack(1)], cumulative=True)
    assert line.ended == [consumer]
    await bench.restart()
    again = await bench.open("orders")
    with pytest.raises(TopicTerminated):
        await bench.producer(again)
    late = Line()
    await again.attach(bench.consumer(line=late), wanted())
    assert len(late.ended) == 1


async def test_producers_hear_of_the_end_before_a_message_of_theirs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    closed_while_stored = []

    async def store(self: object, name: TopicName, index: int, end: int) -> None:
        closed_while_stored.extend(bench.line.closed)

    monkeypatch.setattr(FakeCatalog, "store_terminated", store)
    await topic.terminate()
    assert closed_while_stored == [producer]


async def test_unloading_sends_everybody_to_look_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    line = Line()
    consumer = bench.consumer(line=line)
    await topic.attach(consumer, wanted())
    await bench.topics.unload(ORDERS)
    assert bench.line.closed == [producer]
    assert line.disconnected == [consumer]
    assert bench.topics.find(ORDERS) is None
    with pytest.raises(TopicClosed):
        await bench.producer(topic)
    again = await bench.open("orders")
    assert again is not topic
    assert again.subscriptions.find("s") is not None


async def test_deleting(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    with pytest.raises(TopicBusy):
        await bench.topics.delete(ORDERS)
    await bench.topics.delete(ORDERS, force=True)
    assert bench.line.closed == [producer]
    with pytest.raises(UnknownTopic):
        await bench.topics.open(ORDERS)


@pytest.mark.parametrize(
    ("action", "error"), [("producer_request_hold", BacklogHold), ("producer_exception", BacklogExceeded)]
)
async def test_a_backlog_beyond_its_quota_keeps_producers_away(
    tmp_path: Path, action: str, error: type[Exception]
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", backlog_size=Quota(500, action))  # type: ignore[arg-type]
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i, size=100) for i in range(10)])
    await bench.topics.upkeep.check_backlog(topic)
    assert bench.line.closed == []
    subscription = await topic.create_subscription("s", from_earliest=True)
    await bench.topics.upkeep.check_backlog(topic)
    assert bench.line.closed == [producer]
    with pytest.raises(error):
        await bench.producer(topic)
    subscription.advance_to(10)
    await bench.producer(topic)


async def test_old_messages_are_evicted_by_size_and_by_age(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    now_ms = bench.clock.now_ms()
    topic = await bench.open("orders", backlog_size=Quota(1000, "consumer_backlog_eviction"))
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i, size=100, publish_time=now_ms + i * 1000) for i in range(20)])
    subscription = await topic.create_subscription("s", from_earliest=True)
    await bench.topics.upkeep.check_backlog(topic)
    left = topic.end - subscription.cursor.mark_delete
    assert 3 < left < 7
    bench.rule("orders", backlog_size=Quota(None, "consumer_backlog_eviction"))
    bench.rule("orders", backlog_age=Quota(3, "consumer_backlog_eviction"))
    bench.clock.advance(21_000)
    await bench.topics.upkeep.check_backlog(topic)
    assert subscription.cursor.mark_delete == 18


async def test_messages_expire(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    now_ms = bench.clock.now_ms()
    topic = await bench.open("orders", message_ttl_s=60)
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i, publish_time=now_ms + i * 10_000) for i in range(10)])
    subscription = await topic.create_subscription("s", from_earliest=True)
    bench.clock.advance(90_000)
    await bench.topics.upkeep.expire(topic)
    assert subscription.cursor.mark_delete == 3


async def test_topics_that_nobody_uses_go(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", delete_inactive=True, delete_inactive_after_s=60)
    producer = await bench.producer(topic)
    check = bench.topics.upkeep.check_inactive
    await check(topic)
    bench.clock.advance(100_000)
    await check(topic)
    assert bench.topics.find(ORDERS) is topic
    topic.remove_producer(producer)
    bench.clock.advance(59_000)
    await check(topic)
    assert bench.topics.find(ORDERS) is topic
    bench.clock.advance(2_000)
    await check(topic)
    assert bench.topics.find(ORDERS) is None
    assert ORDERS not in bench.written


async def test_topics_with_messages_or_subscriptions_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", delete_inactive=True, delete_inactive_after_s=60)
    await topic.create_subscription("s", from_earliest=True)
    check = bench.topics.upkeep.check_inactive
    bench.clock.advance(100_000)
    await check(topic)
    assert ORDERS in bench.written
    bench.rule("orders", delete_inactive_mode="delete_when_subscriptions_caught_up")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(0)])
    topic.remove_producer(producer)
    bench.clock.advance(100_000)
    await check(topic)
    assert ORDERS in bench.written
    bench.rule("orders", retention_ms=0)
    await check(topic)
    assert ORDERS in bench.written  # the subscription has not read everything
    topic.subscriptions.find("s").advance_to(1)
    bench.clock.advance(60_000)
    await check(topic)
    assert ORDERS not in bench.written


async def test_abandoned_subscriptions_go(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", subscription_expiration_s=60)
    await topic.create_subscription("s", from_earliest=True)
    await topic.attach(bench.consumer(), wanted("used"))
    bench.clock.advance(61_000)
    await bench.topics.upkeep.drop_abandoned(topic)
    assert [held.subscription.name for held in topic.subscriptions] == ["used"]


async def test_duplicates_are_not_stored_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic)
    assert topic.publish(producer, [send(0), send(1), send(2)]).offsets == [0, 1, 2]
    assert topic.publish(producer, [send(1), send(2), send(3)]).offsets == [DUPLICATE, DUPLICATE, 3]
    batch = send(4, 3, highest_sequence_id=6)
    assert topic.publish(producer, [batch]).offsets == [4]
    assert topic.publish(producer, [batch, send(7)]).offsets == [DUPLICATE, 7]
    other = await bench.producer(topic, "other")
    assert topic.publish(other, [send(0, producer="other")]).offsets == [8]


@pytest.mark.parametrize("clean", [True, False])
async def test_deduplication_survives(tmp_path: Path, clean: bool) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i) for i in range(10)])
    topic.publish(producer, [send(10, 5, highest_sequence_id=14)])
    await bench.restart(clean=clean)
    again = await bench.open("orders")
    joined = await again.add_producer(bench.new_producer("p"))
    assert joined.last_sequence_id == 14
    renewed = again.producers.named("p")
    assert renewed is not None
    assert again.publish(renewed, [send(14), send(15)]).offsets == [DUPLICATE, 15]


async def test_deduplication_does_not_take_kafka_producers_for_its_own(tmp_path: Path) -> None:
    """Nor does a transaction of theirs that is not decided hide what was stored behind it."""
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic, "kafka")
    undecided = records("a", "b", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    topic.partition.append(memoryview(undecided), -1)
    topic.partition.append(memoryview(records("c", producer_id=8, producer_epoch=0, base_sequence=0)), -1)
    topic.publish(producer, [send(4, producer="kafka")])
    await bench.restart(clean=False)
    again = await bench.open("orders")
    assert again.end == 0
    assert (await again.add_producer(bench.new_producer("kafka"))).last_sequence_id == 4


async def test_a_snapshot_is_taken_every_so_many_entries(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic)
    first = bench.store.snapshots[("orders", 0)]
    topic.publish(producer, [send(i) for i in range(999)])
    await settle()
    assert bench.store.snapshots[("orders", 0)] == first
    topic.publish(producer, [send(999)])
    await settle()
    assert bench.store.snapshots[("orders", 0)] != first


async def test_deduplication_switched_on_and_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    assert topic.publish(producer, [send(0), send(0)]).offsets == [0, 1]
    bench.rule("orders", deduplication=True)
    await settle()
    assert topic.publish(producer, [send(0), send(0)]).offsets == [2, DUPLICATE]
    bench.rule("orders", deduplication=False)
    await settle()
    assert topic.publish(producer, [send(0)]).offsets == [3]
    assert bench.store.snapshots == {}
    bench.rule("orders", deduplication=True)
    await settle()
    assert topic.publish(producer, [send(0), send(0)]).offsets == [4, DUPLICATE]


@contextmanager
def refusing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No snapshot can be kept."""

    async def refuse(topic: str, partition: int, snapshot: bytes | None) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as full:
        full.setattr(bench.store, "write_snapshot", refuse)
        yield


async def test_deduplication_that_could_not_be_switched_on_is_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    with refusing(bench, monkeypatch):
        bench.rule("orders", deduplication=True)
        await settle()
        await topic.tend()
    assert topic.publish(producer, [send(0), send(0)]).offsets == [0, 1]
    await topic.tend()
    assert topic.publish(producer, [send(0), send(0)]).offsets == [2, DUPLICATE]


async def test_deduplication_that_could_not_be_switched_off_begins_anew_when_it_is_on_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic)
    assert topic.publish(producer, [send(0)]).offsets == [0]
    with refusing(bench, monkeypatch):
        bench.rule("orders", deduplication=False)
        await settle()
    await topic.tend()
    assert bench.store.snapshots == {}
    bench.rule("orders", deduplication=True)
    await settle()
    assert topic.publish(producer, [send(0), send(0)]).offsets == [1, DUPLICATE]


async def test_a_producer_waits_for_a_switch_that_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would be told that it has sent nothing yet, and what it sends would be a duplicate."""
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    first = await bench.producer(topic)
    with refusing(bench, monkeypatch):
        bench.rule("orders", deduplication=True)
        await settle()
    write, may_write = bench.store.write_snapshot, asyncio.Event()

    async def slow(*snapshot: Any) -> None:
        await may_write.wait()
        await write(*snapshot)

    monkeypatch.setattr(bench.store, "write_snapshot", slow)
    tending = asyncio.ensure_future(topic.tend())
    await settle()
    topic.publish(first, [send(0), send(1)])
    topic.remove_producer(first)
    joining = asyncio.ensure_future(topic.add_producer(bench.new_producer("p")))
    await settle()
    assert not joining.done()
    may_write.set()
    await tending
    assert (await joining).last_sequence_id == 1


async def test_a_snapshot_that_could_not_be_kept_is_when_nothing_has_come_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic)
    first = bench.store.snapshots[("orders", 0)]
    topic.publish(producer, [send(0)])
    with refusing(bench, monkeypatch):
        await topic.tend()
    assert bench.store.snapshots[("orders", 0)] == first
    await topic.tend()
    kept = bench.store.snapshots[("orders", 0)]
    assert kept != first
    topic.partition.trim(1)  # as retention would: there is nothing left to read it from
    await bench.restart(clean=False)
    again = await bench.open("orders")
    assert (await again.add_producer(bench.new_producer("p"))).last_sequence_id == 0


async def test_chunks_are_held_against_the_last_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic)
    chunks = [send(0, uuid="u", chunk_id=i, num_chunks_from_msg=3) for i in range(3)]
    assert topic.publish(producer, chunks).offsets == [0, 1, 2]
    assert topic.publish(producer, chunks).offsets == [3, 4, DUPLICATE]
    assert producer.chunked_messages == 5


async def test_delayed_messages_wait_over_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    now_ms = bench.clock.now_ms()
    topic.publish(producer, [send(0, deliver_at_time=now_ms + 5_000), send(1)])
    for restarted in range(2):
        line = Line()
        consumer = bench.consumer(line=line)
        subscription = await topic.attach(consumer, wanted(kind=SubscriptionKind.SHARED))
        subscription.flow(consumer, 10)
        await settle()
        assert line.offsets == [1]
        if restarted:
            break
        await bench.restart()
        topic = await bench.open("orders")
    bench.clock.advance(5_000)
    subscription.wake()
    await settle()
    assert line.offsets == [1, 0]


@pytest.mark.parametrize("kind", [SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED])
async def test_delays_that_are_switched_on_and_off_count_for_those_who_are_there(
    tmp_path: Path, kind: SubscriptionKind
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", delayed_delivery=False)
    producer = await bench.producer(topic)
    line = Line()
    consumer = bench.consumer(line=line)
    subscription = await topic.attach(consumer, wanted(kind=kind))
    subscription.flow(consumer, 10)
    later_ms = bench.clock.now_ms() + 5_000
    for number, is_on in enumerate((False, True, False)):
        bench.rule("orders", delayed_delivery=is_on)
        topic.publish(producer, [send(number, deliver_at_time=later_ms)])
        await settle()
    assert line.offsets == [0, 2]
    bench.clock.advance(5_000)
    subscription.wake()
    await settle()
    assert line.offsets == [0, 2, 1]


async def test_who_reads_in_order_does_not_wait_for_what_others_put_aside(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(0, deliver_at_time=bench.clock.now_ms() + 5_000), send(1)])
    consumer = bench.consumer()
    subscription = await topic.attach(consumer, wanted(kind=SubscriptionKind.SHARED))
    subscription.flow(consumer, 10)
    await settle()
    before = subscription._timer
    assert before is not None
    await topic.detach(subscription, consumer)
    line = Line()
    consumer = bench.consumer(line=line)
    await topic.attach(consumer, wanted())
    subscription.flow(consumer, 10)
    bench.clock.advance(6_000)
    await settle()
    assert line.offsets == [0, 1]
    assert subscription._timer is before, "it would look again and again for what nobody takes"


async def test_a_delay_that_is_too_long(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", max_delay_ms=10_000)
    producer = await bench.producer(topic)
    now_ms = bench.clock.now_ms()
    sends = [send(0), send(1, deliver_at_time=now_ms + 20_000), send(2, deliver_at_time=now_ms + 9_000)]
    published = topic.publish(producer, sends)
    assert published.offsets == [0]
    assert isinstance(published.refused, NotAllowed)
    assert topic.publish(producer, sends[2:]).offsets == [1]


async def test_the_dispatch_rate_slows_consumers_down(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open(
        "orders", dispatch_rate=Rate(messages=10), subscription_dispatch_rate=Rate(messages=8)
    )
    topic.publish(await bench.producer(topic), [send(i) for i in range(50)])
    lines = [Line(), Line()]
    for name, line in zip("ab", lines, strict=True):
        consumer = bench.consumer(line=line)
        subscription = await topic.attach(consumer, wanted(name))
        subscription.flow(consumer, 100)
    await settle()
    assert sorted(len(line.received) for line in lines) == [2, 8]
    bench.rule("orders", dispatch_rate=Rate(), subscription_dispatch_rate=Rate())
    await settle()
    assert [len(line.received) for line in lines] == [50, 50]
    bench.topics.topic_changed(ORDERS)


async def test_a_first_consumer_that_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    bad = bench.consumer(key_sharing=KeySharing([]))
    with pytest.raises(ConsumerAssignError):
        await topic.attach(bad, wanted(kind=SubscriptionKind.KEY_SHARED))
    held = topic.subscriptions.get("s")
    assert held.durable is not None
    assert held.durable.attachments == 0
    with pytest.raises(ConsumerAssignError):
        await topic.attach(bad, wanted("r", SubscriptionKind.KEY_SHARED, is_durable=False))
    assert topic.subscriptions.find("r") is None


async def test_a_topic_that_could_not_be_terminated_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)

    async def fail(self: object, name: TopicName, index: int, end: int) -> None:
        raise OSError("no store")

    monkeypatch.setattr(FakeCatalog, "store_terminated", fail)
    with pytest.raises(OSError, match="no store"):
        await topic.terminate()
    assert bench.line.closed == [producer]
    assert topic.publish(await bench.producer(topic), [send(0)]).offsets == [0]


async def test_many_subscriptions(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    for i in range(500):
        await topic.create_subscription(f"s{i}", from_earliest=True)
    topic.publish(await bench.producer(topic), [send(0)])
    for i in range(0, 500, 2):
        topic.subscriptions.find(f"s{i}").advance_to(1)
    assert topic.subscriptions.slowest() == 0
    await bench.restart()
    again = await bench.open("orders")
    assert sum(held.cursor.mark_delete for held in again.subscriptions) == 250


async def test_messages_that_are_not_encrypted_where_they_must_be(tmp_path: Path) -> None:
    for name in ("orders", "non-persistent://public/default/live"):
        bench = Bench(tmp_path)
        topic = await bench.open(name, encryption_required=True)
        with pytest.raises(NotAllowed):
            await bench.producer(topic)
        producer = await bench.producer(topic, is_encrypted=True)
        sends = [send(0)._replace(is_encrypted=True), send(1), send(2)._replace(is_encrypted=True)]
        published = topic.publish(producer, sends)
        assert len(published.offsets) == 1
        assert isinstance(published.refused, NotEncrypted)


async def test_a_topic_that_kafka_clients_use_is_not_inactive(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open(
        "orders", delete_inactive=True, delete_inactive_after_s=60, retention_ms=0, retention_bytes=0
    )
    check = bench.topics.upkeep.check_inactive
    for _ in range(3):  # a producer
        topic.partition.append(memoryview(records("a")), 1)
        bench.clock.advance(61_000)
        await check(topic)
    topic.partition.wait(bench.topics.rules_changed)  # a consumer that waits
    bench.clock.advance(61_000)
    await check(topic)
    assert list(bench.topics) == [topic]
    topic.partition.stop_waiting(bench.topics.rules_changed)
    bench.clock.advance(61_000)
    await check(topic)
    assert list(bench.topics) == []
