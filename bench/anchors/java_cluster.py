"""Kafka's command line tools for clusters, on three brokers of Apache Kafka and three of ours: the same words
must come out.

    python bench/anchors/java_cluster.py [--only reassign] [--show]

`kafka-topics`, `kafka-reassign-partitions`, `kafka-leader-election`, `kafka-metadata-quorum` and
`kafka-log-dirs`, with all brokers there and with some killed.  Topics are assigned by hand where the order of
replicas is compared; where a broker chooses, only who has a replica is.

Ours has no ELR (KIP-966): the last replica of a partition stays in the ISR when it goes, so that the
partition has no leader and is not under-replicated.  Kafka moves it into the ELR.
"""

import json
import re
from collections.abc import Callable

from clusters import BROKERS, Cluster, KafkaCluster, OurCluster, View, wait_for
from failover import is_at_rest
from side_by_side import AT, Act, Command, Lines, Sides, Stage, Step, main

SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
}
PLAN = {
    "swap": {("placed", 0): [3, 1, 2], ("placed", 1): [2, 3, 1]},
    "move": {("moved", 0): [3, 1]},
    "grow": {("moved", 0): [1, 2, 3]},
    "again": {("moved", 1): [1, 3]},
    "broker": {("moved", 0): [1, 9]},
    "twice": {("moved", 0): [1, 1]},
    "partition": {("moved", 7): [1, 2]},
    "empty": {("moved", 0): []},
}
NOBODY = -1
QUORUM = "MetadataQuorumCommand"
ONE_VOTER = "the metadata are in ZooKeeper, so that the controller is the only voter"
PATHS = ((re.compile(r'"/[^"]*"'), '"PATH"'),)
ELECTIONS = {"some": [("placed", 0), ("placed", 1)], "unknown": [("placed", 0), ("placed", 9)]}


def write_plans(stage: Stage) -> None:
    for name, moves in PLAN.items():
        parts = [{"topic": t, "partition": p, "replicas": replicas} for (t, p), replicas in moves.items()]
        write(stage, f"{name}.json", {"version": 1, "partitions": parts})
    for name, elected in ELECTIONS.items():
        parts = [{"topic": topic, "partition": partition} for topic, partition in elected]
        write(stage, f"elect-{name}.json", {"partitions": parts})
    write(stage, "topics.json", {"version": 1, "topics": [{"topic": "placed"}, {"topic": "moved"}]})


def write(stage: Stage, name: str, content: object) -> None:
    (stage.folder / name).write_text(json.dumps(content))


def cluster(stage: Stage) -> Cluster:
    assert isinstance(stage.side, KafkaCluster | OurCluster)
    return stage.side


def everywhere(stage: Stage, holds: Callable[[View], bool], brokers: tuple[int, ...] = BROKERS) -> None:
    """Until each of these brokers says so."""
    addresses = stage.bootstrap.split(",")
    for broker in brokers:
        wait_for(addresses[broker - 1], holds)


def at_rest() -> Act:
    return Act("all are in sync", lambda stage: everywhere(stage, is_at_rest))


def kill(broker: int) -> Act:
    def do(stage: Stage) -> None:
        cluster(stage).kill(broker)
        left = tuple(one for one in BROKERS if one != broker)
        everywhere(stage, lambda view: view.brokers == set(left), left)

    return Act(f"broker {broker} is killed", do)


def restart(broker: int) -> Act:
    return Act(f"broker {broker} is started again", lambda stage: cluster(stage).restart(broker))


def leave_the_other(stage: Stage) -> None:
    """Broker 2 has been killed; then 1 is, which was alone in sync, and only 2 is started again."""
    cluster(stage).kill(1)
    cluster(stage).restart(2)
    everywhere(stage, lambda view: view.brokers == {2, 3} and view.leaders["lost", 0] == NOBODY, (2, 3))


def described(lines: Lines) -> Lines:
    """The ISR is a set.  The last replica of one without a leader is in Kafka's ELR, and in our ISR."""
    lines = [re.sub(r"(?<=Isr: )[\d,]+", lambda found: in_order(found[0]), line) for line in lines]
    return [
        re.sub(r"Isr: \tElr: (\d)\tLastKnownElr: \d", r"Isr: \1\tElr: \tLastKnownElr:", one) for one in lines
    ]


def chosen(lines: Lines) -> Lines:
    """Of a description: who has replicas, and not in which order, or who of them leads."""
    lines = [re.sub(r"Leader: \d", "Leader: NODE", line) for line in described(lines)]
    return [re.sub(r"(?<=: )\d(,\d)+", lambda found: in_order(found[0]), line) for line in lines]


def led(lines: Lines) -> Lines:
    """As `chosen`, of partitions with a leader."""
    return [line for line in chosen(lines) if "Leader: none" not in line]


def in_order(ids: str) -> str:
    return ",".join(sorted(ids.split(",")))


def proposed(lines: Lines) -> Lines:
    """The plan, in the last line, by how many replicas it has: the tool begins with any broker."""
    numbers = re.sub(
        r'"replicas":\[([\d,]+)\]', lambda found: f'"replicas":{found[1].count(",") + 1}', lines[-1]
    )
    return [*lines[:-1], numbers]


def log_dirs(lines: Lines) -> Lines:
    """A line for each partition of each broker."""
    shown = []
    for line in lines:
        if not line.startswith("{"):
            shown.append(line)
            continue
        for broker in json.loads(line.replace('"size":BYTES', '"size":0'))["brokers"]:
            for folder in broker["logDirs"]:
                shown.append(f"{broker['broker']}: error {folder['error']}")
                told = [f"{broker['broker']}: {part}" for part in folder["partitions"]]
                shown += sorted(one for one in told if "'__" not in one)
    return shown


def status(lines: Lines) -> Lines:
    """The quorum's: what is said, and in which form."""
    patterns = {
        r"^(ClusterId: +)\S+": r"\1ID",
        r"^((?:Leader(?:Id|Epoch)|HighWatermark|MaxFollowerLag(?:TimeMs)?): +)-?\d+": r"\1NUMBER",
    }
    for pattern, replacement in patterns.items():
        lines = [re.sub(pattern, replacement, line) for line in lines]
    return lines


def replication(lines: Lines) -> Lines:
    """Who follows here watches there, and the offsets are those of a log that we do not have."""
    header, *rows = [line.split("\t") for line in lines]
    told = ["leader" if row[-1].strip() == "Leader" else f"another, {row[3].strip()} behind" for row in rows]
    return [" ".join(map(str.strip, header)), *sorted(told)]


def without_defaults(lines: Lines) -> Lines:
    """The rates of throttles are options with a default here, and have none in Kafka."""
    return [re.sub(r", DEFAULT_CONFIG:\S+=\d+", "", line) for line in lines]


def topic(
    name: str, arguments: str, shown: Callable[[Lines], Lines] = described, because: str = ""
) -> Command:
    return Command(f"topic {name}", "TopicCommand", AT + arguments, shown=shown, because=because)


def reassign(name: str, arguments: str, shown: Callable[[Lines], Lines] = list) -> Command:
    return Command(f"reassign {name}", "reassign.ReassignPartitionsCommand", AT + arguments, shown=shown)


def elect(name: str, arguments: str) -> Command:
    return Command(f"elect {name}", "LeaderElectionCommand", AT + arguments)


def quorum(name: str, arguments: str) -> Command:
    return Command(f"quorum {name}", QUORUM, AT + arguments, shown=status, because=ONE_VOTER)


def dirs(name: str, arguments: str) -> Command:
    return Command(f"log dirs {name}", "LogDirsCommand", f"{AT}--describe {arguments}", shown=log_dirs)


def plan(name: str) -> str:
    return f"--reassignment-json-file FOLDER/{name}.json"


def fill(name: str, megabytes: int) -> Command:
    return Command(
        f"fill {name}",
        "ProducerPerformance",
        f"{AT}--topic {name} --num-records {megabytes * 100} --record-size 10000 --throughput -1",
        shown=lambda lines: lines[-1:],
    )


FLAGS = {
    "under-replicated": ("--under-replicated-partitions", led),
    "unavailable": ("--unavailable-partitions", chosen),
    "at min ISR": ("--at-min-isr-partitions", led),
    "under min ISR": ("--under-min-isr-partitions", chosen),
}


def flags(when: str) -> tuple[Command, ...]:
    return tuple(
        topic(f"{name} {when}", f"--describe --exclude-internal {flag}", shown)
        for name, (flag, shown) in FLAGS.items()
    )


STEPS: tuple[Step, ...] = (
    Act("plans", write_plans),
    topic("create", "--create --topic orders --partitions 3 --replication-factor 3"),
    topic("create with what is usual here", "--create --topic usual --partitions 2"),
    topic("create as told", "--create --topic placed --replica-assignment 1:2:3,2:3:1,3:1:2"),
    topic("create with two replicas", "--create --topic moved --replica-assignment 1:2,2:3"),
    topic("create with one", "--create --topic single --replica-assignment 1,2,3"),
    topic(
        "create with two, one needed",
        "--create --topic lost --replica-assignment 1:2 --config min.insync.replicas=1",
    ),
    topic("four replicas", "--create --topic bad --partitions 1 --replication-factor 4"),
    topic("a replica twice", "--create --topic bad --replica-assignment 1:1"),
    topic("of different numbers", "--create --topic bad --replica-assignment 1:2,3"),
    topic("unknown broker", "--create --topic bad --replica-assignment 1:9"),
    at_rest(),
    topic("describe", "--describe --topic orders", chosen),
    topic("describe what is usual", "--describe --topic usual", chosen),
    topic("describe as told", "--describe --topic placed"),
    topic("describe two", "--describe --topic moved,lost"),
    *flags("with all there"),
    topic("alter", "--alter --topic orders --partitions 5"),
    topic(
        "alter as told", "--alter --topic placed --partitions 4 --replica-assignment 1:2:3,2:3:1,3:1:2,2:1:3"
    ),
    topic(
        "alter with too few replicas",
        "--alter --topic placed --partitions 5 --replica-assignment 1:2:3,2:3:1,3:1:2,2:1:3,1:2",
    ),
    topic(
        "alter with unknown broker", "--alter --topic moved --partitions 3 --replica-assignment 1:2,2:3,3:9"
    ),
    topic("shrink", "--alter --topic placed --partitions 2"),
    at_rest(),
    topic("describe after", "--describe --topic orders", chosen),
    topic("describe as told after", "--describe --topic placed"),
    dirs("of a topic", "--topic-list placed"),
    dirs("of a broker", "--broker-list 2 --topic-list placed,moved"),
    dirs("of all", ""),
    dirs("of an unknown broker", "--broker-list 1,9"),
    dirs("of an unknown topic", "--topic-list nothing"),
    quorum("status", "describe --status"),
    Command("quorum replication", QUORUM, f"{AT}describe --replication", shown=replication),
    Command("for people", QUORUM, f"{AT}describe --replication --human-readable", shown=replication),
    fill("moved", 20),
    reassign(
        "generate", "--generate --topics-to-move-json-file FOLDER/topics.json --broker-list 1,2,3", proposed
    ),
    reassign(
        "generate for too few", "--generate --topics-to-move-json-file FOLDER/topics.json --broker-list 1"
    ),
    topic("delete", "--delete --topic orders,usual"),
    reassign("list nothing", "--list"),
    reassign("swap", f"--execute {plan('swap')}"),
    at_rest(),
    reassign("verify a swap", f"--verify {plan('swap')}"),
    topic("describe a swap", "--describe --topic placed"),
    reassign("unknown broker", f"--execute {plan('broker')}"),
    reassign("a replica twice", f"--execute {plan('twice')}"),
    reassign("unknown partition", f"--execute {plan('partition')}"),
    reassign("no replicas", f"--execute {plan('empty')}"),
    reassign("slowly", f"--execute {plan('move')} --throttle 1000"),
    reassign("list", "--list"),
    reassign("verify under way", f"--verify {plan('move')}"),
    topic("describe under way", "--describe --topic moved"),
    Command(
        "config of the throttle",
        "kafka.admin.ConfigCommand",
        f"{AT}--describe --entity-type topics --entity-name moved",
    ),
    Command(
        "config of a broker's throttle",
        "kafka.admin.ConfigCommand",
        f"{AT}--describe --entity-type brokers --entity-name 1",
        shown=without_defaults,
    ),
    reassign("another one", f"--execute {plan('again')}"),
    reassign("another one beside it", f"--execute {plan('again')} --throttle 2000 --additional"),
    reassign("list both", "--list"),
    reassign("cancel keeping throttles", f"--cancel {plan('again')} --preserve-throttles"),
    reassign("cancel", f"--cancel {plan('move')}"),
    reassign("cancel again", f"--cancel {plan('move')}"),
    reassign("list after", "--list"),
    at_rest(),
    topic("describe as before", "--describe --topic moved"),
    reassign("move", f"--execute {plan('move')} --throttle 100000000"),
    at_rest(),
    reassign("verify keeping throttles", f"--verify {plan('move')} --preserve-throttles"),
    reassign("verify", f"--verify {plan('move')}"),
    reassign("grow", f"--execute {plan('grow')}"),
    at_rest(),
    reassign("verify grown", f"--verify {plan('grow')}"),
    topic("describe grown", "--describe --topic moved"),
    dirs("after", "--topic-list moved"),
    kill(1),
    *flags("without broker 1"),
    topic("describe without broker 1", "--describe --topic placed"),
    topic("create without broker 1", "--create --topic late --partitions 1 --replication-factor 3"),
    topic("create on two", "--create --topic two --partitions 1 --replication-factor 2"),
    topic("create as told on a dead broker", "--create --topic later --replica-assignment 1:2"),
    reassign("to a dead broker", f"--execute {plan('again')}"),
    reassign("list to a dead broker", "--list"),
    reassign("cancel to a dead broker", f"--cancel {plan('again')}"),
    dirs("without broker 1", "--topic-list placed"),
    elect("a dead broker", "--election-type preferred --topic moved --partition 0"),
    elect("all without broker 1", "--election-type preferred --all-topic-partitions"),
    quorum("status without broker 1", "describe --status"),
    restart(1),
    at_rest(),
    topic("describe with broker 1 again", "--describe --topic placed"),
    *flags("with broker 1 again"),
    elect("preferred", "--election-type preferred --topic moved --partition 0"),
    elect("preferred again", "--election-type preferred --topic moved --partition 0"),
    elect("preferred of some", "--election-type preferred --path-to-json-file FOLDER/elect-some.json"),
    elect("preferred of unknown", "--election-type preferred --path-to-json-file FOLDER/elect-unknown.json"),
    elect("preferred of all", "--election-type preferred --all-topic-partitions"),
    elect("unclean with a leader", "--election-type unclean --topic placed --partition 0"),
    at_rest(),
    topic("describe elected", "--describe --topic placed"),
    fill("lost", 1),
    kill(2),
    fill("lost", 2),
    Act("broker 1 is killed, broker 2 is started again", leave_the_other),
    topic("describe what is lost", "--describe --topic lost"),
    *flags("with one who is not in sync"),
    elect("preferred of what is lost", "--election-type preferred --topic lost --partition 0"),
    elect("unclean", "--election-type unclean --topic lost --partition 0"),
    elect("unclean again", "--election-type unclean --topic lost --partition 0"),
    topic("describe what is left", "--describe --topic lost"),
    Command("offsets of what is left", "GetOffsetShell", f"{AT}--topic lost"),
    restart(1),
    at_rest(),
    topic("describe with all again", "--describe --topic lost"),
    Command("offsets with all again", "GetOffsetShell", f"{AT}--topic lost"),
)


if __name__ == "__main__":
    main(__doc__, STEPS, SETTINGS, Sides(KafkaCluster, OurCluster, PATHS))
