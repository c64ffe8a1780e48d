"""`anabranch consume`: records out of a topic, from anywhere in it, to standard output.

Partitions are assigned by hand, so no group is involved and nobody else's position moves.  Without
--follow a partition is done at the end it had when we got there; with it we wait for more.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from types import FrameType
from typing import Annotated, BinaryIO

import typer
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, TopicPartition

from anabranch.base.clock import SystemClock
from anabranch.cli.client import ANSWER_SECONDS, consumer, failures_in_words, in_words, topic_metadata
from anabranch.cli.failure import Misuse
from anabranch.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ClientOptions,
    duration_ms,
    moment_ms,
    name_values,
)
from anabranch.cli.render import Columns, as_json, as_text

_BATCH = 500
_POLL_SECONDS = 0.2
_FOLLOWING_WAIT_MS = 500
_ENDING_WAIT_MS = 10


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
    client = consumer(
        bootstrap,
        {
            "group.id": "anabranch-cli",  # librdkafka wants one; it is never used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": str(isolation),
            # The end of a partition is known once a fetch there has waited in vain.
            "fetch.wait.max.ms": _FOLLOWING_WAIT_MS if follow else _ENDING_WAIT_MS,
            **name_values(client_options or [], "--client-option"),
        },
    )
    try:
        places = _places(client, bootstrap, topic, partition or [], start)
        with failures_in_words(bootstrap):
            client.assign(places)
        stop = _on_interrupt()
        for written, record in enumerate(_records(client, bootstrap, len(places), follow, stop), 1):
            _write(sys.stdout.buffer, render(record), follow)
            if written == limit:
                break
        sys.stdout.buffer.flush()
    finally:
        client.close()


def _renderer(json_wanted: bool, columns: Columns) -> Callable[[Message], bytes]:
    return as_json if json_wanted else lambda message: as_text(message, columns)


def _write(out: BinaryIO, line: bytes, at_once: bool) -> None:
    out.write(line)
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


def _records(
    client: Consumer, bootstrap: str, partitions: int, follow: bool, stop: Callable[[], bool]
) -> Iterator[Message]:
    """Records as they come, until every partition was read to its end, or for ever."""
    at_end: set[int | None] = set()
    while not stop():
        if not follow and len(at_end) == partitions:
            return
        for message in client.consume(_BATCH, _POLL_SECONDS):
            error = message.error()
            if error is None:
                if message.partition() not in at_end or follow:
                    yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise in_words(error, bootstrap)


def _places(
    client: Consumer, bootstrap: str, topic: str, wanted: list[int], start: str
) -> list[TopicPartition]:
    """The partitions to read and where each begins."""
    there = sorted(topic_metadata(client, bootstrap, topic).partitions)
    absent = sorted(set(wanted) - set(there))
    if absent:
        raise Misuse(f"{topic} has no partition {absent[0]}", f"it has partitions {there[0]} to {there[-1]}")
    places = [TopicPartition(topic, partition) for partition in sorted(set(wanted)) or there]
    locate = _locator(start)
    with failures_in_words(bootstrap):
        return [locate(client, place) for place in places]


def _locator(start: str) -> Callable[[Consumer, TopicPartition], TopicPartition]:
    """How `--from` finds its place in a partition.  Misuse if it means nothing."""
    if start in ("beginning", "end"):
        fixed = OFFSET_BEGINNING if start == "beginning" else OFFSET_END
        return lambda client, place: _at(place, fixed)
    if start.isdecimal():
        return lambda client, place: _at(place, int(start))
    if start.startswith("-") and start[1:].isdecimal():
        return lambda client, place: _before_end(client, place, int(start[1:]))
    ago_ms = duration_ms(start)
    if ago_ms is not None:
        return lambda client, place: _at_time(client, place, SystemClock().now_ms() - ago_ms)
    moment = int(start[1:]) if start.startswith("@") and start[1:].isdecimal() else moment_ms(start)
    if moment is not None:
        return lambda client, place: _at_time(client, place, moment)
    raise Misuse(
        f"--from {start!r} is no place in a topic",
        "it is beginning, end, an offset, -N, a time (2026-01-31T12:00, @MILLISECONDS) or how long ago (15m)",
    )


def _at(place: TopicPartition, offset: int) -> TopicPartition:
    return TopicPartition(place.topic, place.partition, offset)


def _before_end(client: Consumer, place: TopicPartition, count: int) -> TopicPartition:
    first, end = client.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
    return _at(place, max(first, end - count))


def _at_time(client: Consumer, place: TopicPartition, timestamp_ms: int) -> TopicPartition:
    (found,) = client.offsets_for_times([_at(place, timestamp_ms)], timeout=ANSWER_SECONDS)
    if found.error:
        raise in_words(found.error, "the broker")
    return found
