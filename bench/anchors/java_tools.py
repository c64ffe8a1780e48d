"""Apache Kafka's own command line tools, and so its Java clients, on Kafka and on ours: the same words must
come out.

    python bench/anchors/java_tools.py [--only topic] [--show]

Every command runs on both brokers, in fresh folders, and its output is compared line by line, after taking
out what differs by nature: addresses, ids, times, rates.  The Java clients negotiate the newest versions,
ask by topic id and are idempotent by default, which the Python clients are not.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from servers import JARS, Kafka, Ours

PACKAGE = "org.apache.kafka.tools."
AT = "--bootstrap-server BOOTSTRAP "
LOG4J = "-Dlog4j2.level=OFF"


@dataclass(frozen=True)
class Command:
    name: str
    tool: str
    arguments: str
    stdin: str = ""


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
COMMANDS = (
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
    Command("delete records", "DeleteRecordsCommand", f"{AT}--offset-json-file JSON"),
    Command("offsets after", "GetOffsetShell", f"{AT}--topic plain --time earliest"),
    Command("log dirs", "LogDirsCommand", f"{AT}--describe --topic-list plain"),
    Command("producers", "TransactionsCommand", f"{AT}describe-producers --topic plain --partition 0"),
    Command("cluster id", "ClusterTool", f"cluster-id {AT}"),
    Command("endpoints", "ClusterTool", f"list-endpoints {AT}"),
    topic("delete", f"--delete {ORDERS}"),
    topic("delete again", f"--delete {ORDERS}"),
    topic("list after", "--list"),
)
DELETE_RECORDS = '{"partitions": [{"topic": "plain", "partition": 0, "offset": 2}], "version": 1}'

TAKEN_OUT = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r"(Cluster ID: )\S+"), r"\1ID"),
    (re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+\] ?"), ""),
    (re.compile(r"(records sent), .*"), r"\1"),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":"PATH"'),
    (re.compile(r'"size":\d+'), '"size":BYTES'),
    (re.compile(r'"broker":\d+'), '"broker":NODE'),
    (re.compile(r"Leader: \d+"), "Leader: NODE"),
    (re.compile(r"(Replicas|Isr): \d+"), r"\1: NODE"),
    (re.compile(r"^\d+(\s+127|\s+ADDRESS)"), r"NODE\1"),
    (re.compile(r"\b1\d{12}\b"), "TIME"),
    (re.compile(r"127\.0\.0\.1 +\d+"), "ADDRESS"),
    # KRaft sets min.insync.replicas itself, in the cluster's dynamic configuration.
    (re.compile(r"min\.insync\.replicas=1 .*"), "min.insync.replicas=1"),
    (re.compile(r"Configs: min\.insync\.replicas=1,?"), "Configs: "),
    # The text of an error is the broker's own.
    (re.compile(r"(\w+Exception): .*"), r"\1"),
    (re.compile(r"(Error while executing \w+ command) : .*"), r"\1"),
)
# Stack traces, the tools' warnings about themselves, the table's rulers (as wide as the address).
SKIPPED = re.compile(r"^\s+at |^\tat |^Caused by|WARN|^\s*$|DEPRECATED|^\s*\.\.\. \d+ more|HOST\s+PORT")


def run(command: Command, bootstrap: str, folder: Path) -> list[str]:
    (folder / "delete.json").write_text(DELETE_RECORDS)
    told = command.arguments.replace("BOOTSTRAP", bootstrap).replace("JSON", str(folder / "delete.json"))
    tool = command.tool if command.tool.startswith("kafka.") else PACKAGE + command.tool
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", LOG4J, "-cp", f"{JARS}/*", tool, *told.split()]
    done = subprocess.run(java, input=command.stdin, capture_output=True, text=True, timeout=90, check=False)
    lines = [f"exit code {done.returncode}"]
    for line in (done.stdout + done.stderr).splitlines():
        if not SKIPPED.search(line):
            for pattern, replacement in TAKEN_OUT:
                line = pattern.sub(replacement, line)
            lines.append(line.rstrip())
    return lines


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--only", default="", metavar="TEXT", help="commands whose name has this")
    parser.add_argument("--show", action="store_true", help="print the output as well")
    args = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "ours").mkdir()
        kafka, ours = Kafka(folder / "kafka"), Ours(folder / "ours")
        kafka.start()
        try:
            ours.start()
            for command in COMMANDS:
                if args.only not in command.name:
                    continue
                theirs, mine = (run(command, broker.bootstrap, folder) for broker in (kafka, ours))
                same = theirs == mine
                wrong += not same
                print(f"  {'same' if same else 'DIFFERS':8} {command.name}", flush=True)
                if args.show:
                    print("\n".join(theirs))
                if not same:
                    print(
                        "\n".join(
                            difflib.unified_diff(theirs, mine, "Apache Kafka", "ours", lineterm="", n=1)
                        )
                    )
        finally:
            ours.kill()
            kafka.stop()
    if wrong:
        sys.exit(f"{wrong} commands differ")
    print("all the same")


if __name__ == "__main__":
    main()
