"""The network between the brokers of a local cluster, and to its ZooKeeper: whatever goes over it can be cut.

    network = Network(data, port, [1, 2, 3])    # the data folder of the cluster, and ZooKeeper's port
    network.settings(2)                         # where broker 2 listens, and says that others reach it
    network.open()
    network.connect(ZOOKEEPER, 1, 2, 3)
    network.cut(1, 2)                           # nothing that 1 sends arrives at 2; what 2 sends still does
    network.part(1, ZOOKEEPER)                  # neither way
    network.isolate(3)                          # from all other brokers, and from ZooKeeper if that is said
    network.heal()

A cut is silent, as that of a cable: nobody hears that a connection is over, what was sent waits, and arrives
late, once it is healed.  With `reset` the connections break, those of before and those that are tried.

Each broker, and ZooKeeper, has a proxy that others connect to.  Who connects is found out by the process that
the other end of the connection belongs to (Linux only).  A proxy refuses connections when nobody listens
behind it, so that a process that died is seen as such.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.broker import hold_port

ZOOKEEPER = 0
"""Stands for it beside the brokers' ids."""

_LOCALHOST = "127.0.0.1"
_LISTENS, _OPEN = "0A", "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_DYING_S = 0.005
_PAUSE_S = 0.05
_PIECE_BYTES = 1 << 16
_DATA_OF = re.compile(rb"--data\0([^\0]+)/broker-(\d+)/data\0")

Way = tuple[int, int]
"""From whom to whom."""


class Network:
    def __init__(self, data: Path, zookeeper: int, brokers: Iterable[int]) -> None:
        """`zookeeper` is its port."""
        self._whose = _Owners(data)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._ways: dict[Way, _Way] = {}
        self._targets = {ZOOKEEPER: zookeeper} | {broker: hold_port(self) for broker in brokers}
        self._proxies = {target: _Proxy(target, port, self) for target, port in self._targets.items()}

    def open(self) -> None:
        self._thread.start()

    def connect(self, *targets: int) -> None:
        """These brokers, or ZooKeeper, are about to listen."""
        self._run(self._connect(targets))

    def close(self) -> None:
        self.heal()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def zookeeper(self) -> str:
        """Where brokers find it."""
        return f"{_LOCALHOST}:{self._proxies[ZOOKEEPER].port}"

    def settings(self, broker: int) -> dict[str, str]:
        """What the broker is told, so that others come through its proxy."""
        clients = f"PLAINTEXT://{_LOCALHOST}:0"  # whatever port it is given for them
        return {
            "listeners": f"{clients},BROKERS://{_LOCALHOST}:{self._targets[broker]}",
            "advertised.listeners": f"{clients},BROKERS://{_LOCALHOST}:{self._proxies[broker].port}",
            "inter.broker.listener.name": "BROKERS",
        }

    # --- faults

    def cut(self, source: int, target: int, *, reset: bool = False) -> None:
        """Nothing that `source` sends arrives at `target`."""
        self._run(self._cut([(source, target)], reset=reset))

    def part(self, one: int, other: int, *, reset: bool = False) -> None:
        """Neither hears of the other."""
        self._run(self._cut([(one, other), (other, one)], reset=reset))

    def isolate(self, broker: int, *, zookeeper: bool = False, reset: bool = False) -> None:
        others = [one for one in self._targets if one != broker and (zookeeper or one != ZOOKEEPER)]
        ways = [(broker, one) for one in others] + [(one, broker) for one in others]
        self._run(self._cut(ways, reset=reset))

    def heal(self) -> None:
        self._run(self._heal())

    # --- on the loop

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _connect(self, targets: Iterable[int]) -> None:
        for target in targets:
            await self._proxies[target].open()

    async def _close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self, ways: Iterable[Way], *, reset: bool) -> None:
        for way in ways:
            self.way(way).cut(reset=reset)

    async def _heal(self) -> None:
        for way in self._ways.values():
            way.heal()

    def way(self, way: Way) -> "_Way":
        return self._ways.setdefault(way, _Way())

    async def source_of(self, port: int, proxy: int) -> int | None:
        """The broker that has connected from `port` to `proxy`."""
        return await self._loop.run_in_executor(None, self._whose.broker, port, proxy)


class _Way:
    """From one end to another; what goes there waits while it is cut."""

    def __init__(self) -> None:
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._aborts: set[Callable[[], None]] = set()
        self.resets = False

    def cut(self, *, reset: bool) -> None:
        self._is_open.clear()
        self.resets = reset
        if reset:
            for abort in list(self._aborts):
                abort()

    def heal(self) -> None:
        self.resets = False
        self._is_open.set()

    async def copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Until there is no more, or somebody aborts."""
        self._aborts.add(target.transport.abort)
        try:
            while data := await source.read(_PIECE_BYTES):
                await self._is_open.wait()
                target.write(data)
                await target.drain()
            await self._is_open.wait()
        finally:
            self._aborts.discard(target.transport.abort)


class _Proxy:
    def __init__(self, target: int, port: int, network: Network) -> None:
        self._target = target
        self._behind = port
        self._network = network
        self.port = hold_port(self)
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """As soon as somebody listens behind it."""
        self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._refuse()
        for task in self._serving:
            task.cancel()

    async def _look(self) -> None:
        """Wait until somebody listens, then accept."""
        while True:
            if _rows(_LISTENS, self._behind):
                break
            await asyncio.sleep(_PAUSE_S)
        self._server = await asyncio.start_server(self._serve, _LOCALHOST, self.port)
        self._looking = None

    def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _look_again(self) -> None:
        """Is there still somebody?"""
        await asyncio.sleep(_DYING_S)  # what dies closes one socket after the other
        if self._server is not None and not _rows(_LISTENS, self._behind):
            self._refuse()
            self._looking = asyncio.create_task(self._look())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            source = await self._network.source_of(writer.get_extra_info("peername")[1], self.port)
            ways = [self._network.way((source, self._target)), self._network.way((self._target, source))]
            if source is None or any(way.resets for way in ways):
                return
            from_there, there = await asyncio.open_connection(_LOCALHOST, self._behind)
            to, back = (ways[0].copy(reader, there), ways[1].copy(from_there, writer))
            copying = [asyncio.create_task(to), asyncio.create_task(back)]
            self._serving.update(copying)
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            for one in copying:
                one.cancel()
            self._serving.difference_update(copying)
        except OSError:
            pass
        finally:
            with suppress(asyncio.CancelledError):
                await self._look_again()
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()
            self._serving.discard(task)


class _Owners:
    """The brokers that sockets of this machine belong to."""

    def __init__(self, data: Path) -> None:
        self._data = os.fsencode(data.absolute())

    def broker(self, port: int, remote: int) -> int | None:
        for inode in _rows(_OPEN, port, remote):
            for broker, process in self._processes():
                with suppress(OSError):
                    if any(_link(fd) == f"socket:[{inode}]" for fd in (process / "fd").iterdir()):
                        return broker
        return None

    def _processes(self) -> Iterable[tuple[int, Path]]:
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with suppress(OSError):
                    found = _DATA_OF.search((process / "cmdline").read_bytes())
                    if found is not None and found[1] == self._data:
                        yield int(found[2]), process


def _link(path: Path) -> str:
    with suppress(OSError):
        return os.readlink(path)
    return ""


def _rows(state: str, port: int, remote: int = 0) -> list[str]:
    """The inodes of the sockets in this state at a local and a remote port."""
    found = []
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            here, there = (int(end.rpartition(":")[2], 16) for end in fields[1:3])
            if fields[3] == state and (here, there) == (port, remote):
                found.append(fields[9])
    return found
