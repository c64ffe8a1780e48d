"""Apache Kafka's own command line tools, and so its Java clients, on Kafka and on ours: the same words must
come out.

    python bench/anchors/java_tools.py [--only topic] [--show]

Every command runs on both brokers, in fresh folders, and its output is compared line by line, after taking
out what differs by nature: addresses, ids, times, rates.  The Java clients negotiate the newest versions,
ask by topic id and are idempotent by default, which the Python clients are not.
"""

from side_by_side import AT, Act, Command, Stage, Step, main

DELETE_RECORDS = '{"partitions": [{"topic": "plain", "partition": 0, "offset": 2}], "version": 1}'


def write_plan(stage: Stage) -> None:
    (stage.folder / "delete.json").write_text(DELETE_RECORDS)


def topic(name: str, arguments: str) -> Command:
    return Command(f"topic {name}", "TopicCommand", AT + arguments)


def config(name: str, arguments: str) -> Command:
    return Command(f"config {name}", "kafka.admin.ConfigCommand", AT + arguments)


def console_producer(name: str, arguments: str, lines: list[str]) -> Command:
    return Command(f"produce {name}", "ConsoleProducer", AT + arguments, "\n".join(lines) + "\n")


def console_consumer(name: str, arguments: str) -> Command:
    return Command(f"consume {name}", "consumer.ConsoleConsumer", AT + arguments + " --timeout-ms 8000")


ORDERS = "--topic orders"
OF_ORDERS = "--entity-type topics --entity-name orders"
PERF = "--num-records 5000 --record-size 500 --throughput -1 --command-property compression.type=lz4"
KEYED = "--reader-property parse.key=true --reader-property key.separator=: --compression-codec zstd"
PRINT_ALL = (
    "--formatter-property print.key=true --formatter-property print.partition=true "
    "--formatter-property print.offset=true --formatter-property print.headers=true"
)
STEPS: tuple[Step, ...] = (
    topic("create", f"--create {ORDERS} --partitions 3 --replication-factor 1 --config retention.ms=7200000"),
    topic("create again", f"--create {ORDERS}"),
    topic("create if not exists", f"--create {ORDERS} --if-not-exists"),
    topic("create default", "--create --topic plain"),
    topic("bad replication", "--create --topic bad --replication-factor 3"),
    topic("bad name", "--create --topic bad/name"),
    topic("describe", f"--describe {ORDERS}"),
    topic("describe unknown", "--describe --topic nothing"),
    topic("under-replicated", "--describe --under-replicated-partitions"),
    topic("alter", f"--alter {ORDERS} --partitions 5"),
    topic("shrink", f"--alter {ORDERS} --partitions 2"),
    topic("list", "--list"),
    config(
        "set",
        f"--alter {OF_ORDERS} --add-config segment.ms=600000,max.message.bytes=9999",
    ),
    config("describe", f"--describe {OF_ORDERS}"),
    config("describe all", "--describe --all --entity-type topics --entity-name plain"),
    config(
        "delete",
        f"--alter {OF_ORDERS} --delete-config segment.ms,max.message.bytes",
    ),
    config("bad", f"--alter {OF_ORDERS} --add-config segment.ms=soon"),
    config("describe after", f"--describe {OF_ORDERS}"),
    console_producer("plain", "--topic plain", ["one", "two", "three"]),
    console_producer(
        "keyed",
        f"{ORDERS} {KEYED}",
        [f"key-{i}:value {i}" for i in range(50)],
    ),
    console_producer("sync, acks 1", "--topic plain --sync --request-required-acks 1", ["four", "five"]),
    console_consumer(
        "from beginning", f"--topic plain --partition 0 --offset earliest --max-messages 5 {PRINT_ALL}"
    ),
    console_consumer("from offset", f"--topic plain --partition 0 --offset 3 --max-messages 2 {PRINT_ALL}"),
    console_consumer("keyed", f"{ORDERS} --partition 0 --offset earliest --max-messages 5 {PRINT_ALL}"),
    Command(
        "perf produce",
        "ProducerPerformance",
        f"{AT}--topic plain {PERF}",
    ),
    Command("offsets", "GetOffsetShell", f"{AT}--topic-partitions plain:0,orders:0-3"),
    Command("offsets earliest", "GetOffsetShell", f"{AT}{ORDERS} --time earliest"),
    Act("a plan of what to delete", write_plan),
    Command("delete records", "DeleteRecordsCommand", f"{AT}--offset-json-file FOLDER/delete.json"),
    Command("offsets after", "GetOffsetShell", f"{AT}--topic plain --time earliest"),
    Command("log dirs", "LogDirsCommand", f"{AT}--describe --topic-list plain"),
    Command("producers", "TransactionsCommand", f"{AT}describe-producers --topic plain --partition 0"),
    Command("cluster id", "ClusterTool", f"cluster-id {AT}"),
    Command("endpoints", "ClusterTool", f"list-endpoints {AT}"),
    topic("delete", f"--delete {ORDERS}"),
    topic("delete again", f"--delete {ORDERS}"),
    topic("list after", "--list"),
)


if __name__ == "__main__":
    main(__doc__, STEPS)
