"""`anabranch produce --pulsar`: lines in, messages out, through Pulsar's own client.

As `produce`, with what Pulsar has: properties for headers, and its own codecs.
"""

import sys
import threading
import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from anabranch.cli.delivery import KeyValue
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.options import Json, name_values
from anabranch.cli.output import print_json
from anabranch.cli.produce import (
    Destination,
    Headers,
    InputFile,
    Key,
    KeySeparator,
    Values,
    input_lines,
    key_value,
)
from anabranch.cli.pulsar_client import DEFAULT_SERVICE, Pulsar, Service, connected, library


class Compression(StrEnum):
    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"
    ZSTD = "zstd"
    SNAPPY = "snappy"


_CODECS = {"none": "NONE", "lz4": "LZ4", "zlib": "ZLib", "zstd": "ZSTD", "snappy": "SNAPPY"}


class Delivery:
    """Sends messages and remembers what became of them.  The client calls back from a thread of its own."""

    def __init__(self, producer: Any, properties: dict[str, str]) -> None:
        self._producer = producer
        self._properties = properties
        self._lock = threading.Lock()
        self.sent = self.failed = 0
        self.first_failure = ""

    def send(self, record: KeyValue) -> None:
        key = None if record.key is None else record.key.decode("utf-8", "replace")
        self._producer.send_async(
            record.value or b"", self._done, properties=self._properties, partition_key=key
        )

    def _done(self, result: Any, id: Any) -> None:
        with self._lock:
            if result == library().Result.Ok:
                self.sent += 1
            else:
                self.failed += 1
                self.first_failure = self.first_failure or str(result).rpartition(".")[2]

    def send_all(self, records: Iterable[KeyValue]) -> None:
        try:
            for record in records:
                self.send(record)
        except KeyboardInterrupt:
            pass  # no more, but what was read is still sent
        self._producer.flush()


def produce(
    topic: Destination,
    value: Values = None,
    file: InputFile = None,
    key: Key = None,
    separator: KeySeparator = None,
    header: Headers = None,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
    as_json: Json = False,
    service: Service = DEFAULT_SERVICE,
    pulsar: Pulsar = True,
) -> None:
    """Send messages: one a line of standard input, of a file, or given by --value."""
    if value and file:
        raise Misuse("--value and --file exclude each other")
    started = time.monotonic()
    with connected(service) as client:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            block_if_queue_full=True,
            compression_type=getattr(library().CompressionType, _CODECS[compression]),
        )
        delivery = Delivery(producer, name_values(header or [], "--header"))
        lines = [text.encode() for text in value] if value else input_lines(file)
        delivery.send_all(key_value(line, separator, key, None) for line in lines)
    _report(topic, delivery, time.monotonic() - started, quiet=quiet, as_json=as_json)


def _report(topic: str, delivery: Delivery, seconds: float, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        told = {
            "topic": topic,
            "sent": delivery.sent,
            "failed": delivery.failed,
            "seconds": round(seconds, 3),
        }
        print_json(told)
    elif not quiet:
        messages = "1 message" if delivery.sent == 1 else f"{delivery.sent:,} messages"
        print(f"sent {messages} to {topic}", file=sys.stderr)
    if delivery.failed:
        raise CommandError(f"{delivery.failed:,} were not sent: {delivery.first_failure}")
