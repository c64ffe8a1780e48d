"""Kafka's own `kafka-share-groups` on Kafka and on ours: the same words must come out.

    python bench/anchors/java_share_groups.py [--only reset] [--show]

Share groups (KIP-932) are looked at while a member is there (librdkafka's), and after it has left; then
their offsets are set in every way that the tool knows, and deleted.  Their settings are set and read with
`kafka-configs`, and the other tools for groups are shown them.
"""

import time

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from java_groups import HOUR_AGO, SETTINGS, fill, table, until
from side_by_side import AT, Act, Command, Lines, Stage, Step, main

TOOL = "consumer.group.ShareGroupCommand"
GROUPS = "GroupsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
RECORDS_READ = 60


def share(name: str, arguments: str) -> Command:
    return Command(name, TOOL, AT + arguments, shown=table)


def lags(lines: Lines) -> Lines:
    """A table of offsets without those where the group starts: Kafka writes them later than it could."""
    rows = [line.split() for line in lines]
    return table([" ".join((*row[:-2], row[-1])) if "orders" in row else " ".join(row) for row in rows])


def offsets(name: str, arguments: str) -> Command:
    return Command(name, TOOL, AT + arguments, shown=lags)


def reset(name: str, arguments: str) -> Command:
    return share(f"reset {name}", f"--reset-offsets --group team {arguments}")


def tell(stage: Stage) -> None:
    """Have the group begin at the beginning."""
    admin = AdminClient({"bootstrap.servers": stage.bootstrap, "log_level": 0})
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "team", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=20)


def read_all(stage: Stage) -> None:
    """A member reads everything, and stays."""
    consumer = ck.ShareConsumer(
        {"bootstrap.servers": stage.bootstrap, "group.id": "team", "client.id": "clerk", "log_level": 0}
    )
    stage.held.callback(consumer.close)
    consumer.subscribe(["orders"])
    found = 0

    def enough() -> bool:
        nonlocal found
        found += sum(1 for message in consumer.poll(timeout=0.2) or [] if message.error() is None)
        return found >= RECORDS_READ

    until(enough, "not all was read", 60.0)
    for _ in range(10):  # what was read last is acknowledged with the next poll
        consumer.poll(timeout=0.1)
        time.sleep(0.05)


def leave(stage: Stage) -> None:
    stage.held.pop_all().close()


STEPS: tuple[Step, ...] = (
    Act("topics", fill),
    share("list, none there", "--list"),
    share("describe unknown", "--describe --group unknown"),
    Act("where it begins", tell),
    Act("a member reads", read_all),
    share("list", "--list"),
    share("list with states", "--list --state"),
    share("list empty ones", "--list --state empty"),
    share("list of a bad state", "--list --state asleep"),
    offsets("describe offsets", "--describe --group team --offsets"),
    offsets("describe offsets, verbose", "--describe --group team --offsets --verbose"),
    *(
        share(f"describe {part}", f"--describe --group team --{part}")
        for part in ("members", "state", "members --verbose", "state --verbose")
    ),
    offsets("describe all", "--describe --all-groups"),
    Command("groups", GROUPS, AT + "--list", shown=table),
    Command("share groups", GROUPS, AT + "--list --share", shown=table),
    Command(
        "what the group is told",
        CONFIGS,
        AT + "--describe --entity-type groups --entity-name team",
        shown=table,
    ),
    Command(
        "told more",
        CONFIGS,
        AT
        + "--alter --entity-type groups --entity-name team --add-config share.isolation.level=read_committed",
    ),
    Command(
        "told too much",
        CONFIGS,
        AT + "--alter --entity-type groups --entity-name team --add-config share.delivery.count.limit=99",
    ),
    reset("with a member", "--topic orders --to-earliest --execute"),
    share("delete with a member", "--delete --group team"),
    share("delete offsets with a member", "--delete-offsets --group team --topic orders"),
    Act("it leaves", leave),
    share("describe state, after", "--describe --group team --state"),
    share("describe members, after", "--describe --group team --members"),
    offsets("describe offsets, after", "--describe --group team"),
    reset("without a scope", "--to-earliest"),
    reset("plan", "--topic orders --to-earliest --dry-run"),
    reset("to earliest", "--topic orders --to-earliest --execute"),
    reset("to latest", "--all-topics --to-latest --execute"),
    reset("of one partition", "--topic orders:1 --to-earliest --execute"),
    reset("to a time", f"--topic orders --to-datetime {HOUR_AGO} --execute"),
    reset("of an unknown topic", "--topic nothing --to-earliest --execute"),
    share("reset of an unknown group", "--reset-offsets --group fresh --topic prices --to-latest --execute"),
    share("describe after resets", "--describe --group team"),
    share("describe the made one", "--describe --group fresh"),
    share("delete offsets", "--delete-offsets --group team --topic orders"),
    share("delete offsets again", "--delete-offsets --group team --topic orders"),
    share("delete offsets of an unknown topic", "--delete-offsets --group team --topic nothing"),
    share("delete offsets of an unknown group", "--delete-offsets --group unknown --topic orders"),
    share("describe after deletion", "--describe --group team"),
    share("delete", "--delete --group team"),
    share("delete unknown", "--delete --group unknown"),
    share("delete all", "--delete --all-groups"),
    share("list at the end", "--list"),
)


if __name__ == "__main__":
    main(__doc__, STEPS, SETTINGS)
