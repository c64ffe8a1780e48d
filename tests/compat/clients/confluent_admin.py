"""Administration through confluent-kafka: topics, configurations, partitions, offsets, errors."""

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from transcript import BASE_MS, Transcript, arguments, present

# The broker's own settings that a client may see.  Kafka has some 350 of them; the rest is about parts that a
# broker need not have (KRaft quorum, tiered storage, share coordinators).
BROKER_SETTINGS = (
    "auto.create.topics.enable",
    "compression.type",
    "delete.topic.enable",
    "log.cleanup.policy",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.flush.interval.messages",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.hours",
    "log.roll.hours",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "default.replication.factor",
    "socket.request.max.bytes",
)


class Admin:
    def __init__(self, bootstrap: str, transcript: Transcript) -> None:
        self.client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.say = transcript
        self.node = next(iter(self.client.list_topics(timeout=60).brokers))

    def create(self, label: str, topics: Sequence[NewTopic], **options: Any) -> None:
        try:
            futures = self.client.create_topics(list(topics), request_timeout=60, **options)
        except (ck.KafkaException, ValueError) as error:
            self.say.line(label, f"refused by the client: {type(error).__name__}")
            return
        for name, future in futures.items():
            self.say.attempt(f"{label} [{shorten(name)}]", future.result)
        self.say.settle()

    def each(
        self, label: str, futures: dict[Any, Any], show: Callable[[Any], Any] = lambda value: value
    ) -> None:
        for key, future in futures.items():
            name = (
                key if isinstance(key, str) else getattr(key, "name", None) or f"{key.topic}/{key.partition}"
            )
            self.say.attempt(f"{label} [{shorten(name)}]", lambda f=future: show(f.result(timeout=60)))
        self.say.settle()

    def topic_config(self, name: str, **settings: str) -> ConfigResource:
        return ConfigResource(ConfigResource.Type.TOPIC, self.say.topic(name), set_config=settings)

    def change(self, name: str, *changes: tuple[AlterConfigOpType, str, str | None]) -> ConfigResource:
        entries = [ConfigEntry(key, value, incremental_operation=op) for op, key, value in changes]
        return ConfigResource(ConfigResource.Type.TOPIC, self.say.topic(name), incremental_configs=entries)

    def show_changed(self, name: str) -> None:
        """The settings of a topic that are its own, not a default."""
        (future,) = self.client.describe_configs([self.topic_config(name)], request_timeout=60).values()
        own = {
            key: entry.value
            for key, entry in future.result().items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        self.say.line(f"own settings of {name}", own)


def shorten(name: str) -> str:
    return name if len(name) < 100 else f"{len(name)} characters"


def cluster(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("cluster")
    say.line("brokers", len(client.list_topics(timeout=60).brokers))
    description = client.describe_cluster(include_authorized_operations=True, request_timeout=60).result()
    say.line("cluster id", f"{len(description.cluster_id)} characters")
    say.line("controller", "node" if description.controller.id == admin.node else "another")
    say.line("nodes", len(description.nodes))
    say.line("rack", description.nodes[0].rack)
    say.line("allowed", sorted(op.name for op in description.authorized_operations))
    plain = client.describe_cluster(request_timeout=60).result()
    say.line("allowed, not asked for", plain.authorized_operations)


def create_topics(admin: Admin) -> None:
    say = admin.say
    say.section("create topics")
    name = say.topic
    admin.create("one partition", [NewTopic(name("one"), 1, 1)])
    admin.create("three partitions", [NewTopic(name("three"), 3, 1)])
    settings = {"retention.ms": "3600000", "cleanup.policy": "compact,delete", "max.message.bytes": "20000"}
    admin.create("with settings", [NewTopic(name("configured"), 2, 1, config=settings)])
    admin.create("default count", [NewTopic(name("default-count"), -1, -1)])
    admin.create(
        "placed by hand", [NewTopic(name("placed"), 2, replica_assignment=[[admin.node], [admin.node]])]
    )
    admin.create("validate only", [NewTopic(name("not-there"), 3, 1)], validate_only=True)
    admin.create("validate only, exists", [NewTopic(name("one"), 3, 1)], validate_only=True)
    admin.create("again", [NewTopic(name("one"), 1, 1)])
    admin.create("two, one bad", [NewTopic(name("fine"), 1, 1), NewTopic(name("bad"), 1, 7)])
    for label, topic in {
        "slash": NewTopic("bad/name", 1, 1),
        "space": NewTopic("bad name", 1, 1),
        "dot": NewTopic(".", 1, 1),
        "two dots": NewTopic("..", 1, 1),
        "up and over": NewTopic("../../etc/passwd", 1, 1),
        "not ascii": NewTopic("größe", 1, 1),
        "250 characters": NewTopic("x" * 250, 1, 1),
        "no partitions": NewTopic(name("refused"), 0, 1),
        "minus five partitions": NewTopic(name("refused"), -5, 1),
        "two replicas of one broker": NewTopic(name("refused"), 1, 2),
        "no replicas": NewTopic(name("refused"), 1, 0),
        "placed on an unknown broker": NewTopic(name("refused"), 1, replica_assignment=[[9999]]),
        "placed twice on one broker": NewTopic(
            name("refused"), 1, replica_assignment=[[admin.node, admin.node]]
        ),
        "unknown setting": NewTopic(name("refused"), 1, 1, config={"no.such.setting": "1"}),
        "bad number": NewTopic(name("refused"), 1, 1, config={"retention.ms": "soon"}),
        "number out of range": NewTopic(name("refused"), 1, 1, config={"segment.bytes": "1"}),
        "bad choice": NewTopic(name("refused"), 1, 1, config={"cleanup.policy": "shred"}),
        "bad codec": NewTopic(name("refused"), 1, 1, config={"compression.type": "rar"}),
    }.items():
        admin.create(label, [topic])
    admin.create("dots", [NewTopic(name("a.b"), 1, 1)])
    admin.create("collides with dots", [NewTopic(name("a_b"), 1, 1)])
    admin.create("249 characters", [NewTopic(name("y" * (249 - len(name("")))), 1, 1)])


def describe_topics(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("describe topics")

    def show(topic: Any) -> dict[str, Any]:
        partitions = [
            [
                p.id,
                p.leader.id == admin.node,
                [n.id == admin.node for n in p.replicas],
                [n.id == admin.node for n in p.isr],
            ]
            for p in topic.partitions
        ]
        allowed = topic.authorized_operations
        return {
            "id": present(str(topic.topic_id)),
            "internal": topic.is_internal,
            "partitions": partitions,
            "allowed": allowed and sorted(op.name for op in allowed),
        }

    for name in ("one", "three", "placed", "default-count", "not-there"):
        admin.each(
            "describe",
            client.describe_topics(ck.TopicCollection([say.topic(name)]), request_timeout=60),
            show,
        )
    admin.each(
        "describe with operations",
        client.describe_topics(
            ck.TopicCollection([say.topic("one")]), include_authorized_operations=True, request_timeout=60
        ),
        show,
    )
    listed = client.list_topics(timeout=60).topics
    for name in ("one", "three", "fine", "bad", "not-there"):
        topic = listed.get(say.topic(name))
        say.line(f"listed {name}", "no" if topic is None else sorted(topic.partitions))


def describe_configs(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("describe configurations")
    (future,) = client.describe_configs([admin.topic_config("configured")], request_timeout=60).values()
    for key, entry in sorted(future.result().items()):
        # KRaft writes min.insync.replicas into the cluster's dynamic configuration itself when it turns
        # eligible leader replicas on; a broker without that feature has it as a default.
        source = "-" if key == "min.insync.replicas" else ConfigSource(entry.source).name
        flags = [
            f"source={source}",
            f"readonly={entry.is_read_only}",
            f"sensitive={entry.is_sensitive}",
            *(f"{s.name}={s.value}@{ConfigSource(s.source).name}" for s in entry.synonyms.values()),
        ]
        say.line(f"{key}={entry.value}", " ".join(flags))
    admin.each(
        "unknown topic", client.describe_configs([admin.topic_config("not-there")], request_timeout=60)
    )
    broker = ConfigResource(ConfigResource.Type.BROKER, str(admin.node))
    (future,) = client.describe_configs([broker], request_timeout=60).values()
    entries = future.result()
    for key in BROKER_SETTINGS:
        entry = entries.get(key)
        say.line(
            f"broker {key}", "not there" if entry is None else f"{entry.value} readonly={entry.is_read_only}"
        )


def alter_configs(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("alter configurations")
    put, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    append, subtract = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT

    def incremental(label: str, resource: ConfigResource, **options: Any) -> None:
        admin.each(label, client.incremental_alter_configs([resource], request_timeout=60, **options))

    incremental(
        "set two", admin.change("one", (put, "retention.ms", "7200000"), (put, "segment.ms", "600000"))
    )
    admin.show_changed("one")
    incremental("delete one", admin.change("one", (delete, "segment.ms", None)))
    incremental("delete what is not set", admin.change("one", (delete, "flush.ms", None)))
    incremental("append", admin.change("one", (append, "cleanup.policy", "compact")))
    admin.show_changed("one")
    incremental("append again", admin.change("one", (append, "cleanup.policy", "compact")))
    incremental("subtract", admin.change("one", (subtract, "cleanup.policy", "delete")))
    admin.show_changed("one")
    incremental("append to a number", admin.change("one", (append, "retention.ms", "5")))
    incremental("bad value", admin.change("one", (put, "retention.ms", "-7")))
    incremental("bad type", admin.change("one", (put, "preallocate", "perhaps")))
    incremental("unknown key", admin.change("one", (put, "no.such.setting", "1")))
    incremental(
        "one good, one bad", admin.change("one", (put, "flush.ms", "100"), (put, "flush.messages", "0"))
    )
    incremental("unknown topic", admin.change("not-there", (put, "retention.ms", "1000")))
    incremental("validate only", admin.change("one", (put, "retention.ms", "1")), validate_only=True)
    admin.show_changed("one")

    def legacy(label: str, resource: ConfigResource, **options: Any) -> None:
        admin.each(label, client.alter_configs([resource], request_timeout=60, **options))

    legacy("legacy replaces all", admin.topic_config("one", **{"max.message.bytes": "50000"}))
    admin.show_changed("one")
    legacy("legacy bad value", admin.topic_config("one", **{"max.message.bytes": "many"}))
    legacy("legacy unknown topic", admin.topic_config("not-there", **{"max.message.bytes": "50000"}))
    legacy(
        "legacy validate only", admin.topic_config("one", **{"max.message.bytes": "1"}), validate_only=True
    )
    admin.show_changed("one")
    legacy("legacy clears all", admin.topic_config("one"))
    admin.show_changed("one")


def alter_broker_configs(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("alter the broker's configuration")

    def change(label: str, key: str, value: str | None) -> None:
        op = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=op)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(admin.node), incremental_configs=[entry])
        try:
            (future,) = client.incremental_alter_configs([resource], request_timeout=60).values()
        except ck.KafkaException as error:
            say.line(label, f"refused by the client: {error.args[0].name()}")
            return
        say.attempt(label, lambda: future.result())
        say.settle()
        broker = ConfigResource(ConfigResource.Type.BROKER, str(admin.node))
        entries = next(iter(client.describe_configs([broker], request_timeout=60).values())).result()
        if key != "log.dirs":  # its value is a path of this machine
            say.line(f"  {key}", f"{entries[key].value} {ConfigSource(entries[key].source).name}")

    change("dynamic setting", "log.index.interval.bytes", "8192")
    change("back to the default", "log.index.interval.bytes", None)
    change("bad value", "log.index.interval.bytes", "-1")
    change("read-only setting", "log.dirs", "elsewhere")


def partitions(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("create partitions")

    def grow(label: str, topic: NewPartitions, **options: Any) -> None:
        admin.each(label, client.create_partitions([topic], request_timeout=60, **options))

    three = say.topic("three")
    grow("validate only", NewPartitions(three, 9), validate_only=True)
    grow("grow to five", NewPartitions(three, 5))
    say.line("now", sorted(client.list_topics(three, timeout=60).topics[three].partitions))
    grow("same count", NewPartitions(three, 5))
    grow("shrink", NewPartitions(three, 2))
    grow("unknown topic", NewPartitions(say.topic("not-there"), 4))
    grow("placed by hand", NewPartitions(three, 6, replica_assignment=[[admin.node]]))
    grow("placed on an unknown broker", NewPartitions(three, 7, replica_assignment=[[9999]]))
    say.line("now", sorted(client.list_topics(three, timeout=60).topics[three].partitions))


def offsets(admin: Admin, bootstrap: str) -> None:
    say, client = admin.say, admin.client
    say.section("list offsets and delete records")
    topic = say.topic("offsets")
    admin.create("topic", [NewTopic(topic, 2, 1)])
    producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 50})
    for i, late_ms in enumerate([0, 500, 900, 300, 400]):  # the greatest timestamp is not the last record's
        producer.produce(topic, f"v{i}", partition=0, timestamp=BASE_MS + late_ms)
        producer.flush(60)

    def ask(label: str, spec: OffsetSpec, name: str = "offsets", partition: int = 0) -> None:
        where = ck.TopicPartition(say.topic(name), partition)
        admin.each(
            label,
            client.list_offsets({where: spec}, request_timeout=60),
            lambda r: [r.offset, r.timestamp - BASE_MS if r.timestamp > 0 else r.timestamp, r.leader_epoch],
        )

    for partition in (0, 1):
        ask("earliest", OffsetSpec.earliest(), partition=partition)
        ask("latest", OffsetSpec.latest(), partition=partition)
        ask("max timestamp", OffsetSpec.max_timestamp(), partition=partition)
        ask("by time", OffsetSpec.for_timestamp(BASE_MS + 350), partition=partition)
    ask("time before all", OffsetSpec.for_timestamp(0))
    ask("time after all", OffsetSpec.for_timestamp(BASE_MS + 10_000))
    ask("unknown topic", OffsetSpec.latest(), name="not-there")

    def delete(label: str, offset: int, name: str = "offsets", partition: int = 0) -> None:
        where = ck.TopicPartition(say.topic(name), partition, offset)
        futures = client.delete_records([where], request_timeout=60)
        admin.each(label, futures, lambda deleted: deleted.low_watermark)

    delete("before two", 2)
    ask("earliest now", OffsetSpec.earliest())
    ask("by time now", OffsetSpec.for_timestamp(BASE_MS))
    delete("before one", 1)
    delete("past the end", 100)
    delete("all", ck.OFFSET_END)
    ask("earliest now", OffsetSpec.earliest())
    ask("latest now", OffsetSpec.latest())
    delete("of nothing", ck.OFFSET_END, partition=1)
    delete("unknown topic", 1, name="not-there")
    admin.create("compacted", [NewTopic(say.topic("compacted"), 1, 1, config={"cleanup.policy": "compact"})])
    delete("of a compacted topic", 0, name="compacted")


def delete_topics(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("delete topics")
    admin.each("delete", client.delete_topics([say.topic("one"), say.topic("three")], request_timeout=60))
    admin.each("delete again", client.delete_topics([say.topic("one")], request_timeout=60))
    admin.each(
        "one there, one not",
        client.delete_topics([say.topic("placed"), say.topic("one")], request_timeout=60),
    )
    admin.create("make it again", [NewTopic(say.topic("one"), 2, 1)])
    admin.show_changed("one")
    admin.each("made again", client.delete_topics([say.topic("one")], request_timeout=60))
    rest = [name for name in client.list_topics(timeout=60).topics if name.startswith(say.topic(""))]
    # The prefix is cut off first: it is another one in each run, and would decide where the long name stands.
    say.line("left", sorted(shorten(name).removeprefix(say.topic("")) for name in rest))
    for future in client.delete_topics(rest, request_timeout=60).values():
        future.result()
    say.settle()
    rest = [name for name in client.list_topics(timeout=60).topics if name.startswith(say.topic(""))]
    say.line("left", rest)


def main() -> None:
    args = arguments(__doc__)
    admin = Admin(args.bootstrap, Transcript(args.prefix, args.settle_s))
    cluster(admin)
    create_topics(admin)
    describe_topics(admin)
    describe_configs(admin)
    alter_configs(admin)
    alter_broker_configs(admin)
    partitions(admin)
    offsets(admin, args.bootstrap)
    delete_topics(admin)


if __name__ == "__main__":
    main()
