"""`anabranch produce`: lines in, records out.

Lines come from --value, --file or standard input, and are sent as they come: the client's queue is
bounded, and a full queue makes us wait, so a file of any size passes through.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.cli.client import in_words, producer
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientOptions, Json, name_values
from anabranch.cli.output import print_json

_PROGRESS_SECONDS = 0.2
_NEW_TOPIC_MS = 3000  # how long a topic that is not there may take to come into being; librdkafka has 30 s
_ANY_PARTITION = -1  # librdkafka's RD_KAFKA_PARTITION_UA


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


class KeyValue(NamedTuple):
    key: bytes | None
    value: bytes | None


def key_value(line: bytes, separator: str | None, key: str | None, null: str | None) -> KeyValue:
    """What a line stands for.  A line without the separator is a value alone, under `key` if there is one."""
    own_key: bytes | None = None if key is None else key.encode()
    if separator is not None and separator.encode() in line:
        own_key, _, line = line.partition(separator.encode())
    return KeyValue(own_key, None if null is not None and line == null.encode() else line)


class Delivery:
    """Sends records and remembers what became of them."""

    def __init__(
        self, client: Producer, topic: str, partition: int, headers: list[tuple[str, bytes]]
    ) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self.sent = 0
        self.offsets: dict[int, tuple[int, int]] = {}
        self.failed = 0
        self.first_failure: KafkaError | None = None

    def send(self, record: KeyValue) -> None:
        while not self._queued(record):
            self._client.poll(0.1)
        self._client.poll(0)

    def _queued(self, record: KeyValue) -> bool:
        """Hand a record to the client.  False if its queue is full."""
        try:
            self._client.produce(
                self._topic,
                value=record.value,
                key=record.key,
                partition=self._partition,
                headers=self._headers,
                on_delivery=self._delivered,
            )
        except BufferError:
            return False
        except KafkaException as refused:  # too large for the client itself
            self._failed(refused.args[0])
        return True

    @property
    def hopeless(self) -> bool:
        """The broker has not taken a record in all the time it was given; the next would fare no better."""
        return self.first_failure is not None and self.first_failure.code() == KafkaError._MSG_TIMED_OUT

    def finish(self) -> None:
        """Wait until every record was acknowledged or given up."""
        if self.hopeless:
            self._client.purge()
        while self._client.flush(1.0):
            pass

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed(error)
            return
        self.sent += 1
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            first, last = self.offsets.get(partition, (offset, offset))
            self.offsets[partition] = (min(first, offset), max(last, offset))

    def _failed(self, error: KafkaError) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or error

    def summary(self, seconds: float) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "sent": self.sent,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "partitions": [
                {"partition": partition, "first": first, "last": last}
                for partition, (first, last) in sorted(self.offsets.items())
            ],
        }


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
    client = producer(
        bootstrap,
        {
            "compression.type": str(compression),
            "acks": str(acks),
            "enable.idempotence": idempotent,
            "topic.metadata.propagation.max.ms": _NEW_TOPIC_MS,
            **name_values(client_options or [], "--client-option"),
        },
    )
    delivery = Delivery(client, topic, partition, headers)
    started = time.monotonic()
    lines = [text.encode() for text in value] if value else input_lines(file)
    _send_all(
        delivery, (key_value(line, separator, key, null) for line in lines), show=not (quiet or as_json)
    )
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


def input_lines(file: Path | None) -> Iterator[bytes]:
    """Lines without their line feed."""
    if file is None:
        if sys.stdin.isatty():
            print("one record a line, Ctrl-D to end", file=sys.stderr)
        yield from (line.removesuffix(b"\n") for line in sys.stdin.buffer)
        return
    try:
        with file.open("rb") as opened:
            yield from (line.removesuffix(b"\n") for line in opened)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from error


def _send_all(delivery: Delivery, records: Iterable[KeyValue], show: bool) -> None:
    """Send every record; on a terminal that is not also typing them, show how far we are."""
    show = show and sys.stderr.isatty() and not sys.stdin.isatty()
    shown = started = time.monotonic()
    try:
        for record in records:
            delivery.send(record)
            if delivery.hopeless:
                break
            if show and time.monotonic() - shown > _PROGRESS_SECONDS:
                shown = time.monotonic()
                rate = delivery.sent / (shown - started)
                print(
                    f"\r{delivery.sent:,} records, {rate:,.0f}/s\x1b[K", end="", file=sys.stderr, flush=True
                )
    except KeyboardInterrupt:
        pass  # no more, but what was read is still sent
    delivery.finish()
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
