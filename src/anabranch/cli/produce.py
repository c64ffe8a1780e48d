"""`anabranch produce`: lines in, records out.

Lines come from --value, --file or standard input, and are sent as they come (`delivery`): what is on its way
is bounded, and more of it makes us wait, so a file of any size passes through.
"""

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.client import connected, in_words
from anabranch.cli.client_options import produce_settings
from anabranch.cli.delivery import Delivery, KeyValue
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientOptions, Json, name_values
from anabranch.cli.output import print_json
from anabranch.client.settings import Settings
from anabranch.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

_PROGRESS_SECONDS = 0.2
_NEW_TOPIC_S = 3.0  # how long a topic that is not there may take to come into being
_ANY_PARTITION = -1
_READ_BYTES = 1 << 16


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


_CODECS = {
    Compression.NONE: NONE,
    Compression.GZIP: GZIP,
    Compression.SNAPPY: SNAPPY,
    Compression.LZ4: LZ4,
    Compression.ZSTD: ZSTD,
}
_ACKS = {Acks.NONE: 0, Acks.LEADER: 1, Acks.ALL: -1}

Destination = Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")]
Values = Annotated[
    list[str] | None,
    typer.Option("--value", "-v", help="Send this; repeatable. Without it, lines are read."),
]
InputFile = Annotated[
    Path | None, typer.Option("--file", "-f", help="Read lines from here instead of standard input.")
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="The key of all that is sent.")]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="What stands between key and value on a line.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header, or property; repeatable."),
]


def key_value(line: bytes, separator: str | None, key: str | None, null: str | None) -> KeyValue:
    """What a line stands for.  A line without the separator is a value alone, under `key` if there is one."""
    own_key: bytes | None = None if key is None else key.encode()
    if separator is not None and separator.encode() in line:
        own_key, _, line = line.partition(separator.encode())
    return KeyValue(own_key, None if null is not None and line == null.encode() else line)


def produce(
    topic: Destination,
    value: Values = None,
    file: InputFile = None,
    key: Key = None,
    separator: KeySeparator = None,
    header: Headers = None,
    null: Annotated[
        str | None, typer.Option("--null", help="A value spelled like this is sent as null, a tombstone.")
    ] = None,
    partition: Annotated[int, typer.Option("--partition", "-p", help="-1: by key.")] = _ANY_PARTITION,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", "-a", help="Who must have it.")] = Acks.ALL,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="Never twice, never out of order.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
    as_json: Json = False,
    client_options: ClientOptions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send records: a line of input or --value each.  Over Pulsar's protocol: produce --pulsar --help."""
    if value and file:
        raise Misuse("--value and --file exclude each other")
    if idempotent and acks is not Acks.ALL:
        raise Misuse("--idempotent needs --acks all")
    headers = [(name, text.encode()) for name, text in name_values(header or [], "--header").items()]
    how = produce_settings(client_options or [])
    settings = Settings(bootstrap, how.client_id, how.timeout_ms / 1000, _NEW_TOPIC_S)
    started = time.monotonic()
    with connected(bootstrap, settings) as cluster:
        delivery = Delivery(cluster, topic, how, _ACKS[acks], _CODECS[compression])
        delivery.partition = None if partition == _ANY_PARTITION else partition
        delivery.headers = headers
        if idempotent:
            delivery.identify()
        lines = [text.encode() for text in value] if value else input_lines(file, delivery.catch_up)
        records = (key_value(line, separator, key, null) for line in lines)
        _send_all(delivery, records, show=not (quiet or as_json))
    summary = delivery.summary(time.monotonic() - started)
    if as_json:
        print_json(summary)
    elif not quiet:
        print(_in_words(summary), file=sys.stderr)
    _raise_failures(delivery, bootstrap)


def _raise_failures(delivery: Delivery, bootstrap: str) -> None:
    if delivery.first_failure is None:
        return
    reason = in_words(delivery.first_failure, bootstrap)
    lost = "1 record was" if delivery.failed == 1 else f"{delivery.failed:,} records were"
    raise CommandError(f"{lost} not sent: {reason.args[0]}", reason.next_step)


def input_lines(file: Path | None, before_waiting: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    """Lines without their line feed.  `before_waiting` is called when there is nothing to read now."""
    if file is None:
        if sys.stdin.isatty():
            print("one record a line, Ctrl-D to end", file=sys.stderr)
        yield from _lines_of(sys.stdin.fileno(), before_waiting)
        return
    try:
        with file.open("rb") as opened:
            yield from (line.removesuffix(b"\n") for line in opened)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from error


def _lines_of(descriptor: int, before_waiting: Callable[[], None]) -> Iterator[bytes]:
    begun: list[bytes] = []  # of a line whose end is still to come
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            before_waiting()
        piece = os.read(descriptor, _READ_BYTES)
        if not piece:
            break
        first, *following = piece.split(b"\n")
        begun.append(first)
        if following:
            yield b"".join(begun)
            yield from following[:-1]
            begun = following[-1:]
    if any(begun):
        yield b"".join(begun)


def _send_all(delivery: Delivery, records: Iterable[KeyValue], show: bool) -> None:
    """Send every record; on a terminal that is not also typing them, show how far we are."""
    show = show and sys.stderr.isatty() and not sys.stdin.isatty()
    shown = started = time.monotonic()
    try:
        for record in records:
            delivery.send(record)
            if delivery.is_hopeless:
                break
            if show and time.monotonic() - shown > _PROGRESS_SECONDS:
                shown = time.monotonic()
                rate = delivery.sent / (shown - started)
                print(
                    f"\r{delivery.sent:,} records, {rate:,.0f}/s\x1b[K", end="", file=sys.stderr, flush=True
                )
    except KeyboardInterrupt:
        pass  # no more, but what was read is still sent
    delivery.catch_up()
    if show:
        print("\r\x1b[K", end="", file=sys.stderr)


def _in_words(summary: dict[str, Any]) -> str:
    places = ", ".join(
        f"partition {place['partition']} offsets {place['first']}..{place['last']}"
        if place["first"] != place["last"]
        else f"partition {place['partition']} offset {place['first']}"
        for place in summary["partitions"]
    )
    records = "1 record" if summary["sent"] == 1 else f"{summary['sent']:,} records"
    return f"sent {records} to {summary['topic']}" + (f" ({places})" if places else "")
