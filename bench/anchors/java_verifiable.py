"""Kafka's verifiable producer and consumer, the ones its own system tests use, on Kafka and on ours: the same
events must come out.

    python bench/anchors/java_verifiable.py [--only consume] [--show]
    python bench/anchors/java_verifiable.py --brokers 3     on three of ours, one of them killed

They print a JSON line an event.  Of the producer every acknowledgement is compared (which value went to which
partition and offset); of the consumer what does not depend on how records come in pieces: the records of
each partition, from where to where, the last offset committed, the partitions assigned and revoked.  With
three brokers it is verifiable_cluster.py.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

import verifiable_cluster
from java_groups import table
from side_by_side import AT, Act, Command, Lines, Stage, Step, main

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "3"}
EVENTS = "--topic events"


def events(lines: Lines) -> list[dict[str, Any]]:
    return [json.loads(line.replace(":TIME", ":0")) for line in lines if line.startswith("{")]


def others(lines: Lines) -> Lines:
    return [line for line in lines if not line.startswith("{")]


def produced(lines: Lines) -> Lines:
    """Acknowledgements in the order of their offsets, and the totals."""
    shown = []
    for event in events(lines):
        event.pop("timestamp", None)
        event.pop("avg_throughput", None)
        shown.append(json.dumps(event, sort_keys=True))
    return others(lines) + sorted(shown)


def consumed(lines: Lines) -> Lines:
    told = events(lines)
    shown = [
        str(event["name"]) for event in told if event["name"] in ("startup_complete", "shutdown_complete")
    ]
    for name in ("partitions_assigned", "partitions_revoked"):
        owned = {_place(p) for event in told if event["name"] == name for p in event["partitions"]}
        shown.append(f"{name}: {sorted(owned)}")
    taken = [p for event in told if event["name"] == "records_consumed" for p in event["partitions"]]
    for place, parts in _by_place(taken).items():
        least, greatest = min(p["minOffset"] for p in parts), max(p["maxOffset"] for p in parts)
        shown.append(f"{place}: {sum(p['count'] for p in parts)} records, {least} to {greatest}")
    committed = [o for event in told if event["name"] == "offsets_committed" for o in event["offsets"]]
    for place, offsets in _by_place(committed).items():
        shown.append(f"{place}: committed {max(o['offset'] for o in offsets)}")
    failed = [event for event in told if event["name"] == "offsets_committed" and not event["success"]]
    values = sorted(_value(event) for event in told if event["name"] == "record_data")
    return [*others(lines), *shown, f"{len(failed)} commits failed", *values]


def _place(event: dict[str, Any]) -> str:
    return f"{event['topic']}-{event['partition']}"


def _value(event: dict[str, Any]) -> str:
    return f"{_place(event)} at {event['offset']}: {event['key']} = {event['value']}"


def _by_place(parts: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for part in sorted(parts, key=_place):
        found.setdefault(_place(part), []).append(part)
    return found


def produce(name: str, arguments: str) -> Command:
    return Command(f"produce {name}", "VerifiableProducer", AT + arguments, shown=produced)


def consume(name: str, arguments: str) -> Command:
    return Command(f"consume {name}", "VerifiableConsumer", AT + arguments, shown=consumed)


def write_settings(stage: Stage) -> None:
    """Transactional producers fail without transactions, so this one is idempotent, compressed and slow."""
    lines = ["compression.type=zstd", "linger.ms=20", "batch.size=2000"]
    (stage.folder / "producer.properties").write_text("\n".join(lines) + "\n")
    (stage.folder / "consumer.properties").write_text(
        "isolation.level=read_committed\nfetch.max.bytes=3000\n"
    )


KEYED = f"{EVENTS} --max-messages 600 --repeating-keys 11"
ASSIGNORS = ("RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")
STEPS: tuple[Step, ...] = (
    Act("settings", write_settings),
    Command("create", "TopicCommand", f"{AT}--create {EVENTS} --partitions 3"),
    produce("keyed", KEYED),
    produce("acks 0", "--topic alone --max-messages 50 --acks 0 --repeating-keys 1"),
    produce(
        "acks 1, a prefix", "--topic alone --max-messages 50 --acks 1 --value-prefix 7 --repeating-keys 1"
    ),
    produce("with settings", f"{KEYED} --command-config FOLDER/producer.properties"),
    produce("at times", f"{EVENTS} --max-messages 60 --repeating-keys 3 --message-create-time 1600000000000"),
    consume("classic", f"{EVENTS} --group-id one --max-messages 1260"),
    consume(
        "classic, committing by itself", f"{EVENTS} --group-id two --max-messages 1260 --enable-autocommit"
    ),
    consume("static", f"{EVENTS} --group-id three --group-instance-id i --max-messages 1260"),
    *(
        consume(
            f"with {name}",
            f"{EVENTS} --group-id {name} --max-messages 1260 "
            f"--assignment-strategy org.apache.kafka.clients.consumer.{name}",
        )
        for name in ASSIGNORS
    ),
    consume("KIP-848", f"{EVENTS} --group-id four --group-protocol consumer --max-messages 1260"),
    consume(
        "KIP-848, range",
        f"{EVENTS} --group-id five --group-protocol consumer --group-remote-assignor range "
        "--max-messages 1260",
    ),
    consume(
        "KIP-848, static",
        f"{EVENTS} --group-id six --group-protocol consumer --group-instance-id i --max-messages 1260",
    ),
    consume(
        "KIP-848, committing by itself",
        f"{EVENTS} --group-id seven --group-protocol consumer --max-messages 1260 --enable-autocommit",
    ),
    consume(
        "committed only, in small pieces",
        f"{EVENTS} --group-id eight --max-messages 1260 --command-config FOLDER/consumer.properties",
    ),
    produce("more", f"{EVENTS} --max-messages 30 --repeating-keys 5"),
    consume("what is new, one by one", f"{EVENTS} --group-id one --max-messages 30 --verbose"),
    consume(
        "what is new, one by one, KIP-848",
        f"{EVENTS} --group-id four --group-protocol consumer --max-messages 30 --verbose",
    ),
    consume("after an upgrade", f"{EVENTS} --group-id two --group-protocol consumer --max-messages 30"),
    consume("after a downgrade", f"{EVENTS} --group-id five --max-messages 30"),
    Command(
        "describe",
        "consumer.group.ConsumerGroupCommand",
        f"{AT}--describe --all-groups --offsets",
        shown=lambda lines: sorted(table(lines)),
    ),
)


if __name__ == "__main__":
    if sys.argv[1:] == ["--brokers", "3"]:
        verifiable_cluster.run()
    else:
        main(__doc__, STEPS, SETTINGS)
