"""`anabranch namespace`: namespaces and their policies.

The policies that people set most have commands of their own; `set` and `unset` reach all of them, by the
names that the HTTP interface has.
"""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from anabranch.cli.failure import Misuse
from anabranch.cli.http import DEFAULT_HTTP, Http, ask, namespace_path
from anabranch.cli.options import Json, duration_ms
from anabranch.cli.output import print_json

app = typer.Typer(help="Make, look at, change and remove namespaces.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TENANT/NAMESPACE", help="The namespace.")]

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_WITHOUT_END = -1


class QuotaPolicy(StrEnum):
    HOLD = "producer_request_hold"
    EXCEPTION = "producer_exception"
    EVICT = "consumer_backlog_eviction"


@app.command("list")
def list_(
    tenant: Annotated[str, typer.Argument(help="The tenant; all of them if none is named.")] = "",
    as_json: Json = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """List namespaces."""
    tenants = [tenant] if tenant else ask(http, "GET", "/tenants")
    names = [name for one in tenants for name in ask(http, "GET", f"/namespaces/{one}")]
    if as_json:
        print_json(names)
        return
    for name in names:
        print(name)


@app.command("create")
def create(
    name: Name,
    bundles: Annotated[int, typer.Option("--bundles", help="How many; 0 is the broker's default.")] = 0,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Make a namespace."""
    body = {"bundles": {"numBundles": bundles, "boundaries": []}} if bundles else None
    ask(http, "PUT", namespace_path(name), body)
    print(f"created {name}")


@app.command("delete")
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="With all its topics.")] = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Remove a namespace."""
    ask(http, "DELETE", namespace_path(name), query={"force": str(force).lower()})
    print(f"deleted {name}")


@app.command("policies")
def policies(name: Name, http: Http = DEFAULT_HTTP) -> None:
    """Print all policies of a namespace, as JSON."""
    print_json(ask(http, "GET", namespace_path(name)))


@app.command("topics")
def topics(name: Name, as_json: Json = False, http: Http = DEFAULT_HTTP) -> None:
    """List the topics of a namespace, partitions one by one."""
    names = ask(http, "GET", f"{namespace_path(name)}/topics", query={"mode": "ALL"})
    if as_json:
        print_json(names)
        return
    for topic in names:
        print(topic)


@app.command("unload")
def unload(name: Name, http: Http = DEFAULT_HTTP) -> None:
    """Close the topics of a namespace; their clients look them up again."""
    ask(http, "PUT", f"{namespace_path(name)}/unload")
    print(f"unloaded {name}")


# --- policies


def _set(http: str, name: str, policy: str, value: Any, query: dict[str, str] | None = None) -> None:
    ask(http, "POST", f"{namespace_path(name)}/{policy}", value, query)
    print(f"set {policy} of {name}")


@app.command("set-retention")
def set_retention(
    name: Name,
    time: Annotated[str, typer.Option("--time", help="How long, as 3h; -1 without end, 0 not at all.")],
    size: Annotated[str, typer.Option("--size", help="How much, as 10G; -1 without end, 0 nothing.")],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Keep what every subscription has acknowledged."""
    size_bytes = size_of(size, "--size")
    megabytes = -(-size_bytes // (1 << 20)) if size_bytes > 0 else size_bytes
    value = {"retentionTimeInMinutes": _time(time, 60_000, "--time"), "retentionSizeInMB": megabytes}
    _set(http, name, "retention", value)


@app.command("set-message-ttl")
def set_message_ttl(
    name: Name,
    ttl: Annotated[str, typer.Argument(help="An age, as 90s or 2h; 0 is none.")],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Let subscriptions skip messages that are older."""
    _set(http, name, "messageTTL", _time(ttl, 1000, "TTL"))


@app.command("set-backlog-quota")
def set_backlog_quota(
    name: Name,
    policy: Annotated[QuotaPolicy, typer.Option("--policy", help="What happens beyond it.")],
    size: Annotated[str, typer.Option("--size", help="Limit of the backlog's size, as 10G.")] = "-1",
    time: Annotated[str, typer.Option("--time", help="Limit of its age, as 3h.")] = "-1",
    http: Http = DEFAULT_HTTP,
) -> None:
    """Bound what subscriptions may leave unread, by size, by age, or both."""
    limits = (
        ("destination_storage", {"limitSize": size_of(size, "--size"), "limitTime": -1}, size),
        ("message_age", {"limitSize": -1, "limitTime": _time(time, 1000, "--time")}, time),
    )
    if size == time == "-1":
        raise Misuse("a backlog quota needs a limit", "give --size, --time or both")
    for kind, limit, given in limits:
        if given != "-1":
            _set(http, name, "backlogQuota", {**limit, "policy": policy.value}, {"backlogQuotaType": kind})


@app.command("set-deduplication")
def set_deduplication(
    name: Name,
    enabled: Annotated[bool, typer.Argument(help="true or false.")],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Store once what producers send again."""
    _set(http, name, "deduplication", enabled)


@app.command("set")
def set_any(
    name: Name,
    policy: Annotated[str, typer.Argument(help="As in the HTTP interface: maxProducersPerTopic ...")],
    value: Annotated[str, typer.Argument(help="JSON.")],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Set any policy."""
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise Misuse(f"{value!r} is no JSON: {error}") from error
    _set(http, name, policy, parsed)


@app.command("unset")
def unset(
    name: Name,
    policy: Annotated[str, typer.Argument(help="As in the HTTP interface: retention, messageTTL ...")],
    http: Http = DEFAULT_HTTP,
) -> None:
    """Take a policy back; the broker's default holds then."""
    ask(http, "DELETE", f"{namespace_path(name)}/{policy}")
    print(f"unset {policy} of {name}")


def size_of(text: str, option: str) -> int:
    """`10G`, `512k`, `-1` in bytes."""
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if unit not in _SIZES or not number.removeprefix("-").isdecimal():
        raise Misuse(f"{option} {text!r} is no size", "write 512k, 10M, 4G or -1")
    return max(_WITHOUT_END, int(number) * _SIZES[unit])


def _time(text: str, unit_ms: int, option: str) -> int:
    """A duration in whole units, rounded up; -1 and 0 as they are."""
    if text in ("-1", "0"):
        return int(text)
    found = duration_ms(text)
    if found is None:
        raise Misuse(f"{option} {text!r} is no duration", "write 90s, 15m, 2h, 7d, 0 or -1")
    return -(-found // unit_ms)
