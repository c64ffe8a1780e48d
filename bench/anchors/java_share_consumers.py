"""Kafka's own share consumers on Kafka and on ours: the same events and the same lines must come out.

    python bench/anchors/java_share_consumers.py [--only console] [--show]

The verifiable one, which Kafka's system tests use, accepts by itself, and explicitly: waiting for the broker
or not.  The console one accepts, releases or rejects what it shows, and shows how often it was delivered.
"""

import json
import time

from java_verifiable import events, others, produce
from servers import FOR_ONE_BROKER
from side_by_side import AT, Act, Command, Lines, Stage, Step, main

SETTINGS = {"num.partitions": "3", **FOR_ONE_BROKER}
EVENTS = "--topic events"
RECORDS = 600


def taken(lines: Lines) -> Lines:
    """Which records came and were acknowledged, however they came in pieces."""
    told = events(lines)
    shown = [
        str(event["name"]) for event in told if event["name"] in ("startup_complete", "shutdown_complete")
    ]
    for name in ("records_consumed", "offsets_acknowledged"):
        offsets: dict[str, set[int]] = {}
        for event in told:
            if event["name"] == name:
                for part in event["partitions"]:
                    offsets.setdefault(f"{part['topic']}-{part['partition']}", set()).update(part["offsets"])
        for place, found in sorted(offsets.items()):
            shown.append(f"{name} {place}: {len(found)} records, {min(found)} to {max(found)}")
    failed = [event for event in told if event["name"] == "offsets_acknowledged" and not event["success"]]
    values = sorted(json.dumps(event, sort_keys=True) for event in told if event["name"] == "record_data")
    return [*others(lines), *shown, f"{len(failed)} acknowledgements failed", *values]


def consume(mode: str, group: str, count: int, more: str = "") -> Command:
    return Command(
        f"consume, {mode}, {group}",
        "VerifiableShareConsumer",
        f"{AT}{EVENTS} --group-id {group} --acknowledgement-mode {mode} --max-messages {count} "
        f"--offset-reset-strategy earliest {more}",
        shown=taken,
    )


def console(name: str, arguments: str) -> Command:
    """Lines of the three partitions come in any order."""
    return Command(
        f"console {name}",
        "consumer.ConsoleShareConsumer",
        f"{AT}--topic jobs --group shown --formatter-property print.partition=true "
        f"--formatter-property print.offset=true --formatter-property print.delivery=true {arguments}",
        shown=sorted,
    )


def rest(stage: Stage) -> None:
    """What the last one held is free by now, and its group has heard that it has left."""
    time.sleep(1)


STEPS: tuple[Step, ...] = (
    Command("create", "TopicCommand", f"{AT}--create {EVENTS} --partitions 3"),
    Command("create another", "TopicCommand", f"{AT}--create --topic jobs --partitions 1"),
    produce("events", f"{EVENTS} --max-messages {RECORDS} --repeating-keys 11"),
    *(consume(mode, f"by-{mode}", RECORDS) for mode in ("auto", "sync", "async")),
    produce("more", f"{EVENTS} --max-messages 30 --repeating-keys 5"),
    *(consume(mode, f"by-{mode}", 30, "--verbose") for mode in ("auto", "sync", "async")),
    Command(
        "configure",
        "kafka.admin.ConfigCommand",
        f"{AT}--alter --entity-type groups --entity-name shown --add-config "
        "share.auto.offset.reset=earliest,share.delivery.count.limit=3",
    ),
    produce("jobs", "--topic jobs --max-messages 5 --repeating-keys 1"),
    console("releases", "--release --max-messages 5"),
    Act("rest", rest),
    console("releases again", "--release --max-messages 5"),
    Act("rest", rest),
    console("rejects", "--reject --max-messages 5"),
    Act("rest", rest),
    console("has none left", "--timeout-ms 4000"),
    produce("more jobs", "--topic jobs --max-messages 3 --repeating-keys 1"),
    console("accepts", "--max-messages 3 --timeout-ms 10000"),
)


if __name__ == "__main__":
    main(__doc__, STEPS, SETTINGS)
