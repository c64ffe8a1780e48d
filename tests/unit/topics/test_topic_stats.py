"""What is told about topics, in Pulsar's names."""

import asyncio
from pathlib import Path

import msgspec

from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.topics.topic_stats import internal_stats_of, stats_of
from tests.support.topics import Bench, Line, send, wanted


async def test_stats(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic, address="1.2.3.4:5", metadata={"a": "b"})
    now_ms = bench.clock.now_ms()
    topic.publish(producer, [send(i, publish_time=now_ms) for i in range(10)])
    consumer = bench.consumer("c", line=Line())
    subscription = await topic.attach(
        consumer, wanted(kind=SubscriptionKind.KEY_SHARED, properties={"x": "y"})
    )
    subscription.flow(consumer, 6)
    for _ in range(5):
        await asyncio.sleep(0)
    subscription.ack(consumer, [Ack(0), Ack(2)], cumulative=False)
    bench.clock.advance(10_000)
    topic.look(bench.clock.monotonic())
    told = msgspec.json.decode(msgspec.json.encode(stats_of(topic, bench.clock.now_ms())))
    assert told["msgRateIn"] == 1.0
    assert (told["msgInCounter"], told["msgOutCounter"]) == (10, 6)
    assert told["deduplicationStatus"] == "Enabled"
    assert told["oldestBacklogMessageAgeSeconds"] == 10
    assert told["publishers"][0]["metadata"] == {"a": "b"}
    assert told["publishers"][0]["msgRateIn"] == 1.0
    about = told["subscriptions"]["s"]
    assert (about["msgBacklog"], about["unackedMessages"], about["type"]) == (8, 4, "Key_Shared")
    assert (about["msgRateOut"], about["keySharedMode"]) == (0.6, "AUTO_SPLIT")
    assert about["nonContiguousDeletedMessagesRanges"] == 1
    assert about["subscriptionProperties"] == {"x": "y"}
    assert about["consumers"][0]["keyHashRangeArrays"]
    await topic.detach(subscription, consumer)
    assert stats_of(topic, 0).subscriptions["s"].msg_out_counter == 6


async def test_internal_stats(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    producer = await bench.producer(topic)
    topic.publish(producer, [send(i) for i in range(10)])
    subscription = await topic.create_subscription("s", from_earliest=True)
    subscription.advance_to(4)
    told = msgspec.json.decode(msgspec.json.encode(internal_stats_of(topic)))
    assert (told["numberOfEntries"], told["lastConfirmedEntry"]) == (10, "0:9")
    assert told["ledgers"] == [
        {
            "ledgerId": 0,
            "entries": 10,
            "size": told["totalSize"],
            "offloaded": False,
            "underReplicated": False,
        }
    ]
    assert told["cursors"]["s"]["markDeletePosition"] == "0:3"
    await topic.terminate()
    assert internal_stats_of(topic).state == "Terminated"


async def test_stats_of_an_empty_topic(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("orders")
    told = stats_of(topic, 0)
    assert (told.storage_size, told.backlog_size, told.oldest_backlog_message_age_seconds) == (0, 0, -1)
    assert internal_stats_of(topic).last_confirmed_entry == "-1:-1"
