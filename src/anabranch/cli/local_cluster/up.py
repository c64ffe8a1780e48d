"""Up: the process of a local cluster's supervisor, from its start to its end.

    read the folder -> start the processes -> ready file, banner -> wait -> stop them

The first SIGTERM or SIGINT, or `anabranch cluster down`, stops all cleanly; the second signal ends the
supervisor where it stands, and the processes with it.
"""

import asyncio
import json
import logging
import os
import platform
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from anabranch import __version__
from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError, InvalidConfig
from anabranch.cli.broker_options import name_value
from anabranch.cli.failure import CommandError, Misuse
from anabranch.cli.local_cluster.control import Control
from anabranch.cli.local_cluster.plan import (
    BROKER,
    CLUSTER_FILE,
    READY_FILE,
    SUPERVISOR_LOG,
    Wanted,
    founded,
    replication_defaults,
)
from anabranch.cli.local_cluster.ports import FreePorts
from anabranch.cli.local_cluster.supervisor import Supervisor
from anabranch.cli.serving import announce, retract, stop_on_signal
from anabranch.partition.folders import LOCK, DataFolderLock
from anabranch.partition.meta_properties import META_PROPERTIES
from anabranch.server.config_file import load

_LOCALHOST = "127.0.0.1"
_LOOK_S = 0.02
_PROTOCOLS = {"kafka": "Kafka", "pulsar": "Pulsar", "http": "HTTP", "zookeeper": "ZooKeeper"}


def run_cluster(wanted: Wanted, started: float, *, detach: bool = False, verbose: bool = False) -> int:
    """Run a local cluster until it is told to stop; with `detach`, in a process of its own.

    With `verbose` stderr is told what becomes of its processes, too, not only trouble.
    """
    if wanted.brokers is not None and wanted.brokers < 1:
        raise Misuse(f"a cluster cannot have {wanted.brokers} brokers")
    if (wanted.data / META_PROPERTIES).exists():
        raise Misuse(
            f"{wanted.data} is the data folder of a broker, a cluster has one folder for each",
            "choose another one with --data; `anabranch cluster adopt` makes that broker one of a cluster",
        )
    wanted.data.mkdir(parents=True, exist_ok=True)
    try:
        lock = DataFolderLock(DirectDisk(), wanted.data)
    except AnabranchError as error:
        down = f"a cluster that runs there is stopped by: anabranch cluster down --data {wanted.data}"
        raise CommandError(str(error), down) from error
    said_before = os.path.getsize(said) if (said := wanted.data / SUPERVISOR_LOG).exists() else 0
    if detach and (pid := os.fork()):
        lock.release()
        return _wait_for(pid, wanted.data, said_before)
    if detach:
        (wanted.data / LOCK).write_text(f"{os.getpid()}\n")  # the lock is ours now
        _leave_the_terminal(wanted.data / SUPERVISOR_LOG)
    _log_to(None if detach else wanted.data / SUPERVISOR_LOG, verbose)
    try:
        asyncio.run(_supervise(wanted, started))
    finally:
        lock.release()
    return 0


async def _supervise(wanted: Wanted, started: float) -> None:
    told_to_stop = stop_on_signal()
    ready_files = [file.absolute() for file in (wanted.data / READY_FILE, wanted.ready_file) if file]
    for file in ready_files:
        retract(file)
    data = wanted.data.absolute()
    ports = FreePorts(wanted.host or _LOCALHOST)
    supervisor = _supervisor(wanted, ports, told_to_stop)
    os.chdir(data)
    control = Control(supervisor)
    await control.open()
    try:
        if not await _started(supervisor, told_to_stop):
            return
        addresses = _addresses(supervisor, wanted.host or _LOCALHOST)
        for file in ready_files:
            announce(file, addresses, data, processes=supervisor.rows())
        print(banner(addresses, data, f"serves after {time.monotonic() - started:.2f} s"), flush=True)
        await told_to_stop.wait()
        print("stopping", flush=True)
    except AnabranchError as error:
        raise CommandError(str(error)) from error
    finally:
        for file in ready_files:
            retract(file)
        await supervisor.stop()
        await control.close()
        ports.close()
    print("stopped", flush=True)


async def _started(supervisor: Supervisor, told_to_stop: asyncio.Event) -> bool:
    """False if it was told to stop before all served."""
    starting: asyncio.Future[Any] = asyncio.ensure_future(supervisor.start())
    told: asyncio.Future[Any] = asyncio.ensure_future(told_to_stop.wait())
    await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done():
        starting.cancel()
        return False
    starting.result()
    return True


def _supervisor(wanted: Wanted, ports: FreePorts, told_to_stop: asyncio.Event) -> Supervisor:
    file = wanted.data / CLUSTER_FILE
    try:
        cluster = founded(file.read_bytes() if file.exists() else None, wanted)
        settings = dict(name_value(text) for text in wanted.settings)
        told = load(wanted.config, os.environ, settings).layers.static
        usual = replication_defaults(len(cluster.brokers))
        defaults = {name: value for name, value in usual.items() if name not in told}
        host_id = told.get("host.id") or platform.node()
        here = replace(wanted, data=wanted.data.absolute())
        return Supervisor(here, cluster, host_id, defaults, ports, told_to_stop)
    except InvalidConfig as error:
        raise Misuse(str(error), "docs/configuration.md lists the settings") from error
    except AnabranchError as error:
        raise CommandError(str(error)) from error


def _addresses(supervisor: Supervisor, host: str) -> dict[str, str]:
    """Where clients find the cluster, by protocol."""
    shown = f"[{host}]" if ":" in host else host
    brokers = [row["ports"] for row in supervisor.rows() if row["role"] == BROKER]
    by_protocol = {
        protocol: ",".join(f"{shown}:{ports[protocol]}" for ports in brokers if protocol in ports)
        for protocol in ("kafka", "pulsar", "http")
    }
    told = {protocol: text for protocol, text in by_protocol.items() if text}
    if "http" in told:
        told["http"] = told["http"].partition(",")[0]  # a URL has one address; any broker will do
    return {**told, "zookeeper": supervisor.zookeeper}


def banner(addresses: dict[str, str], data: Path, how: str) -> str:
    count = addresses["kafka"].count(",") + 1
    return "\n".join(
        [
            f"anabranch {__version__}: a cluster of {count} {how}",
            *(f"  {title:<9} {addresses[name]}" for name, title in _PROTOCOLS.items() if name in addresses),
            f"  {'data':<9} {data}",
            f"  {'look':<9} anabranch cluster status --data {data}",
            f"  {'stop':<9} anabranch cluster down --data {data}",
        ]
    )


def _wait_for(pid: int, data: Path, said_before: int) -> int:
    """Wait until the supervisor `pid` serves, and say so; or why not, as its log does after so many bytes."""
    while True:
        ready: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            ready = json.loads((data / READY_FILE).read_bytes())
        if ready.get("pid") == pid:
            addresses = {name: ready[name] for name in _PROTOCOLS if name in ready}
            print(banner(addresses, data.absolute(), f"serves, supervisor is process {pid}"), flush=True)
            return 0
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            raise _why_not((data / SUPERVISOR_LOG).read_bytes()[said_before:], data, status)
        time.sleep(_LOOK_S)


def _why_not(said: bytes, data: Path, status: int) -> CommandError:
    """Of the end of a supervisor in the background: what it said at last, as it would in the foreground."""
    code = max(1, os.waitstatus_to_exitcode(status))
    why = f"\n{said.decode(errors='replace')}".rpartition("\nanabranch: ")[2].rstrip()
    return CommandError(f"the cluster did not start: {why}", f"more is in {data / SUPERVISOR_LOG}", code)


def _leave_the_terminal(output: Path) -> None:
    os.setsid()
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDONLY)
    said = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for fd, ours in ((null, 0), (said, 1), (said, 2)):
        os.dup2(fd, ours)


def _log_to(file: Path | None, verbose: bool) -> None:
    """Trouble is told on stderr, all of it in the file; without one, or if `verbose`, all on stderr."""
    shown = logging.StreamHandler()
    shown.setLevel(logging.INFO if file is None or verbose else logging.WARNING)
    handlers: list[logging.Handler] = [shown]
    if file is not None:
        handlers.append(logging.FileHandler(file))
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.handlers.clear()
    for handler in handlers:
        handler.setFormatter(form)
        root.addHandler(handler)
