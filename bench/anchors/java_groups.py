"""Kafka's own `kafka-consumer-groups` on Kafka and on ours: the same words must come out.

    python bench/anchors/java_groups.py [--only reset] [--show]

Groups of every kind are looked at while their members are there (classic, static, KIP-848), and after they
have left; then their offsets are set in every way that the tool knows, and deleted.  Members are
librdkafka's, whose names are chosen, so that the two brokers' groups look alike.
"""

import re
import time
from collections.abc import Callable

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from members import Members
from side_by_side import AT, Act, Command, Lines, Stage, Step, main

TOOL = "consumer.group.ConsumerGroupCommand"
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
BASE_MS = int(time.time()) * 1000 - 3_600_000
TOPICS = {"orders": 3, "prices": 1}
RECORDS = 20
HOUR_AGO = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(BASE_MS / 1000 + 10))

_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?<=\s)[A-Za-z0-9_+/-]{22}(?=\s|$)")
_STATES = re.compile(r"(Valid states are): .*")  # in no order
_BROKER = re.compile(r"ADDRESS\s+\(\d+\)")


def table(lines: Lines) -> Lines:
    """A table: its rows in any order, without ids that a broker or a client drew, and their padding."""
    plain = (_STATES.sub(r"\1", _BROKER.sub("COORDINATOR", _UUID.sub("ID", line))) for line in lines)
    return sorted(" ".join(line.split()) for line in plain)


def groups(name: str, arguments: str) -> Command:
    return Command(name, TOOL, AT + arguments, shown=table)


def until(holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


def fill(stage: Stage) -> None:
    admin = AdminClient({"bootstrap.servers": stage.bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
    for future in made.values():
        future.result(timeout=20)
    producer = ck.Producer({"bootstrap.servers": stage.bootstrap, "log_level": 0})
    for topic, count in TOPICS.items():
        for number in range(RECORDS * count):
            producer.produce(
                topic, b"x", partition=number % count, timestamp=BASE_MS + number // count * 1000
            )
    producer.flush(20)


def commit(group: str, *offsets: tuple[str, int, int]) -> Act:
    def do(stage: Stage) -> None:
        consumer = ck.Consumer({"bootstrap.servers": stage.bootstrap, "group.id": group, "log_level": 0})
        told = [ck.TopicPartition(topic, index, offset) for topic, index, offset in offsets]
        until(lambda: _accepted(consumer, told), f"no commit for {group}")
        consumer.close()

    return Act(f"{group} commits", do)


def _accepted(consumer: ck.Consumer, offsets: list[ck.TopicPartition]) -> bool:
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except ck.KafkaException as error:
        if not error.args[0].retriable() and error.args[0].code() not in (14, 15, 16):
            raise
        return False
    return True


def join(group: str, members: dict[str, tuple[list[str], dict[str, str]]]) -> Act:
    """Members by their names; done when every partition of their topics has an owner."""
    wanted = {(t, i) for topics, _ in members.values() for t in topics for i in range(TOPICS[t])}

    def do(stage: Stage) -> None:
        joined = stage.held.enter_context(Members(stage.bootstrap, group))
        for name, (topics, settings) in members.items():
            joined.add(name, topics, **settings)
        joined.until_shared(wanted)

    return Act(f"{group}: {', '.join(members)}", do)


def all_leave(stage: Stage) -> None:
    stage.held.pop_all().close()


def reset(name: str, arguments: str) -> Command:
    return groups(f"reset {name}", f"--reset-offsets --group idle {arguments}")


def write_offsets(stage: Stage) -> None:
    (stage.folder / "offsets.csv").write_text("orders,0,3\norders,2,11\n")


ONE_TOPIC: tuple[list[str], dict[str, str]] = (["orders"], {})
STATIC = (["orders"], {"group_instance_id": "till-7"})
LOOKED_AT = ("classic", "static", "modern", "mixed", "idle", "unknown")
STEPS: tuple[Step, ...] = (
    Act("topics", fill),
    groups("list, none there", "--list"),
    join("classic", {"clerk-1": ONE_TOPIC, "clerk-2": ONE_TOPIC}),
    join("static", {"till": STATIC}),
    join("modern", {"clerk-3": (["orders"], {"group_protocol": "consumer"})}),
    join(
        "mixed",
        {
            "clerk-4": (["orders"], {"group_protocol": "consumer"}),
            "clerk-5": (["prices"], {"group_protocol": "consumer", "group_remote_assignor": "range"}),
        },
    ),
    commit("idle", ("orders", 0, 7), ("orders", 1, 20), ("prices", 0, 1)),
    groups("list", "--list"),
    groups("list with states", "--list --state"),
    groups("list stable ones", "--list --state Stable"),
    groups("list empty ones", "--list --state Empty"),
    groups("list of a bad state", "--list --state Asleep"),
    groups("list with types", "--list --type"),
    groups("list consumer ones", "--list --type consumer"),
    groups("list classic ones", "--list --type classic"),
    *(
        groups(f"describe {part} of {group}", f"--describe --group {group} --{part}")
        for group in LOOKED_AT
        for part in ("offsets", "members", "state")
    ),
    *(
        groups(f"describe {part} of {group}, verbose", f"--describe --group {group} --{part} --verbose")
        for group in ("classic", "static", "mixed")
        for part in ("offsets", "members", "state")
    ),
    groups("describe several", "--describe --group classic --group idle"),
    groups("describe all", "--describe --all-groups --members"),
    groups("reset of a group with members", "--reset-offsets --group classic --topic orders --to-earliest"),
    groups("delete a group with members", "--delete --group modern"),
    groups("delete offsets with members", "--delete-offsets --group classic --topic orders"),
    Act("all leave", all_leave),
    groups("list with states, after", "--list --state"),
    groups("describe state, after", "--describe --group modern --state"),
    groups("describe members, after", "--describe --group modern --members"),
    reset("without a scope", "--to-earliest"),
    reset("plan", "--topic orders --to-earliest --dry-run"),
    reset("to earliest", "--topic orders --to-earliest --execute"),
    reset("to latest", "--all-topics --to-latest --execute"),
    reset("to an offset", "--topic orders:0,2 --to-offset 5 --execute"),
    reset("to an offset past the end", "--topic orders --to-offset 500 --execute"),
    reset("by a shift", "--topic orders --shift-by -4 --execute"),
    reset("by a shift past the end", "--topic orders --shift-by 1000 --execute"),
    reset("to a time", f"--topic orders --to-datetime {HOUR_AGO} --execute"),
    reset("by a duration", "--topic orders --by-duration PT2H --execute"),
    reset("to current", "--all-topics --to-current --execute"),
    Act("a file of offsets", write_offsets),
    reset("from a file", "--from-file FOLDER/offsets.csv --execute"),
    reset("exported", "--all-topics --to-current --dry-run --export"),
    reset("of an unknown topic", "--topic nothing --to-earliest --execute"),
    groups("reset of an unknown group", "--reset-offsets --group fresh --topic orders --to-latest --execute"),
    groups("describe offsets after resets", "--describe --group idle"),
    groups("delete offsets", "--delete-offsets --group idle --topic orders:1"),
    groups("delete offsets of a topic", "--delete-offsets --group idle --topic prices"),
    groups("delete offsets of an unknown topic", "--delete-offsets --group idle --topic nothing"),
    groups("delete offsets of an unknown group", "--delete-offsets --group unknown --topic orders"),
    groups("describe offsets after deletion", "--describe --group idle"),
    groups("delete", "--delete --group idle"),
    groups("delete several", "--delete --group classic --group modern"),
    groups("delete unknown", "--delete --group unknown"),
    groups("delete all", "--delete --all-groups"),
    groups("list at the end", "--list"),
    groups("validate a pattern", "--validate-regex ord.*"),
)


if __name__ == "__main__":
    main(__doc__, STEPS, SETTINGS)
