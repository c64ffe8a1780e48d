"""`anabranch consume --pulsar`: messages of a topic to standard output, through Pulsar's own client.

Without a subscription it reads as Pulsar's readers do: nobody's position moves, and without --follow it
is done at the end that the topic has.  With --subscription NAME it is a consumer of that, and
acknowledges what it has printed.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Annotated, Any

import typer

from anabranch.base.clock import SystemClock
from anabranch.cli.failure import Misuse
from anabranch.cli.options import duration_ms, moment_ms
from anabranch.cli.pulsar_client import DEFAULT_SERVICE, Pulsar, Service, connected, library
from anabranch.cli.render import Columns, Shown, as_json, as_text

_POLL_MS = 200
_QUIET_MS = 1000  # a subscription has no end; without --follow this long without a message is one


def _shown(message: Any) -> Shown:
    id = message.message_id()
    return Shown(
        str(message.topic_name()),
        max(0, int(id.partition())),
        int(id.entry_id()) + max(0, int(id.batch_index())),
        message.event_timestamp() or message.publish_timestamp(),
        False,
        message.partition_key() or None,
        bytes(message.data()),
        sorted(message.properties().items()),
    )


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where from.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, a time (2026-01-31T12:00, @MILLISECONDS) or how long ago (15m, 2h).",
        ),
    ] = "beginning",
    subscription: Annotated[
        str | None, typer.Option("--subscription", "-S", help="Consume as this one, and acknowledge.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One object a line.")] = False,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="Show keys.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", "-o", help="Show partition:offset.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Show timestamps.")] = False,
    headers: Annotated[bool, typer.Option("--headers", "-H", help="Show properties.")] = False,
    service: Service = DEFAULT_SERVICE,
    pulsar: Pulsar = True,
) -> None:
    """Print the messages of a topic."""
    columns = Columns(timestamps, offsets, headers, keys)
    render: Callable[[Shown], bytes] = as_json if json_ else lambda record: as_text(record, columns)
    since_ms = _since_ms(start)
    stop = _on_interrupt()
    with connected(service) as client:
        source = (
            _read(client, topic, start, since_ms, follow, stop)
            if subscription is None
            else _consume(client, topic, subscription, start, follow, stop)
        )
        for written, message in enumerate(source, 1):
            sys.stdout.buffer.write(render(_shown(message)))
            if follow:
                sys.stdout.buffer.flush()
            if written == limit:
                break
        sys.stdout.buffer.flush()


def _read(
    client: Any, topic: str, start: str, since_ms: int | None, follow: bool, stop: Callable[[], bool]
) -> Iterator[Any]:
    place = library().MessageId
    reader = client.create_reader(topic, place.latest if start == "end" else place.earliest)
    if since_ms is not None:
        reader.seek(since_ms)
    while not stop() and (follow or reader.has_message_available()):
        message = _next(lambda: reader.read_next(_POLL_MS))
        if message is not None:
            yield message


def _consume(
    client: Any, topic: str, subscription: str, start: str, follow: bool, stop: Callable[[], bool]
) -> Iterator[Any]:
    positions = library().InitialPosition
    consumer = client.subscribe(
        topic,
        subscription,
        library().ConsumerType.Shared,
        initial_position=positions.Latest if start == "end" else positions.Earliest,
    )
    wait_ms = _POLL_MS if follow else _QUIET_MS
    while not stop():
        message = _next(lambda: consumer.receive(wait_ms))
        if message is not None:
            yield message
            consumer.acknowledge(message)
        elif not follow:
            return


def _next(receive: Callable[[], Any]) -> Any:
    """The next message, None if none came in time."""
    try:
        return receive()
    except library().Timeout:
        return None


def _since_ms(start: str) -> int | None:
    """The time that --from names, None if it names an end.  Misuse if it means nothing."""
    if start in ("beginning", "end"):
        return None
    ago_ms = duration_ms(start)
    if ago_ms is not None:
        return SystemClock().now_ms() - ago_ms
    moment = int(start[1:]) if start.startswith("@") and start[1:].isdecimal() else moment_ms(start)
    if moment is None:
        raise Misuse(
            f"--from {start!r} is no place in a topic",
            "it is beginning, end, a time (2026-01-31T12:00, @MILLISECONDS) or how long ago (15m)",
        )
    return moment


def _on_interrupt() -> Callable[[], bool]:
    """Ctrl-C and SIGTERM end the reading, not the process in mid-line.  Says whether one came."""
    came: list[int] = []

    def remember(signum: int, frame: FrameType | None) -> None:
        came.append(signum)

    signal.signal(signal.SIGINT, remember)
    signal.signal(signal.SIGTERM, remember)
    return lambda: bool(came)
