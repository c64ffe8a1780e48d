"""Records through aiokafka: produce, read back from anywhere, and the errors on the way."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from transcript import BASE_MS, Transcript, arguments, describe_error, fail, stamp, text


class Cluster:
    """The broker under test, with the three things a test does to it."""

    def __init__(self, bootstrap: str, transcript: Transcript, admin: AIOKafkaAdminClient) -> None:
        self.bootstrap = bootstrap
        self.say = transcript
        self.admin = admin

    async def create(self, name: str, partitions: int = 1, **settings: str) -> str:
        topic = self.say.topic(name)
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        await self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        self.say.settle()
        return topic

    async def send(self, topic: str, records: Iterable[dict[str, Any]], **conf: Any) -> list[str]:
        """Produce `records` with a producer of their own; one text a record."""
        settings: dict[str, Any] = {"linger_ms": 50, "acks": "all"}
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, **(settings | conf)) as producer:
            futures = [await begin(producer, topic, record) for record in records]
            return [future if isinstance(future, str) else await finish(future) for future in futures]

    @asynccontextmanager
    async def consumer(self, *where: TopicPartition, **conf: Any) -> AsyncIterator[AIOKafkaConsumer]:
        settings: dict[str, Any] = {"fetch_max_wait_ms": 100, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap, **(settings | conf)) as consumer:
            if where:
                consumer.assign(list(where))
            yield consumer


async def begin(producer: AIOKafkaProducer, topic: str, record: dict[str, Any]) -> Any:
    try:
        return await producer.send(topic, **record)
    except Exception as error:  # noqa: BLE001  the kind of the error is the observation
        return describe_error(error)


async def finish(future: Any) -> str:
    try:
        metadata = await asyncio.wait_for(future, 60)
    except Exception as error:  # noqa: BLE001
        return describe_error(error)
    return "no answer" if metadata is None else f"{metadata.partition}/{metadata.offset}"


async def read(consumer: AIOKafkaConsumer, count: int, timeout_s: float = 60) -> list[Any]:
    records: list[Any] = []
    end = time.monotonic() + timeout_s
    while len(records) < count and time.monotonic() < end:
        for batch in (await consumer.getmany(timeout_ms=500, max_records=count - len(records))).values():
            records += batch
    if len(records) < count:
        fail(f"{len(records)} of {count} records in {timeout_s} s")
    return records


async def read_from(
    cluster: Cluster, topic: str, offset: int, count: int, partition: int = 0, **conf: Any
) -> list[Any]:
    where = TopicPartition(topic, partition)
    async with cluster.consumer(where, **conf) as consumer:
        consumer.seek(where, offset)
        return await read(consumer, count)


async def wait_for_end(cluster: Cluster, topic: str, end: int) -> None:
    where = TopicPartition(topic, 0)
    async with cluster.consumer() as consumer:
        for _ in range(600):
            if (await consumer.end_offsets([where]))[where] >= end:
                return
            await asyncio.sleep(0.05)
    fail(f"{topic} does not reach offset {end}")


def show(record: Any) -> dict[str, Any]:
    return {
        "at": f"{record.partition}/{record.offset}",
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
        "time": [{0: "create", 1: "append"}[record.timestamp_type], stamp(record.timestamp)],
    }


async def compressions(cluster: Cluster) -> None:
    say = cluster.say
    say.section("every compression and every acks")
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        topic = await cluster.create(f"codec-{codec}")
        values = []
        for acks in (0, 1, "all"):
            values += [f"{codec}-{acks}-{i}-".encode() + b"ab" * 200 for i in range(20)]
            records = [{"value": value, "timestamp_ms": BASE_MS + i} for i, value in enumerate(values[-20:])]
            reports = await cluster.send(topic, records, compression_type=codec, acks=acks)
            say.line(f"{codec} acks={acks}", f"{reports[0]} to {reports[-1]}")
            await wait_for_end(cluster, topic, len(values))  # with acks=0 the answer says nothing
        got = await read_from(cluster, topic, 0, len(values))
        say.line(f"{codec} values", [r.value for r in got] == values)
        say.line(f"{codec} offsets", [r.offset for r in got] == list(range(60)))
        say.line(f"{codec} times", [r.timestamp - BASE_MS for r in got] == [*range(20)] * 3)
        one = (await read_from(cluster, topic, 33, 1))[0]
        say.line(f"{codec} from inside a batch", [one.offset, one.value[: len(str(codec)) + 5].decode()])


async def idempotent(cluster: Cluster) -> None:
    say = cluster.say
    say.section("idempotent producer")
    topic = await cluster.create("idempotent", 2)
    for number in range(3):
        records = [{"value": b"%d-%d" % (number, i), "partition": i % 2} for i in range(10)]
        say.line(f"producer {number}", " ".join(await cluster.send(topic, records, enable_idempotence=True)))
    for partition in (0, 1):
        got = await read_from(cluster, topic, 0, 15, partition)
        say.line(f"partition {partition}", [text(r.value) for r in got])


async def shapes(cluster: Cluster) -> None:
    say = cluster.say
    say.section("keys, values, headers, times, partitions")
    topic = await cluster.create("shapes", 3)
    records: list[dict[str, Any]] = [
        {"value": b"plain"},
        {"key": b"k", "value": None},
        {"key": b"", "value": b""},
        {"key": b"k", "value": b"with headers", "headers": [("a", b"1"), ("b", b"2")]},
        {"value": b"repeated header", "headers": [("a", b"1"), ("a", b"2"), ("a", b"1")]},
        {"value": b"null header", "headers": [("n", None), ("empty", b"")]},
        {"value": b"x" * 5000},
    ]
    for i, record in enumerate(records):
        record.update(partition=1, timestamp_ms=BASE_MS + i)
    say.line("partition 1", " ".join(await cluster.send(topic, records)))
    keyed = [{"key": b"key-%d" % i, "value": b"keyed", "timestamp_ms": BASE_MS} for i in range(12)]
    say.line("by key", " ".join(r.split("/")[0] for r in await cluster.send(topic, keyed)))
    for record in await read_from(cluster, topic, 0, len(records), 1):
        say.line("record", show(record))
    stamped = await cluster.create("append-time", message_timestamp_type="LogAppendTime")
    await cluster.send(
        stamped, [{"value": b"a", "timestamp_ms": BASE_MS}, {"value": b"b", "timestamp_ms": 1}]
    )
    for record in await read_from(cluster, stamped, 0, 2):
        say.line("LogAppendTime", show(record))


async def positions(cluster: Cluster) -> None:
    say = cluster.say
    say.section("where to read from")
    topic = await cluster.create("positions", 2)
    for batch in range(5):
        values = [(b"v%d" % (batch * 10 + i), BASE_MS + batch * 1000 + i) for i in range(10)]
        await cluster.send(
            topic, [{"value": value, "partition": 0, "timestamp_ms": at_ms} for value, at_ms in values]
        )
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with cluster.consumer(first) as consumer:
        beginnings = await consumer.beginning_offsets([first, second])
        say.line("beginning offsets", sorted([p.partition, o] for p, o in beginnings.items()))
        ends = await consumer.end_offsets([first, second])
        say.line("end offsets", sorted([p.partition, o] for p, o in ends.items()))
        times = {
            "before all": 0,
            "exact": BASE_MS + 2003,
            "between": BASE_MS + 1500,
            "after all": BASE_MS + 99_999,
        }
        for label, at_ms in times.items():
            answer = (await consumer.offsets_for_times({first: at_ms}))[first]
            say.line(f"offset for time {label}", answer and [answer.offset, answer.timestamp - BASE_MS])
        say.line(
            "offset for time, empty partition", (await consumer.offsets_for_times({second: BASE_MS}))[second]
        )
        await consumer.seek_to_beginning(first)
        say.line("beginning", [text(r.value) for r in await read(consumer, 3)])
        for offset in (0, 27, 12):
            consumer.seek(first, offset)
            say.line(f"seek {offset}", [text(r.value) for r in await read(consumer, 3)])
        say.line("position", await consumer.position(first))
        say.line("high watermark", consumer.highwater(first))
        say.line("last stable offset", consumer.last_stable_offset(first))
        await consumer.seek_to_end(first)
        say.line("position at the end", await consumer.position(first))
        await cluster.send(topic, [{"value": b"late", "partition": 0, "timestamp_ms": BASE_MS}])
        say.line("end", [text(r.value) for r in await read(consumer, 1)])
    for policy in ("earliest", "latest"):
        async with cluster.consumer(first, auto_offset_reset=policy) as consumer:
            consumer.seek(first, 1000)
            if policy == "earliest":
                say.line(
                    "offset 1000 of 51, policy earliest", [text(r.value) for r in await read(consumer, 1)]
                )
            else:
                await consumer.getmany(timeout_ms=500)
                say.line("offset 1000 of 51, policy latest", await consumer.position(first))
    async with cluster.consumer(first, auto_offset_reset="none") as consumer:
        consumer.seek(first, 1000)
        await say.attempt_async("offset 1000 of 51, policy none", asyncio.wait_for(consumer.getone(), 5))
    for level in ("read_committed", "read_uncommitted"):
        got = await read_from(cluster, topic, 45, 6, isolation_level=level)
        say.line(level, [text(r.value) for r in got])
    got = await read_from(cluster, topic, 0, 51, max_partition_fetch_bytes=1, fetch_max_bytes=1)
    say.line("one byte at a time", [r.offset for r in got] == list(range(51)))


async def refusals(cluster: Cluster) -> None:
    say, send = cluster.say, cluster.send
    say.section("what is refused")
    big = {"value": b"x" * 2_000_000, "timestamp_ms": BASE_MS}
    one = {"value": b"1", "timestamp_ms": BASE_MS}
    topic = await cluster.create("limits")
    say.line("2 MB", await send(topic, [big], max_request_size=5_000_000))
    small = await cluster.create("small-limit", max_message_bytes="1000")
    for size in (900, 1100):
        say.line(f"1000 byte limit, {size}", await send(small, [one | {"value": b"x" * size}]))
    large = await cluster.create("large-limit", max_message_bytes="5000000")
    say.line("5 MB limit, 2 MB", await send(large, [big], max_request_size=5_000_000))
    say.line("read back", text((await read_from(cluster, large, 0, 1))[0].value))
    compacted = await cluster.create("compacted", cleanup_policy="compact")
    say.line("compacted, keyed", await send(compacted, [one | {"key": b"a"}]))
    say.line("compacted, no key", await send(compacted, [one]))
    say.line("compacted, tombstone", await send(compacted, [{"key": b"a", "timestamp_ms": BASE_MS}]))
    old = await cluster.create("fresh-only", message_timestamp_before_max_ms="1000")
    say.line("too old", await send(old, [one]))
    say.line("topic made by producing", await send(say.topic("made-by-producer"), [one]))


async def run(bootstrap: str, transcript: Transcript) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    cluster = Cluster(bootstrap, transcript, admin)
    await compressions(cluster)
    await idempotent(cluster)
    await shapes(cluster)
    await positions(cluster)
    await refusals(cluster)
    await admin.delete_topics([t for t in await admin.list_topics() if t.startswith(transcript.topic(""))])
    await admin.close()


def main() -> None:
    args = arguments(__doc__)
    asyncio.run(run(args.bootstrap, Transcript(args.prefix, args.settle_s)))


if __name__ == "__main__":
    main()
