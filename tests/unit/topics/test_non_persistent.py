"""Topics that store nothing: who is there gets a message, what is missed is counted."""

from pathlib import Path

import pytest

from anabranch.base.errors import NotOwner
from anabranch.base.ids import BrokerId, TopicName
from anabranch.meta.image import BrokerImage, ClusterImage, ImageChange
from anabranch.subscriptions.consumer import HashRange, KeySharing
from anabranch.subscriptions.errors import ConsumerBusy, SubscriptionTypeMismatch
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.topics.errors import SubscriptionBusy, TopicClosed
from anabranch.topics.topic_stats import stats_of
from tests.support.topics import Bench, Line, send, wanted

NAME = "non-persistent://public/default/live"


async def test_who_has_room_gets_it_and_the_rest_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open(NAME)
    producer = await bench.producer(topic)
    assert topic.publish(producer, [send(0), send(1, 3)]).offsets == [0, 0]
    assert topic.messages_dropped == 4  # nobody was there
    line = Line()
    consumer = bench.consumer(line=line)
    subscription = await topic.attach(consumer, wanted())
    topic.publish(producer, [send(2)])
    subscription.flow(consumer, 2)
    topic.publish(producer, [send(3), send(4), send(5)])
    assert [delivery.entry.count for delivery in line.received] == [1, 1]
    assert (subscription.messages_dropped, topic.messages_dropped) == (2, 6)
    line.writable = False
    subscription.flow(consumer, 2)
    topic.publish(producer, [send(6)])
    assert len(line.received) == 2
    stats = stats_of(topic, 0)
    assert stats.subscriptions["s"].msg_drop_counter == 3
    assert (stats.msg_in_counter, stats.msg_out_counter, stats.msg_drop_counter) == (9, 2, 7)


async def test_the_kinds(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open(NAME)
    producer = await bench.producer(topic)
    lines = [Line(), Line()]
    consumers = [bench.consumer(name, line=line) for name, line in zip("ab", lines, strict=True)]
    subscription = await topic.attach(consumers[0], wanted("shared", SubscriptionKind.SHARED))
    await topic.attach(consumers[1], wanted("shared", SubscriptionKind.SHARED))
    with pytest.raises(SubscriptionTypeMismatch):
        await topic.attach(bench.consumer(), wanted("shared"))
    for consumer in consumers:
        subscription.flow(consumer, 10)
    topic.publish(producer, [send(i) for i in range(4)])
    assert [len(line.received) for line in lines] == [2, 2]
    one = bench.consumer()
    await topic.attach(one, wanted("alone"))
    with pytest.raises(ConsumerBusy):
        await topic.attach(bench.consumer(), wanted("alone"))
    standby = Line()
    await topic.attach(bench.consumer("a"), wanted("over", SubscriptionKind.FAILOVER))
    await topic.attach(bench.consumer("b", line=standby), wanted("over", SubscriptionKind.FAILOVER))
    assert len(standby.active) == 1


async def test_keys_go_to_their_consumer(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open(NAME)
    producer = await bench.producer(topic)
    lines = [Line(), Line()]
    halves = (HashRange(0, 32767), HashRange(32768, 65535))
    for line, half in zip(lines, halves, strict=True):
        consumer = bench.consumer(line=line, key_sharing=KeySharing([half]))
        subscription = await topic.attach(consumer, wanted("keys", SubscriptionKind.KEY_SHARED))
        subscription.flow(consumer, 100)
    topic.publish(producer, [send(i, partition_key=f"k{i % 10}") for i in range(50)])
    got = [{bytes(d.entry.payload) for d in line.received} for line in lines]
    assert sum(len(line.received) for line in lines) == 50
    assert all(got)


async def test_gone_with_its_consumers(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open(NAME)
    one, two = bench.consumer(), bench.consumer()
    subscription = await topic.attach(one, wanted(kind=SubscriptionKind.SHARED))
    await topic.attach(two, wanted(kind=SubscriptionKind.SHARED))
    with pytest.raises(SubscriptionBusy):
        await topic.unsubscribe("s", consumer=one)
    await topic.detach(subscription, two)
    await topic.detach(subscription, one)
    assert topic.subscriptions == {}
    topic.abandon()
    with pytest.raises(TopicClosed):
        await bench.producer(topic)


async def test_it_closes_when_it_is_another_brokers(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open(NAME)
    producer = await bench.producer(topic)
    bench.served_elsewhere.add(TopicName.from_pulsar(NAME))
    one = BrokerImage(BrokerId(2), "h", 9092)
    here, there = ClusterImage(cluster_id="c"), ClusterImage(cluster_id="c", brokers={one.id: one})
    bench.topics.image_changed(ImageChange(here, there, []))
    with pytest.raises(NotOwner):
        await bench.open(NAME)
    assert producer.is_closed
    with pytest.raises(TopicClosed):
        await topic.attach(bench.consumer(), wanted())
