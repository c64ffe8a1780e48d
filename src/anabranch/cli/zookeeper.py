"""`anabranch zookeeper`: a real ZooKeeper server in the foreground, until a signal stops it.

    find Java and the jars -> write its configuration -> start it -> it answers: ready file, banner -> wait

The first SIGTERM or SIGINT stops it cleanly, the second at once; its log survives both.  It is a child
process of this one, and ends with it: in the same process group, its own id beside ours in the ready file.

A server of an ensemble answers once more than half of the servers are up, and is ready then.

Exit codes: 0 stopped when told to, 1 could not start or broke down, 2 asked for wrongly.
"""

import argparse
import asyncio
import ctypes
import json
import os
import re
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from anabranch import __version__
from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError, Invalid
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.zookeeper_server import Server, command_of, prepare
from anabranch.partition.folders import DataFolderLock

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ASK_AGAIN_S = 0.05
_ANSWER_S = 2.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def run(arguments: list[str], started: float) -> int:
    """`started`, on the monotonic clock, is when the process began."""
    options = _parser().parse_args(arguments)
    server = _server(options)
    try:
        command = command_of(server)
    except Invalid as error:
        raise CommandError(str(error)) from error
    _check_port(server)
    try:
        lock = DataFolderLock(DirectDisk(), server.data)  # two servers in one would damage each other's log
        prepare(server, is_verbose=options.verbose)
    except AnabranchError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(
            f"the data folder cannot be used: {error}", "choose another: --data DIR"
        ) from error
    try:
        asyncio.run(_serve(server, command, options.ready_file, started))
    finally:
        lock.release()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anabranch zookeeper",
        description="Run a ZooKeeper server on this machine until it is told to stop (Ctrl-C, SIGTERM).",
        epilog="An ensemble of three: start each with its own --id, --data and --port, and all with the same "
        "--server HOST:PEER_PORT:ELECTION_PORT three times, in order of the ids.",
    )
    parser.add_argument(
        "--data", type=Path, default=Path("anabranch-zookeeper"), metavar="DIR", help="data folder"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=2181, help="for brokers (default: 2181; 0: any free one)")
    parser.add_argument("--id", type=int, metavar="N", help="which server of the ensemble this is, from 1 on")
    parser.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="HOST:PEER_PORT:ELECTION_PORT",
        help="a server of the ensemble; repeat it for each, the first is that of --id 1",
    )
    parser.add_argument("--ready-file", type=Path, metavar="PATH", help="written, as JSON, once it serves")
    parser.add_argument("--verbose", "-v", action="store_true", help="show the server's whole log")
    return parser


def _server(options: argparse.Namespace) -> Server:
    ensemble = options.server
    for address in ensemble:
        if not re.fullmatch(r"[^\s]+:\d+:\d+", address):
            raise Misuse(f"--server {address!r} is not HOST:PEER_PORT:ELECTION_PORT")
    if ensemble and options.id is None:
        raise Misuse(f"which of the {len(ensemble)} servers is this?", "say so with --id N, from 1 on")
    if ensemble and not 1 <= options.id <= len(ensemble):
        raise Misuse(f"--id {options.id} is none of the {len(ensemble)} servers", "--id counts from 1 on")
    if len(ensemble) == 2:
        raise Misuse("an ensemble of two is down when one of them is", "give one --server, or three")
    return Server(options.data, options.host, options.port or _free_port(), options.id or 1, ensemble)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _check_port(server: Server) -> None:
    """Before the server finds out, whose words for it are forty lines long."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    try:
        socket.create_server((server.host, server.port), family=family).close()
    except OSError as error:
        raise CommandError(
            f"{server.host}:{server.port} cannot be listened on: {error.strerror}",
            "choose another: --port PORT (0: any free one) or --host ADDRESS",
        ) from error


async def _serve(server: Server, command: list[str], ready_file: Path | None, started: float) -> None:
    _retract(ready_file)  # one that was left behind would speak of another process
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_die_with_parent
    )
    told = _stop_on_signal(process.kill)
    ended = asyncio.create_task(process.wait())
    stop = asyncio.create_task(told.wait())
    ready = asyncio.create_task(_wait_until_it_answers(server))
    try:
        await asyncio.wait({ended, stop, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and not stop.done() and not ended.done():
            _announce(ready_file, server, process, ready.result())
            print(_banner(server, ready.result(), time.monotonic() - started), flush=True)
            await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not told.is_set():
            raise CommandError(
                f"the ZooKeeper server ended by itself, with code {process.returncode}",
                f"what it said is above, more with --verbose; its data is in {server.data}",
            )
        print("stopping", flush=True)
    finally:
        _retract(ready_file)
        ready.cancel()
        stop.cancel()
        await _end(process)
    print("stopped", flush=True)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_on_signal(kill: Callable[[], None]) -> asyncio.Event:
    """Set by the first signal; the second one ends both processes."""
    told = asyncio.Event()

    def signalled(number: int) -> None:
        if told.is_set():
            with suppress(ProcessLookupError):
                kill()
            os._exit(128 + number)
        told.set()

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signalled, number)
    return told


async def _wait_until_it_answers(server: Server) -> str:
    """Its mode: standalone, leader or follower."""
    while True:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                said = await _ask(_EVERYWHERE.get(server.host, server.host), server.port)
            if mode := re.search(r"^Mode: (\w+)", said, re.MULTILINE):
                return mode[1]
        await asyncio.sleep(_ASK_AGAIN_S)


async def _ask(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"srvr")
        return (await reader.read(-1)).decode("utf-8", "replace")
    finally:
        writer.close()


def _address(server: Server) -> str:
    host = _EVERYWHERE.get(server.host, server.host)
    return f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"


def _announce(ready_file: Path | None, server: Server, process: Process, mode: str) -> None:
    """Write the ready file in one step: whoever sees it sees all of it."""
    if ready_file is None:
        return
    ready = {
        "pid": os.getpid(),
        "server_pid": process.pid,
        "id": server.id,
        "zookeeper": _address(server),
        "mode": mode,
        "data": str(server.data.absolute()),
        "version": __version__,
    }
    beside = ready_file.with_name(f"{ready_file.name}.{os.getpid()}.tmp")
    beside.write_text(json.dumps(ready) + "\n", encoding="utf-8")
    beside.replace(ready_file)


def _retract(ready_file: Path | None) -> None:
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)


def _banner(server: Server, mode: str, seconds: float) -> str:
    return "\n".join(
        [
            f"ZooKeeper serves after {seconds:.2f} s, {mode}",
            f"  address  {_address(server)}",
            f"  data     {server.data.absolute()}",
            f"  try      anabranch broker --id 1 --zookeeper {_address(server)} --data broker-1",
            f"  stop     Ctrl-C, or: kill {os.getpid()}",
        ]
    )
