"""The real Pulsar client that the commands use, and its errors in words.

pulsar-client (C++ underneath) does the talking.  It retries a dead address in silence for as long as it is
allowed to, so an address is probed first; and its errors name results, so they become a CommandError.
It is not installed with the broker: `pip install 'anabranch[pulsar]'` brings it.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from anabranch.cli.failure import CommandError, Misuse

KNOCK_SECONDS = 3.0
ANSWER_SECONDS = 15
DEFAULT_SERVICE = "127.0.0.1:6650"

Service = Annotated[
    str,
    typer.Option(
        "--service",
        "-s",
        metavar="HOST:PORT",
        envvar="ANABRANCH_SERVICE",
        help="A broker's port for Pulsar clients.",
    ),
]
Pulsar = Annotated[bool, typer.Option("--pulsar", help="Speak Pulsar's protocol.")]


def library() -> Any:
    """The client's module."""
    try:
        import pulsar
    except ImportError:
        raise CommandError(
            "Pulsar's client is not installed", "pip install 'anabranch[pulsar]', or leave --pulsar away"
        ) from None
    return pulsar


@contextmanager
def connected(service: str) -> Iterator[Any]:
    """A client, closed in the end; its errors come as CommandErrors."""
    _reach(service)
    pulsar = library()
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")  # what matters comes back as an error
    client = pulsar.Client(f"pulsar://{service}", operation_timeout_seconds=ANSWER_SECONDS, logger=quiet)
    try:
        yield client
    except pulsar.PulsarException as error:
        raise in_words(error, service) from error
    finally:
        client.close()


def in_words(error: Exception, service: str) -> CommandError:
    what = str(error).removeprefix("Pulsar error: ")
    name = type(error).__name__
    if name == "TopicNotFound":
        return CommandError(f"the topic is not there ({what})", "tenant and namespace must exist, too")
    if name in ("ConnectError", "Timeout", "Retryable"):
        return CommandError(f"{service} does not answer as a Pulsar broker does ({what})")
    return CommandError(what if what == name else f"{name}: {what}")


def _reach(service: str) -> None:
    host, colon, port = service.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Misuse(f"--service {service!r} is not HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
    except OSError:
        raise CommandError(
            f"no broker answers at {service}",
            "start one with `anabranch standalone`, or name another with --service HOST:PORT",
        ) from None
