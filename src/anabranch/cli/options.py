"""Options that several commands share, and what people write in them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from anabranch.cli.failure import Misuse

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="ANABRANCH_BOOTSTRAP",
        help="A broker to ask first.",
    ),
]
ClientOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--client-option",
        "-X",
        metavar="NAME=VALUE",
        help="A setting of the client, by Kafka's name for it; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def name_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` options as a mapping; the value may hold further equals signs."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Misuse(f"{option} {pair!r} is not NAME=VALUE")
        parsed[name] = value
    return parsed


def duration_ms(text: str) -> int | None:
    """`15m`, `2h`, `500ms` in milliseconds; None if it is no duration."""
    match = _AGO.fullmatch(text)
    return int(match[1]) * _UNIT_MS[match[2]] if match else None


def moment_ms(text: str) -> int | None:
    """An ISO 8601 date or time in milliseconds since 1970, UTC unless it says so; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def show_moment(timestamp_ms: int) -> str:
    """A record's timestamp as people read it; what no calendar reaches stays a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
