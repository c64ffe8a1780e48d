"""`anabranch consume`: records out of a topic, from anywhere in it, to standard output.

Partitions are assigned by hand, so no group is involved and nobody else's position moves.  Without
--follow a partition is done at the end it had when we got there; with it we wait for more.
"""

import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from types import FrameType
from typing import Annotated, BinaryIO

import typer

from anabranch.base.clock import SystemClock
from anabranch.cli.client import connected, partitions_of
from anabranch.cli.client_options import consume_settings
from anabranch.cli.failure import Misuse
from anabranch.cli.fetching import Fetcher
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientOptions, duration_ms, moment_ms
from anabranch.cli.render import Columns, Shown, as_json, as_text
from anabranch.client.cluster import EARLIEST, LATEST, Cluster, Offsets
from anabranch.client.destinations import TopicPartition
from anabranch.client.settings import Settings


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where from.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -N (the last N of each partition), a time "
            "(2026-01-31T12:00, @MILLISECONDS) or how long ago (15m, 2h).",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this one; repeatable.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after so many records.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="json: one object a line.")] = Format.TEXT,
    json_: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="Show keys.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", "-o", help="Show partition:offset.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Show timestamps.")] = False,
    headers: Annotated[bool, typer.Option("--headers", "-H", help="Show headers.")] = False,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Whether records of open transactions count.")
    ] = Isolation.READ_COMMITTED,
    client_options: ClientOptions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic.  Over Pulsar's protocol: consume --pulsar --help."""
    render = _renderer(json_ or format_ is Format.JSON, Columns(timestamps, offsets, headers, keys))
    how = consume_settings(client_options or [])
    locate = _locator(start)
    stop = _on_interrupt()
    with connected(bootstrap, Settings(bootstrap, how.client_id, how.timeout_ms / 1000)) as cluster:
        places = _places(cluster, topic, partition or [])
        committed = isolation is Isolation.READ_COMMITTED
        ends = cluster.offsets_at(dict.fromkeys(places, LATEST), committed=committed)
        positions = locate(cluster, places, ends)
        fetcher = Fetcher(cluster, how, committed, positions, None if follow else ends)
        left = sys.maxsize if limit is None else limit
        for records in fetcher.batches(stop):
            _write(sys.stdout.buffer, b"".join(map(render, records[:left])), follow)
            left -= len(records)
            if left <= 0 or stop():
                break
        sys.stdout.buffer.flush()


def _renderer(json_wanted: bool, columns: Columns) -> Callable[[Shown], bytes]:
    return as_json if json_wanted else lambda record: as_text(record, columns)


def _write(out: BinaryIO, lines: bytes, at_once: bool) -> None:
    out.write(lines)
    if at_once:
        out.flush()


def _on_interrupt() -> Callable[[], bool]:
    """Ctrl-C and SIGTERM end the reading, not the process in mid-line.  Says whether one came."""
    came: list[int] = []

    def remember(signum: int, frame: FrameType | None) -> None:
        came.append(signum)

    signal.signal(signal.SIGINT, remember)
    signal.signal(signal.SIGTERM, remember)
    return lambda: bool(came)


def _places(cluster: Cluster, topic: str, wanted: list[int]) -> list[TopicPartition]:
    """The partitions to read."""
    there = partitions_of(cluster, topic)
    absent = sorted(set(wanted) - set(there))
    if absent:
        raise Misuse(f"{topic} has no partition {absent[0]}", f"it has partitions {there[0]} to {there[-1]}")
    return [TopicPartition(topic, partition) for partition in sorted(set(wanted)) or there]


Locate = Callable[[Cluster, list[TopicPartition], Offsets], Offsets]


def _locator(start: str) -> Locate:
    """How `--from` finds where each partition begins.  Misuse if it means nothing."""
    if start == "beginning":
        return lambda cluster, places, ends: cluster.offsets_at(dict.fromkeys(places, EARLIEST))
    if start == "end":
        return lambda cluster, places, ends: ends
    if start.isdecimal():
        return lambda cluster, places, ends: dict.fromkeys(places, int(start))
    if start.startswith("-") and start[1:].isdecimal():
        return lambda cluster, places, ends: _before_end(cluster, ends, int(start[1:]))
    ago_ms = duration_ms(start)
    moment = int(start[1:]) if start.startswith("@") and start[1:].isdecimal() else moment_ms(start)
    if ago_ms is not None:
        moment = SystemClock().now_ms() - ago_ms
    if moment is not None:
        return lambda cluster, places, ends: _at_time(cluster, ends, moment)
    raise Misuse(
        f"--from {start!r} is no place in a topic",
        "it is beginning, end, an offset, -N, a time (2026-01-31T12:00, @MILLISECONDS) or how long ago (15m)",
    )


def _before_end(cluster: Cluster, ends: Offsets, count: int) -> Offsets:
    starts = cluster.offsets_at(dict.fromkeys(ends, EARLIEST))
    return {place: max(starts[place], end - count) for place, end in ends.items()}


def _at_time(cluster: Cluster, ends: Offsets, time_ms: int) -> Offsets:
    found = cluster.offsets_at(dict.fromkeys(ends, time_ms))
    return {place: end if found[place] < 0 else found[place] for place, end in ends.items()}
