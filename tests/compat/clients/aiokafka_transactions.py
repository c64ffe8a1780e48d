"""Transactions through aiokafka: commit, abort, fences, and offsets of what was read."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from transcript import Transcript, arguments, text

TIMEOUT_S = 60.0


class Cluster:
    """The broker under test."""

    def __init__(self, bootstrap: str, transcript: Transcript) -> None:
        self.bootstrap = bootstrap
        self.say = transcript

    async def create(self, name: str, partitions: int = 1) -> str:
        topic = self.say.topic(name)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, partitions, 1)])
        await admin.close()
        self.say.settle()
        return topic

    async def producer(self, name: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=self.say.topic(name), enable_idempotence=True
        )
        await asyncio.wait_for(producer.start(), TIMEOUT_S)
        return producer

    def consumer(self, *topics: str, **conf: Any) -> AIOKafkaConsumer:
        told = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 100}
        return AIOKafkaConsumer(*topics, bootstrap_servers=self.bootstrap, **(told | conf))

    async def values(self, topic: str, isolation: str = "read_committed") -> list[str | None]:
        async with self.consumer(isolation_level=isolation) as consumer:
            where = TopicPartition(topic, 0)
            consumer.assign([where])
            end = (await consumer.end_offsets([where]))[where]
            found: list[str | None] = []
            while await consumer.position(where) < end:
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    found += [text(message.value) for message in messages]
        return found


async def commit_and_abort(cluster: Cluster) -> None:
    say = cluster.say
    say.section("commit and abort")
    topic = await cluster.create("both")
    producer = await cluster.producer("one")
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"a")
    say.line("while open", await cluster.values(topic))
    say.line("for all to see", await cluster.values(topic, "read_uncommitted"))
    await say.attempt_async("commit", producer.commit_transaction())
    say.line("after", await cluster.values(topic))
    async with producer.transaction():
        await producer.send_and_wait(topic, b"b")
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"c")
    await say.attempt_async("abort", producer.abort_transaction())
    for number in range(10):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"d%d" % number)
        await (producer.commit_transaction() if number % 2 else producer.abort_transaction())
    await producer.stop()
    await settled(cluster, topic, 7)
    say.line("after", await cluster.values(topic))


async def settled(cluster: Cluster, topic: str, count: int) -> None:
    """Kafka answers before the markers are there."""
    for _ in range(600):
        if len(await cluster.values(topic)) >= count:
            return
        await asyncio.sleep(0.1)


async def fences(cluster: Cluster) -> None:
    say = cluster.say
    say.section("fences")
    topic = await cluster.create("fences")
    old = await cluster.producer("two")
    await old.begin_transaction()
    await old.send_and_wait(topic, b"old")
    new = await cluster.producer("two")
    await say.attempt_async("the old one commits", old.commit_transaction())
    await new.begin_transaction()
    await new.send_and_wait(topic, b"new")
    await say.attempt_async("the new one commits", new.commit_transaction())
    await new.stop()
    await old.stop()
    await settled(cluster, topic, 1)
    say.line("seen", await cluster.values(topic))


async def copy(cluster: Cluster) -> None:
    """Read, change, write, and commit both as one."""
    say = cluster.say
    say.section("copy")
    source, target = await cluster.create("in"), await cluster.create("out")
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as filler:
        for number in range(5):
            await filler.send_and_wait(source, b"%d" % number)
    group = say.topic("copiers")
    producer = await cluster.producer("three")
    for ending in ("abort", "commit"):
        consumer = cluster.consumer(source, group_id=group, isolation_level="read_committed")
        async with consumer:
            await producer.begin_transaction()
            where = TopicPartition(source, 0)
            while await position(consumer, where) < 5:
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    for message in messages:
                        await producer.send_and_wait(target, b"<" + (message.value or b"") + b">")
            await producer.send_offsets_to_transaction({where: 5}, group)
            if ending == "commit":
                await say.attempt_async("commit", producer.commit_transaction())
            else:
                await say.attempt_async("abort", producer.abort_transaction())
    await producer.stop()
    await settled(cluster, target, 5)
    say.line("out", await cluster.values(target))
    async with cluster.consumer(group_id=group) as consumer:
        say.line("committed", await consumer.committed(TopicPartition(source, 0)))


async def position(consumer: AIOKafkaConsumer, where: TopicPartition) -> int:
    if where not in consumer.assignment():
        return -1
    return int(await consumer.position(where))


async def main() -> None:
    args = arguments(__doc__)
    cluster = Cluster(args.bootstrap, Transcript(args.prefix, args.settle_s))
    await commit_and_abort(cluster)
    await fences(cluster)
    await copy(cluster)


if __name__ == "__main__":
    asyncio.run(main())
