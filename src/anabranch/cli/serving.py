"""Serving: a broker in this process, until a signal stops it; what `standalone` and `broker` have in common.

    start the node -> ready file, banner -> wait -> stop the node

The first SIGTERM or SIGINT stops it cleanly: no new work, answers in flight, flush, checkpoint; a start is
given up and undone.  The second ends the process where it stands, as kill -9 would, which the log survives.

Nothing that a broker does not need is imported here before it serves: half a second is all there is.

Exit codes: 0 stopped when told to, 1 could not start or broke down, 2 asked for wrongly.
"""

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
from anabranch.base.errors import AnabranchError
from anabranch.cli.failure import CommandError
from anabranch.node import Node, this_machine
from anabranch.server.config import BrokerConfig

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(config: BrokerConfig, ready_file: Path | None, started: float) -> int:
    """`started`, on the monotonic clock, is when the process began."""
    with asyncio.Runner(loop_factory=_new_loop()) as runner:
        runner.run(_serve(config, ready_file, started))
    return 0


def _new_loop() -> type[asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.Loop


async def _serve(config: BrokerConfig, ready_file: Path | None, started: float) -> None:
    told_to_stop = stop_on_signal()
    retract(ready_file)  # one that was left behind would speak of another process
    node = Node(config, this_machine(config))
    try:
        serves = await _started(node, told_to_stop)
    except (AnabranchError, OSError) as error:
        raise _why_not(error, config) from error
    if not serves:
        print("stopped before it served", flush=True)
        return
    try:
        announce(ready_file, node.addresses, config.node.data_dir, id=config.node.node_id)
        print(_banner(node.addresses, config, time.monotonic() - started), flush=True)
        await _end_of(node, told_to_stop)
        print("stopping", flush=True)
    finally:
        retract(ready_file)
        await node.stop()
    print("stopped", flush=True)


async def _started(node: Node, told_to_stop: asyncio.Event) -> bool:
    """False if it was told to stop before it served; the start is undone."""
    starting = asyncio.ensure_future(node.start())
    told: asyncio.Future[Any] = asyncio.ensure_future(told_to_stop.wait())
    ends: set[asyncio.Future[Any]] = {starting, told}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done():
        _log.info("told to stop before the broker serves; the start is given up")
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return False
    return True


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


def stop_on_signal() -> asyncio.Event:
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


def announce(ready_file: Path | None, addresses: Mapping[str, Any], data: Path, **more: Any) -> None:
    """Write the ready file in one step: whoever sees it sees all of it."""
    if ready_file is None:
        return
    ready = {
        "pid": os.getpid(),
        **more,
        **addresses,
        "data": str(data.absolute()),
        "version": __version__,
    }
    beside = ready_file.with_name(f"{ready_file.name}.{os.getpid()}.tmp")
    beside.write_text(json.dumps(ready) + "\n", encoding="utf-8")
    beside.replace(ready_file)


def retract(ready_file: Path | None) -> None:
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)


def _banner(addresses: Mapping[str, str], config: BrokerConfig, seconds: float) -> str:
    kafka = addresses["kafka"]
    others = [
        f"  {title:<6} {addresses[name]}"
        for name, title in (("pulsar", "Pulsar"), ("http", "HTTP"))
        if name in addresses
    ]
    store = config.node.zookeeper_connect
    part_of = [] if store is None else [f"  broker {config.node.node_id} of the cluster on ZooKeeper {store}"]
    return "\n".join(
        [
            f"anabranch {__version__} serves after {seconds:.2f} s",
            f"  Kafka  {kafka}",
            *others,
            *part_of,
            f"  data   {config.node.data_dir.absolute()}",
            f"  try    echo hello | anabranch produce greetings --bootstrap {kafka}",
            f"         anabranch consume greetings --follow --bootstrap {kafka}",
            f"  stop   Ctrl-C, or: kill {os.getpid()}",
        ]
    )
