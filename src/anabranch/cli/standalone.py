"""`anabranch standalone`: a broker in this process, until a signal stops it.

    read the configuration -> start the node -> ready file, banner -> wait -> stop the node

The first SIGTERM or SIGINT stops it cleanly: no new work, answers in flight, flush, checkpoint.  The
second ends the process where it stands, as kill -9 would, which the log survives.

Nothing that a broker does not need is imported here before it serves: half a second is all there is.

Exit codes: 0 stopped when told to, 1 could not start or broke down, 2 asked for wrongly.
"""

import argparse
import asyncio
import errno
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch import __version__
from anabranch.base.errors import AnabranchError, InvalidConfig
from anabranch.cli.failure import CommandError, Misuse
from anabranch.node import Node, this_machine
from anabranch.server.config import BrokerConfig
from anabranch.server.config_file import load
from anabranch.server.config_tables import ROOT as TABLES_ROOT

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(arguments: list[str], started: float) -> int:
    """`started`, on the monotonic clock, is when the process began."""
    options = _parser().parse_args(arguments)
    _log_to_stderr(options.verbose)
    config = _configuration(options)
    with asyncio.Runner(loop_factory=_new_loop()) as runner:
        runner.run(_serve(config, options.ready_file, started))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anabranch standalone",
        description="Run a broker on this machine until it is told to stop (Ctrl-C, SIGTERM).",
        epilog="Settings are taken from --config, then ANABRANCH_* variables, then --set; the last wins. "
        "Names are Kafka's and Pulsar's: --set log.retention.hours=24",
    )
    parser.add_argument("--data", metavar="DIR", help="data folder (default: ./anabranch-data)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--kafka-port", type=int, metavar="PORT", help="for Kafka clients (default: 9092; 0: any free one)"
    )
    parser.add_argument(
        "--pulsar-port",
        type=int,
        metavar="PORT",
        help="for Pulsar clients (default: 6650; 0: any free one, -1: none)",
    )
    parser.add_argument(
        "--http-port", type=int, metavar="PORT", help="for HTTP (default: 8080; 0: any free one, -1: none)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings, .properties or .toml")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeatable"
    )
    parser.add_argument("--ready-file", type=Path, metavar="PATH", help="written, as JSON, once it serves")
    parser.add_argument(
        "--verbose", "-v", action="store_true", help="log what the broker does, not only trouble"
    )
    return parser


def _log_to_stderr(verbose: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _configuration(options: argparse.Namespace) -> BrokerConfig:
    overrides = dict(_name_value(text) for text in options.set)
    if options.data is not None:
        overrides["log.dirs"] = options.data
    try:
        config = load(options.config, os.environ, overrides)
        overrides |= _other_ports(options, config)
        if options.host is not None or options.kafka_port is not None:
            configured = config.sockets.bind
            host = configured.host if options.host is None else options.host
            port = configured.port if options.kafka_port is None else options.kafka_port
            overrides["listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
        overrides[TABLES_ROOT] = config.tables_root
        config = load(options.config, os.environ, overrides)
    except InvalidConfig as error:
        raise Misuse(str(error), "docs/configuration.md lists the settings") from error
    return config


def _other_ports(options: argparse.Namespace, config: BrokerConfig) -> dict[str, str]:
    """Ports beside Kafka's: as told, or any free one where Kafka's is any and nobody says otherwise."""
    told = {"brokerServicePort": options.pulsar_port, "webServicePort": options.http_port}
    return {
        name: str(0 if port is None else port)
        for name, port in told.items()
        if port is not None or (options.kafka_port == 0 and name not in config.layers.static)
    }


def _name_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Misuse(f"--set {text!r} is not NAME=VALUE")
    return name, value


def _new_loop() -> type[asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.Loop


async def _serve(config: BrokerConfig, ready_file: Path | None, started: float) -> None:
    told_to_stop = _stop_on_signal()
    _retract(ready_file)  # one that was left behind would speak of another process
    node = Node(config, this_machine())
    try:
        await node.start()
    except (AnabranchError, OSError) as error:
        raise _why_not(error, config) from error
    try:
        _announce(ready_file, node.addresses, config)
        print(_banner(node.addresses, config, time.monotonic() - started), flush=True)
        await _end_of(node, told_to_stop)
        print("stopping", flush=True)
    finally:
        _retract(ready_file)
        await node.stop()
    print("stopped", flush=True)


async def _end_of(node: Node, told_to_stop: asyncio.Event) -> None:
    """Wait until somebody wants it to end.  CommandError if it ended by itself."""
    assert node.failed is not None, "the node has started"
    told: asyncio.Future[Any] = asyncio.ensure_future(told_to_stop.wait())
    ends: set[asyncio.Future[Any]] = {told, node.failed}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if node.failed.done() and (error := node.failed.exception()) is not None:
        _log.critical("the broker broke down", exc_info=error)
        raise CommandError(f"the broker broke down: {error}", "its data is sound; start it again") from error


def _stop_on_signal() -> asyncio.Event:
    """Set by the first signal; the second one ends the process."""
    told = asyncio.Event()

    def signalled(number: int) -> None:
        if told.is_set():
            os._exit(128 + number)
        told.set()

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signalled, number)
    return told


def _why_not(error: Exception, config: BrokerConfig) -> CommandError:
    listener = config.sockets.bind
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        port, flag = _taken(str(error), config)
        return CommandError(
            f"{listener.host}:{port} is taken by another process",
            f"stop that one, or choose another port: {flag} PORT (0: any free one)",
        )
    if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
        return CommandError(f"this machine has no address {listener.host}", "choose another: --host ADDRESS")
    if isinstance(error, PermissionError):
        return CommandError(f"not allowed: {error}", f"is {config.node.data_dir.absolute()} yours to write?")
    return CommandError(str(error))


def _taken(complaint: str, config: BrokerConfig) -> tuple[int, str]:
    """The port that a complaint of the event loop is about, and the flag that chooses it."""
    flags = {
        config.pulsar.broker_service_port: "--pulsar-port",
        config.pulsar.web_service_port: "--http-port",
    }
    for port, flag in flags.items():
        if f", {port})" in complaint or f", {port}," in complaint:
            return port, flag
    return config.sockets.bind.port, "--kafka-port"


def _announce(ready_file: Path | None, addresses: Mapping[str, str], config: BrokerConfig) -> None:
    """Write the ready file in one step: whoever sees it sees all of it."""
    if ready_file is None:
        return
    ready = {
        "pid": os.getpid(),
        **addresses,
        "data": str(config.node.data_dir.absolute()),
        "version": __version__,
    }
    beside = ready_file.with_name(f"{ready_file.name}.{os.getpid()}.tmp")
    beside.write_text(json.dumps(ready) + "\n", encoding="utf-8")
    beside.replace(ready_file)


def _retract(ready_file: Path | None) -> None:
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)


def _banner(addresses: Mapping[str, str], config: BrokerConfig, seconds: float) -> str:
    kafka = addresses["kafka"]
    others = [
        f"  {title:<6} {addresses[name]}"
        for name, title in (("pulsar", "Pulsar"), ("http", "HTTP"))
        if name in addresses
    ]
    return "\n".join(
        [
            f"anabranch {__version__} serves after {seconds:.2f} s",
            f"  Kafka  {kafka}",
            *others,
            f"  data   {config.node.data_dir.absolute()}",
            f"  try    echo hello | anabranch produce greetings --bootstrap {kafka}",
            f"         anabranch consume greetings --follow --bootstrap {kafka}",
            f"  stop   Ctrl-C, or: kill {os.getpid()}",
        ]
    )
