"""A topic that is compacted: when, what comes of it, and what who asks for the last of every key gets."""

import asyncio
import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.ids import TopicName
from anabranch.base.seldom import Seldom
from anabranch.log.compacted import let_count
from anabranch.log.paths import COMPACTED
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.errors import NotAllowed as NotAllowedThere
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.topics import compacting as module
from anabranch.topics import upkeep as upkeep_module
from anabranch.topics.compacting import ERROR, NOT_RUN, RUNNING, SUCCESS, AlreadyCompacting
from anabranch.topics.errors import NotAllowed
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic
from anabranch.topics.topic_stats import internal_stats_of, stats_of
from tests.support.compaction import compact_now
from tests.support.topics import Bench, send, wanted

EARLIEST, LATEST = -1, (1 << 63) - 1


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def finished(topic: Topic) -> None:
    for _ in range(60_000):
        if topic.compacting.status != RUNNING:
            return
        await asyncio.sleep(0.001)
    pytest.fail("it goes on for ever")


async def holds(topic: Topic, count: int) -> None:
    """What nobody needs is removed by a thread."""
    folder = topic.partition.log.folder / COMPACTED
    for _ in range(60_000):
        if len(list(folder.iterdir())) == count:
            return
        await asyncio.sleep(0.001)
    pytest.fail(f"there are {sorted(path.name for path in folder.iterdir())}")


async def compacted(topic: Topic) -> None:
    topic.compact()
    await finished(topic)
    assert topic.compacting.status == SUCCESS, topic.compacting.last_error


async def publish(bench: Bench, topic: Topic, *keys: str) -> None:
    """A message a key; one in capitals deletes it."""
    producer = bench.new_producer("p")
    await topic.add_producer(producer)
    for key in keys:
        size = 0 if key.isupper() else 10
        topic.publish(producer, [send(0, size=size, partition_key=key.lower())])
    topic.remove_producer(producer)


async def attach(
    bench: Bench, topic: Topic, subscription: str = "s", permits: int = 100, **fields: Any
) -> Consumer:
    consumer = bench.consumer(reads_compacted=fields.pop("compacted", True))
    attached = await topic.attach(consumer, wanted(subscription, **fields))
    attached.flow(consumer, permits)
    await settle()
    return consumer


def offsets(consumer: Consumer) -> list[int]:
    found: list[int] = consumer.channel.offsets  # type: ignore[attr-defined]
    return found


async def read(bench: Bench, topic: Topic, name: str = "reader", **fields: Any) -> list[int]:
    """What a reader gets, from the beginning unless told otherwise."""
    fields = {"is_durable": False, "start": (EARLIEST, -1)} | fields
    consumer = await attach(bench, topic, name, **fields)
    found = topic.subscriptions.find(name)
    assert found is not None
    await topic.detach(found, consumer)
    return offsets(consumer)


async def test_the_last_of_every_key_and_what_came_since(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b", "a", "c", "B")
    assert topic.compacting.status == NOT_RUN
    assert await read(bench, topic) == [0, 1, 2, 3, 4]
    await compacted(topic)
    assert await read(bench, topic) == [2, 3]
    assert await read(bench, topic, compacted=False) == [0, 1, 2, 3, 4]
    await publish(bench, topic, "c", "C")
    assert await read(bench, topic) == [2, 3, 5, 6]
    await compacted(topic)
    assert await read(bench, topic) == [2]
    stats = stats_of(topic, 0)
    assert stats.compaction.last_compaction_removed_event_count == 3
    assert stats.compaction.last_compaction_succeed_timestamp == bench.clock.now_ms()
    assert internal_stats_of(topic).compacted_ledger.entries == 1


async def test_one_at_a_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "a")
    bench.may_compact.clear()
    topic.compact()
    with pytest.raises(AlreadyCompacting):
        topic.compact()
    bench.may_compact.set()
    await finished(topic)
    await compacted(topic)  # nothing has come since
    assert await read(bench, topic) == [1]


async def test_by_threshold(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t", compaction_threshold_bytes=2000)
    upkeep = bench.topics.upkeep
    await publish(bench, topic, *["a"] * 5)
    await upkeep.round(upkeep.compact)
    assert topic.compacting.status == NOT_RUN
    await publish(bench, topic, *["a"] * 30)
    await upkeep.round(upkeep.compact)
    assert topic.compacting.status == RUNNING
    await finished(topic)
    assert await read(bench, topic) == [34]
    assert not topic.compacting.is_due(1)
    bench.rule("t", compaction_threshold_bytes=None)
    await publish(bench, topic, *["a"] * 60)
    assert not topic.compacting.is_due(topic.rules.compaction_threshold_bytes)


async def test_a_round_goes_on_after_a_topic_that_fails_and_says_so_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    for i in range(5):
        await bench.open(f"t{i}")
    monkeypatch.setattr(upkeep_module, "_trouble", Seldom(upkeep_module.log, 3600.0))
    seen = []

    async def fail(topic: AnyTopic) -> None:
        seen.append(topic)
        raise OSError(errno.EIO, "broken")

    for _ in range(2):
        await bench.topics.upkeep.round(fail)
    assert len(seen) == 10
    assert caplog.text.count("broken") == 1


async def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "a")
    bench.may_compact.clear()
    topic.compact()
    await settle()
    for path in topic.partition.log.folder.glob("*.log"):
        path.unlink()
    bench.may_compact.set()
    await finished(topic)
    assert topic.compacting.status == ERROR
    assert "is gone" in topic.compacting.last_error
    await holds(topic, 0)


async def test_a_mistake_of_ours_is_said_and_the_next_one_may_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "a")

    def mistaken(*_: object, **__: object) -> None:
        raise ValueError("a line of a worker that is none")

    with monkeypatch.context() as wrong:
        wrong.setattr(module, "view_job", mistaken)
        topic.compact()
        await settle()
    assert (topic.compacting.status, topic.compacting.last_error) == (
        ERROR,
        "a line of a worker that is none",
    )
    assert "Traceback" in caplog.text
    await compacted(topic)


async def test_a_topic_that_closes_gives_it_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "a")
    bench.may_compact.clear()
    topic.compact()
    await settle()
    await bench.topics.unload(TopicName.from_pulsar("t"))
    assert topic.compacting.status == NOT_RUN
    again = await bench.open("t")
    assert again.compacting.view is None


async def test_a_topic_that_closes_while_its_view_begins_to_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        time.sleep(0.1)
        return let_count(*arguments)

    monkeypatch.setattr(module, "let_count", slow)
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "a", "b")
    topic.compact()
    await asyncio.to_thread(begun.wait, 60)
    await bench.restart()
    topic = await bench.open("t")
    assert await read(bench, topic) == [1, 2]


@pytest.mark.parametrize("clean", [True, False])
async def test_after_a_restart(tmp_path: Path, clean: bool) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b", "a")
    await compacted(topic)
    await bench.restart(clean=clean)
    topic = await bench.open("t")
    assert await read(bench, topic) == [1, 2]


async def test_who_may_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    for kind in (SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED):
        with pytest.raises((NotAllowed, NotAllowedThere), match="readCompacted"):
            await topic.attach(bench.consumer(reads_compacted=True), wanted("s", kind))
    live = await bench.open("non-persistent://public/default/t")
    with pytest.raises(NotAllowed, match="readCompacted"):
        await live.attach(bench.consumer(reads_compacted=True), wanted("s"))


async def test_it_has_what_retention_took(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b", "a", "c")
    await compacted(topic)
    topic.partition.trim(4)
    assert topic.start == 4
    assert topic.compacted_start == 0
    assert await read(bench, topic) == [1, 2, 3]
    assert await read(bench, topic, compacted=False) == []
    # A durable subscription, too, which stays where it is over a restart.
    consumer = await attach(bench, topic, "durable", permits=2)
    assert offsets(consumer) == [1, 2]
    subscription = topic.subscriptions.find("durable")
    assert subscription is not None
    subscription.ack(consumer, [Ack(1)], cumulative=False)
    await topic.save(subscription)
    await bench.restart()
    topic = await bench.open("t")
    assert offsets(await attach(bench, topic, "durable")) == [2, 3]


async def test_a_log_that_has_nothing_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b")
    await compacted(topic)
    await publish(bench, topic, "c")
    topic.partition.trim(3)
    await compacted(topic)
    assert topic.compacting.horizon == 3
    assert await read(bench, topic) == [0, 1]


async def test_a_reader_sees_what_was_deleted_while_it_read(tmp_path: Path) -> None:
    """It has a key from the old view; the new one does not say that it was deleted, the log does."""
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b", "c")
    await compacted(topic)
    slow = await attach(bench, topic, "slow", permits=1)
    assert offsets(slow) == [0]
    await publish(bench, topic, "A", "d")
    await compacted(topic)
    await holds(topic, 3)  # both views, and which one counts
    subscription = topic.subscriptions.find("slow")
    assert subscription is not None
    subscription.flow(slow, 100)
    await settle()
    assert offsets(slow) == [0, 1, 2, 3, 4]
    await holds(topic, 2)
    assert await read(bench, topic) == [1, 2, 4]


async def test_a_view_is_let_go_with_its_reader(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b", "c")
    await compacted(topic)
    slow = await attach(bench, topic, "slow", permits=1)
    await publish(bench, topic, "d")
    await compacted(topic)
    subscription = topic.subscriptions.find("slow")
    assert subscription is not None
    await topic.detach(subscription, slow)
    await holds(topic, 2)


async def test_a_subscription_comes_back_and_reads_the_new_view(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    consumer = await attach(bench, topic)
    subscription = topic.subscriptions.find("s")
    assert subscription is not None
    await topic.detach(subscription, consumer)
    await publish(bench, topic, "a", "a", "b")
    await compacted(topic)
    assert offsets(await attach(bench, topic)) == [1, 2]


async def test_failover_by_who_is_active(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t", failover_delay_ms=0)
    await publish(bench, topic, "a", "a", "b")
    await compacted(topic)
    plain = await attach(bench, topic, kind=SubscriptionKind.FAILOVER, compacted=False)
    assert offsets(plain) == [0, 1, 2]
    keen = await attach(bench, topic, kind=SubscriptionKind.FAILOVER)
    subscription = topic.subscriptions.find("s")
    assert subscription is not None
    await topic.detach(subscription, plain)
    await settle()
    assert offsets(keen) == [1, 2]


async def test_the_last_message(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b", "B")
    assert topic.last_message(compacted=True) == (0, 2, -1)
    await compacted(topic)
    assert topic.last_message(compacted=True) == (0, 0, -1)
    assert topic.last_message() == (0, 2, -1)
    await publish(bench, topic, "A")
    assert topic.last_message(compacted=True) == (0, 3, -1)
    await compacted(topic)
    assert topic.last_message(compacted=True) == (-1, -1, -1)


async def test_the_last_message_that_kafkas_compaction_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b")
    producer = bench.new_producer("p")
    await topic.add_producer(producer)
    topic.publish(producer, [send(0, size=10)])  # it has no key, and goes
    assert topic.last_message() == (0, 2, -1)
    topic.partition.log.roll()
    compact_now(topic.partition.log)
    assert topic.last_message() == (0, 1, -1)


async def test_seek(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    topic = await bench.open("t")
    await publish(bench, topic, "a", "b", "a", "c")
    await compacted(topic)
    topic.partition.trim(4)
    consumer = await attach(bench, topic)
    subscription = topic.subscriptions.find("s")
    assert subscription is not None
    subscription.ack(consumer, [Ack(3)], cumulative=True)
    for to, expected in ((EARLIEST, [1, 2, 3]), (2, [2, 3]), (LATEST, [])):
        await topic.seek(subscription, to)
        consumer = await attach(bench, topic)
        assert offsets(consumer) == expected
    assert await topic.offset_for_time(0, compacted=True) == 1
    assert await topic.offset_for_time(0) == 4
