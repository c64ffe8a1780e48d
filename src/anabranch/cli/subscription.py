"""`anabranch subscription`: how far the subscriptions of a topic have got, and moving them."""

import time
from typing import Annotated, Any
from urllib.parse import quote_plus

import typer

from anabranch.cli.failure import Misuse
from anabranch.cli.http import DEFAULT_HTTP, Http, ask, topic_path
from anabranch.cli.options import Json, duration_ms, moment_ms
from anabranch.cli.output import print_json, print_table

app = typer.Typer(help="Make, look at, move and remove Pulsar subscriptions.", no_args_is_help=True)

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="orders, tenant/namespace/orders or a full name.")
]
Name = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The subscription.")]

_END = (1 << 63) - 1
_EARLIEST = {"ledgerId": -1, "entryId": -1}
_LATEST = {"ledgerId": _END, "entryId": _END}


def _path(topic: str, name: str) -> str:
    return f"{topic_path(topic)}/subscription/{quote_plus(name)}"


def _stats(http: str, topic: str) -> dict[str, Any]:
    """What is known of each subscription, over all partitions."""
    path = topic_path(topic)
    partitions = ask(http, "GET", f"{path}/partitions")["partitions"]
    stats = ask(http, "GET", f"{path}/{'partitioned-stats' if partitions else 'stats'}")
    found: dict[str, Any] = stats["subscriptions"]
    return found


@app.command("list")
def list_(topic: Topic, as_json: Json = False, http: Http = DEFAULT_HTTP) -> None:
    """List the subscriptions of a topic and what they have not read."""
    rows = [_row(name, stats) for name, stats in sorted(_stats(http, topic).items())]
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


def _row(name: str, stats: dict[str, Any]) -> dict[str, Any]:
    return {
        "subscription": name,
        "type": stats.get("type") or None,
        "consumers": len(stats["consumers"]),
        "backlog": stats["msgBacklog"],
        "unacked": stats["unackedMessages"],
        "delayed": stats["msgDelayed"],
    }


@app.command("describe")
def describe(topic: Topic, name: Name, as_json: Json = False, http: Http = DEFAULT_HTTP) -> None:
    """Show a subscription and its consumers."""
    stats = _stats(http, topic).get(name)
    if stats is None:
        raise Misuse(f"topic {topic} has no subscription {name}", "anabranch subscription list TOPIC")
    if as_json:
        print_json(stats)
        return
    print_table([_row(name, stats)])
    print_table(
        [
            {
                "consumer": consumer.get("consumerName"),
                "address": consumer.get("address"),
                "permits": consumer["availablePermits"],
                "unacked": consumer["unackedMessages"],
                "sent": consumer["msgOutCounter"],
            }
            for consumer in stats["consumers"]
        ]
    )


@app.command("create")
def create(
    topic: Topic,
    name: Name,
    earliest: Annotated[bool, typer.Option("--earliest", help="Begin with the first message.")] = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Make a subscription, at the end of its topic unless told otherwise."""
    ask(http, "PUT", _path(topic, name), _EARLIEST if earliest else _LATEST)
    print(f"created {name}")


@app.command("reset")
def reset(
    topic: Topic,
    name: Name,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, a time, how long ago (2h), or an id L:E.")
    ],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Let a subscription go on from somewhere else."""
    path = f"{_path(topic, name)}/resetcursor"
    if to in ("earliest", "latest"):
        ask(http, "POST", path, _EARLIEST if to == "earliest" else _LATEST)
    elif (position := _message_id(to)) is not None:
        ask(http, "POST", path, position)
    else:
        ask(http, "POST", f"{path}/{_timestamp_ms(to)}")
    print(f"reset {name} to {to}")


def _message_id(text: str) -> dict[str, int] | None:
    ledger, colon, entry = text.partition(":")
    if not colon or not ledger.isdecimal() or not entry.isdecimal():
        return None
    return {"ledgerId": int(ledger), "entryId": int(entry)}


def _timestamp_ms(text: str) -> int:
    ago_ms = duration_ms(text)
    found = moment_ms(text) if ago_ms is None else round(time.time() * 1000) - ago_ms
    if found is None:
        raise Misuse(
            f"--to {text!r} is no place", "write earliest, latest, 2026-01-31T12:00, 2h or a message id L:E"
        )
    return found


@app.command("skip")
def skip(
    topic: Topic,
    name: Name,
    count: Annotated[int, typer.Argument(min=0, help="How many messages.")],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Skip some messages."""
    ask(http, "POST", f"{_path(topic, name)}/skip/{count}")
    print(f"skipped {count}")


@app.command("expire")
def expire(
    topic: Topic,
    name: Name,
    age: Annotated[str, typer.Argument(help="What is older goes: 90s, 2h, 7d.")],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Skip messages of a certain age."""
    found = 0 if age == "0" else duration_ms(age)
    if found is None:
        raise Misuse(f"AGE {age!r} is no duration", "write 90s, 15m, 2h or 7d")
    ask(http, "POST", f"{_path(topic, name)}/expireMessages/{-(-found // 1000)}")
    print(f"expired what is older than {age}")


@app.command("clear")
def clear(topic: Topic, name: Name, http: Http = DEFAULT_HTTP) -> None:
    """Skip everything that is not read."""
    ask(http, "POST", f"{_path(topic, name)}/skip_all")
    print(f"cleared {name}")


@app.command("delete")
def delete(
    topic: Topic,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Even while it has consumers.")] = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Remove a subscription."""
    ask(http, "DELETE", _path(topic, name), query={"force": str(force).lower()})
    print(f"deleted {name}")
