"""Administration through kafka-python: topics by name and id, configurations, offsets, log folders."""

import uuid
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource
from transcript import BASE_MS, Transcript, arguments, present, stamp


def topic_id(shown: Any) -> uuid.UUID:
    """The id in an answer: kafka-python has it as text, and as nothing where it is all zeros."""
    return uuid.UUID(str(shown)) if shown else uuid.UUID(int=0)


class Admin:
    def __init__(self, bootstrap: str, transcript: Transcript) -> None:
        self.client = KafkaAdminClient(bootstrap_servers=bootstrap)
        self.bootstrap = bootstrap
        self.say = transcript
        self.node = self.client.describe_cluster()["brokers"][0]["broker_id"]

    def attempt(self, label: str, action: Callable[[], Any]) -> Any:
        result = self.say.attempt(label, action)
        self.say.settle()
        return result

    def create(self, label: str, name: str, partitions: int = 1, replicas: int = 1, **options: Any) -> None:
        new = {"num_partitions": partitions, "replication_factor": replicas}
        for key in ("configs", "assignments"):
            if key in options:
                new[key] = options.pop(key)

        def show() -> Any:
            (topic,) = self.client.create_topics({name: new}, **options)["topics"]
            own = {
                k: c["value"]
                for k, c in topic["configs"].items()
                if c["config_source"] == "DYNAMIC_TOPIC_CONFIG"
            }
            return [
                present(topic_id(topic["topic_id"]).int),
                topic["num_partitions"],
                topic["replication_factor"],
                own,
            ]

        self.attempt(label, show)

    def resource(self, name: str, configs: Any = None) -> ConfigResource:
        return ConfigResource("TOPIC", self.say.topic(name), configs)

    def show_changed(self, name: str) -> None:
        topic = self.client.describe_configs([self.resource(name)])["topic"][self.say.topic(name)]
        self.say.line(f"own settings of {name}", {key: entry["value"] for key, entry in topic.items()})


def cluster(admin: Admin) -> None:
    say = admin.say
    say.section("cluster")
    description = admin.client.describe_cluster()
    say.line("cluster id", f"{len(description['cluster_id'])} characters")
    say.line("controller", "node" if description["controller_id"] == admin.node else "another")
    brokers = [
        [broker["broker_id"] == admin.node, broker["rack"], broker["is_fenced"]]
        for broker in description["brokers"]
    ]
    say.line("brokers", brokers)
    say.line("allowed", sorted(map(str, description["authorized_operations"])))


def create_topics(admin: Admin) -> None:
    say, name = admin.say, admin.say.topic
    say.section("create topics")
    admin.create("one partition", name("one"))
    admin.create("three partitions", name("three"), 3)
    admin.create(
        "with settings",
        name("configured"),
        2,
        configs={"retention.ms": "3600000", "cleanup.policy": "compact"},
    )
    admin.create("default counts", name("default"), -1, -1)
    admin.create("placed by hand", name("placed"), -1, -1, assignments={0: [admin.node], 1: [admin.node]})
    admin.create("placed by hand and counted", name("refused"), 2, 1, assignments={0: [admin.node]})
    admin.create(
        "placed with a hole", name("refused"), -1, -1, assignments={0: [admin.node], 2: [admin.node]}
    )
    admin.create("validate only", name("not-there"), 3, validate_only=True)
    admin.create("again", name("one"))
    admin.create("minus five partitions", name("refused"), -5)
    admin.create("no partitions", name("refused"), 0)
    admin.create("two replicas of one broker", name("refused"), 1, 2)
    admin.create("minus two replicas", name("refused"), 1, -2)
    admin.create("bad name", "bad/name")
    admin.create("empty name", "")
    admin.create("unknown setting", name("refused"), configs={"no.such.setting": "1"})
    admin.create("null setting", name("refused"), configs={"retention.ms": None})
    admin.create("bad setting", name("refused"), configs={"retention.ms": "soon"})

    def twice() -> Any:
        new = {"num_partitions": 1, "replication_factor": 1}
        answer = admin.client.create_topics({name("fine"): new, name("one"): new}, raise_errors=False)
        return sorted([t["name"], t["error_code"]] for t in answer["topics"])

    admin.attempt("two, one there", twice)


def describe_topics(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("describe topics")

    def partition(p: dict[str, Any]) -> list[Any]:
        mine = [admin.node]
        return [
            p["partition_index"],
            p["error_code"],
            [p["leader_id"]] == mine,
            p["leader_epoch"],
            p["replica_nodes"] == mine,
            p["isr_nodes"] == mine,
            p["offline_replicas"],
        ]

    def show(topic: dict[str, Any]) -> dict[str, Any]:
        return {
            "error": topic["error_code"],
            "name": topic["name"],
            "id": present(topic_id(topic["topic_id"]).int),
            "internal": topic["is_internal"],
            "partitions": sorted(map(partition, topic["partitions"])),
        }

    for name in ("one", "three", "not-there"):
        for topic in client.describe_topics([say.topic(name)]):
            say.line(f"by name {name}", show(topic))
            say.line(f"allowed on {name}", sorted(map(str, topic["authorized_operations"])))
    three = topic_id(client.describe_topics([say.topic("three")])[0]["topic_id"])
    say.line("by id", show(client.describe_topics([three])[0]))
    unknown = client.describe_topics([uuid.UUID(int=7)])[0]
    say.line(
        "by unknown id",
        [unknown["error_code"], unknown["name"], topic_id(unknown["topic_id"]) == uuid.UUID(int=7)],
    )
    say.attempt("bad name", lambda: show(client.describe_topics(["bad/name"])[0]))
    names = [say.topic(n) for n in ("three", "one", "configured", "not-there")]
    pages, cursor = 0, None
    while pages < 10:
        page = client.describe_topic_partitions(names, response_partition_limit=2, cursor=cursor)
        say.line(
            f"page {pages}", [[t["name"], t["error_code"], len(t["partitions"])] for t in page["topics"]]
        )
        cursor, pages = page["next_cursor"], pages + 1
        say.line(f"page {pages} starts at", cursor)
        if cursor is None:
            break
    mine = [n for n in client.list_topics() if n.startswith(say.topic(""))]
    say.line("list", sorted(mine))
    resources = client.list_config_resources(["TOPIC"]).get("topic", [])
    say.line("topics with configurations", sorted(n for n in resources if n.startswith(say.topic(""))))
    say.line("brokers with configurations", len(client.list_config_resources(["BROKER"]).get("broker", [])))


def configs(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("configurations")
    resource = admin.resource(
        "configured", ["retention.ms", "segment.bytes", "cleanup.policy", "no.such.setting"]
    )
    answer = client.describe_configs([resource], include_synonyms=True, config_filter="all")
    for key, entry in sorted(answer["topic"][say.topic("configured")].items()):
        say.line(key, {k: v for k, v in entry.items() if k != "documentation"})
    everything = client.describe_configs([admin.resource("configured")], config_filter="all")
    types = {key: entry["config_type"] for key, entry in everything["topic"][say.topic("configured")].items()}
    say.line("types", types)

    def alter(label: str, name: str, changes: dict[str, Any], **options: Any) -> None:
        def show() -> str:
            answer = client.alter_configs([admin.resource(name, changes)], raise_on_unknown=False, **options)
            return str(answer["topic"][say.topic(name)]).split(":")[
                0
            ]  # the error's code and name, without its text

        admin.attempt(label, show)

    alter("set", "one", {"retention.ms": "7200000", "segment.ms": "600000"})
    admin.show_changed("one")
    alter("delete", "one", {"segment.ms": (AlterConfigOp.DELETE, None)})
    alter("append", "one", {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})
    admin.show_changed("one")
    alter("subtract", "one", {"cleanup.policy": (AlterConfigOp.SUBTRACT, "delete")})
    alter("append to a number", "one", {"retention.ms": (AlterConfigOp.APPEND, "1")})
    alter("null value", "one", {"retention.ms": (AlterConfigOp.SET, None)})
    alter("bad value", "one", {"retention.ms": "soon"})
    alter("unknown key", "one", {"no.such.setting": "1"})
    alter("validate only", "one", {"retention.ms": "1"}, validate_only=True)
    alter("validate only, bad", "one", {"retention.ms": "soon"}, validate_only=True)
    alter("unknown topic", "not-there", {"retention.ms": "1"})
    admin.show_changed("one")
    alter("legacy", "one", {"max.message.bytes": "50000"}, incremental=False)
    admin.show_changed("one")
    alter("legacy bad value", "one", {"max.message.bytes": "many"}, incremental=False)
    admin.attempt(
        "reset", lambda: client.reset_configs([admin.resource("one", {})])["topic"][say.topic("one")]
    )
    admin.show_changed("one")


def partitions(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("create partitions")

    def grow(label: str, name: str, count: int, **options: Any) -> None:
        def show() -> list[int]:
            answer = client.create_partitions({say.topic(name): count}, raise_errors=False, **options)
            return [result.error_code for result in answer.results]

        admin.attempt(label, show)

    grow("validate only", "three", 9, validate_only=True)
    grow("to five", "three", 5)
    grow("same count", "three", 5)
    grow("shrink", "three", 2)
    grow("unknown topic", "not-there", 5)
    (topic,) = client.describe_topics([say.topic("three")])
    say.line("now", sorted(p["partition_index"] for p in topic["partitions"]))


def offsets(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("list offsets and delete records")
    admin.create("topic", say.topic("offsets"), 2)
    producer = KafkaProducer(bootstrap_servers=admin.bootstrap)
    for i, late_ms in enumerate([0, 500, 900, 300, 400]):  # the greatest timestamp is not the last record's
        producer.send(say.topic("offsets"), b"v%d" % i, partition=0, timestamp_ms=BASE_MS + late_ms).get(
            timeout=10
        )
    producer.close()

    def ask(label: str, spec: Any, partition: int = 0, name: str = "offsets") -> None:
        where = TopicPartition(say.topic(name), partition)

        def show() -> list[Any]:
            answer = client.list_partition_offsets({where: spec})[where]
            shown = answer.timestamp if answer.timestamp < 0 else stamp(answer.timestamp)
            return [answer.offset, shown, answer.leader_epoch]

        admin.attempt(f"{label} of {partition}", show)

    for partition in (0, 1):
        ask("earliest", OffsetSpec.EARLIEST, partition)
        ask("latest", OffsetSpec.LATEST, partition)
        ask("max timestamp", OffsetSpec.MAX_TIMESTAMP, partition)
        ask("earliest local", OffsetSpec.EARLIEST_LOCAL, partition)
        ask("latest tiered", OffsetSpec.LATEST_TIERED, partition)
        ask("by time", BASE_MS + 350, partition)
    ask("after all", BASE_MS + 5000)
    ask("unknown partition", OffsetSpec.LATEST, 9)

    def delete(label: str, offset: int, partition: int = 0) -> None:
        where = TopicPartition(say.topic("offsets"), partition)
        admin.attempt(label, lambda: client.delete_records({where: offset})[where]["low_watermark"])

    delete("before two", 2)
    ask("earliest", OffsetSpec.EARLIEST)
    delete("before one", 1)
    delete("past the end", 100)
    delete("all", -1)
    delete("minus two", -2)
    ask("earliest", OffsetSpec.EARLIEST)
    ask("latest", OffsetSpec.LATEST)


def log_dirs(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("log folders")
    answer = client.describe_log_dirs({say.topic("three"): [0, 1], say.topic("offsets"): [0]})
    say.line("brokers", len(answer))
    for folder in answer[0]["log_dirs"]:
        say.line("folder", [folder["error_code"], folder["total_bytes"] > 0, folder["usable_bytes"] > 0])
        for topic in sorted(folder["topics"], key=lambda t: str(t["name"])):
            for p in sorted(topic["partitions"], key=lambda p: int(p["partition_index"])):
                shown = [p["partition_size"], p["offset_lag"], p["is_future_key"]]
                say.line(f"{topic['name']}/{p['partition_index']}", shown)


def delete_topics(admin: Admin) -> None:
    say, client = admin.say, admin.client
    say.section("delete topics")

    def delete(label: str, *topics: Any) -> None:
        def show() -> list[Any]:
            answer = client.delete_topics(list(topics), raise_errors=False)["topics"]
            return sorted(
                [str(t["name"]), t["error_code"], present(topic_id(t["topic_id"]).int)] for t in answer
            )

        admin.attempt(label, show)

    delete("by name", say.topic("one"))
    delete("again", say.topic("one"))
    delete("by id", topic_id(client.describe_topics([say.topic("three")])[0]["topic_id"]))
    delete("by unknown id", uuid.UUID(int=7))
    delete("one there, one not", say.topic("placed"), say.topic("one"))
    rest = sorted(n for n in client.list_topics() if n.startswith(say.topic("")))
    say.line("left", rest)
    delete("the rest", *rest)
    say.line("left", [n for n in client.list_topics() if n.startswith(say.topic(""))])


def main() -> None:
    args = arguments(__doc__)
    admin = Admin(args.bootstrap, Transcript(args.prefix, args.settle_s))
    cluster(admin)
    create_topics(admin)
    describe_topics(admin)
    configs(admin)
    partitions(admin)
    offsets(admin)
    log_dirs(admin)
    delete_topics(admin)
    admin.client.close()


if __name__ == "__main__":
    main()
