"""Administration through aiokafka, which speaks the oldest request versions that brokers still know."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from transcript import BASE_MS, Transcript, arguments


class Admin:
    def __init__(self, bootstrap: str, transcript: Transcript, client: AIOKafkaAdminClient) -> None:
        self.bootstrap = bootstrap
        self.client = client
        self.say = transcript

    async def create(self, label: str, *topics: NewTopic, **options: Any) -> None:
        answer = await self.client.create_topics(list(topics), **options)
        self.say.line(label, [[name, code] for name, code, _ in answer.topic_errors])
        self.say.settle()

    def resource(self, name: str, configs: dict[str, Any] | None = None) -> ConfigResource:
        return ConfigResource(ConfigResourceType.TOPIC, self.say.topic(name), configs)

    async def describe(self, name: str) -> dict[str, Any]:
        (answer,) = await self.client.describe_configs([self.resource(name)])
        ((_, _, _, _, entries),) = answer.resources
        return {entry[0]: list(entry[1:5]) for entry in entries}

    async def show_changed(self, name: str) -> None:
        own = {
            key: value for key, (value, _, source, _) in (await self.describe(name)).items() if source == 1
        }
        self.say.line(f"own settings of {name}", own)


async def cluster(admin: Admin) -> None:
    say = admin.say
    say.section("cluster")
    description = await admin.client.describe_cluster()
    node = description["brokers"][0]["node_id"]
    say.line("brokers", [[b["node_id"] == node, b["rack"]] for b in description["brokers"]])
    say.line("controller", description["controller_id"] == node)
    say.line("cluster id", f"{len(description.get('cluster_id') or '')} characters")


async def topics(admin: Admin) -> None:
    say, name, client = admin.say, admin.say.topic, admin.client
    say.section("topics")
    await admin.create("one partition", NewTopic(name("one"), 1, 1))
    await admin.create("three partitions", NewTopic(name("three"), 3, 1))
    await admin.create(
        "with settings", NewTopic(name("configured"), 2, 1, topic_configs={"retention.ms": "3600000"})
    )
    await admin.create("validate only", NewTopic(name("not-there"), 1, 1), validate_only=True)
    await admin.create("again", NewTopic(name("one"), 1, 1))
    await admin.create("two, one bad", NewTopic(name("fine"), 1, 1), NewTopic(name("bad"), 1, 7))
    await admin.create("bad name", NewTopic("bad/name", 1, 1))
    await admin.create("no partitions", NewTopic(name("bad"), 0, 1))
    await admin.create("bad setting", NewTopic(name("bad"), 1, 1, topic_configs={"retention.ms": "soon"}))
    mine = [t for t in await client.list_topics() if t.startswith(name(""))]
    say.line("list", sorted(mine))
    for topic in await client.describe_topics([name("three")]):
        partitions = sorted(
            [p["partition"], p["error_code"], len(p["replicas"])] for p in topic["partitions"]
        )
        say.line("describe", [topic["error_code"], topic["topic"], topic["is_internal"], partitions])


async def configs(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("configurations")
    described = await admin.describe("configured")
    for key in ("retention.ms", "cleanup.policy", "segment.bytes", "compression.type"):
        say.line(key, described[key])

    async def alter(label: str, name: str, changes: dict[str, Any]) -> None:
        answers = await client.alter_configs([admin.resource(name, changes)])
        say.line(label, [resource[0] for answer in answers for resource in answer.resources])
        say.settle()

    await alter("replace", "one", {"retention.ms": "7200000", "cleanup.policy": "compact"})
    await admin.show_changed("one")
    await alter("replace again", "one", {"segment.ms": "600000"})
    await admin.show_changed("one")
    await alter("bad value", "one", {"segment.ms": "soon"})
    await alter("unknown key", "one", {"no.such.setting": "1"})
    await alter("unknown topic", "not-there", {"segment.ms": "600000"})
    await alter("clear", "one", {})
    await admin.show_changed("one")


async def partitions(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("partitions")

    async def grow(label: str, name: str, count: int, **options: Any) -> None:
        async def act() -> list[int]:
            answer = await client.create_partitions({say.topic(name): NewPartitions(count)}, **options)
            return [code for _, code, _ in answer.topic_errors]

        await say.attempt_async(label, act())
        say.settle()

    await grow("validate only", "three", 9, validate_only=True)
    await grow("to five", "three", 5)
    await grow("same count", "three", 5)
    await grow("shrink", "three", 2)
    await grow("unknown topic", "not-there", 5)
    (topic,) = await client.describe_topics([say.topic("three")])
    say.line("now", sorted(p["partition"] for p in topic["partitions"]))


async def records(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("delete records")
    producer = AIOKafkaProducer(bootstrap_servers=admin.bootstrap)
    await producer.start()
    for i in range(5):
        await producer.send_and_wait(say.topic("one"), b"v%d" % i, partition=0, timestamp_ms=BASE_MS + i)
    await producer.stop()
    where = TopicPartition(say.topic("one"), 0)

    async def delete(label: str, offset: int) -> None:
        async def act() -> int:
            return int((await client.delete_records({where: RecordsToDelete(offset)}))[where])

        await say.attempt_async(label, act())

    await delete("before two", 2)
    await delete("before one", 1)
    await delete("past the end", 100)
    consumer = AIOKafkaConsumer(bootstrap_servers=admin.bootstrap)
    await consumer.start()
    say.line("beginning", (await consumer.beginning_offsets([where]))[where])
    await delete("all", -1)
    say.line("beginning", (await consumer.beginning_offsets([where]))[where])
    say.line("end", (await consumer.end_offsets([where]))[where])
    await consumer.stop()


async def delete_topics(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("delete topics")

    async def delete(label: str, *names: str) -> None:
        answer = await client.delete_topics(list(names))
        say.line(label, sorted([name, code] for name, code in answer.topic_error_codes))
        say.settle()

    await delete("delete", say.topic("one"), say.topic("three"))
    await delete("again", say.topic("one"))
    rest = sorted(t for t in await client.list_topics() if t.startswith(say.topic("")))
    await delete("the rest", *rest)
    say.line("left", [t for t in await client.list_topics() if t.startswith(say.topic(""))])


async def run(bootstrap: str, transcript: Transcript) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    admin = Admin(bootstrap, transcript, client)
    await cluster(admin)
    await topics(admin)
    await configs(admin)
    await partitions(admin)
    await records(admin)
    await delete_topics(admin)
    await client.close()


def main() -> None:
    args = arguments(__doc__)
    asyncio.run(run(args.bootstrap, Transcript(args.prefix, args.settle_s)))


if __name__ == "__main__":
    main()
