"""A ZooKeeper server as people run it, `anabranch zookeeper`, and a way to cut brokers off from it.

zookeeper          one server for all tests of a session; each takes a chroot of its own
end_session        that of whoever made an ephemeral node
CuttingProxy       between a client and a server: cut, and healed, without either of them ending
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.broker import hold_port, without_settings
from tests.support.command import PROGRAM

READY_TIMEOUT_S = 240.0  # as a test has, at most; a JVM starts slowly where many do
_chroots = count(1)


class ZooKeeperServer:
    """It has the same port and data for as long as this object lives."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self._ready = folder / "ready.json"
        self._port = hold_port(self)
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "log.txt"
        self.address = f"127.0.0.1:{self._port}"
        self.ready: dict[str, Any] = {}

    def chroot(self) -> str:
        """Where a store has it all for itself."""
        return f"{self.address}/tests/{os.getpid()}-{next(_chroots)}"

    def start(self) -> None:
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it without waiting until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ready.unlink(missing_ok=True)
        arguments = ["--data", str(self._folder / "data"), "--port", str(self._port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "zookeeper", *arguments, "--ready-file", str(self._ready), *self._arguments],
                env=without_settings(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._ready.exists():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        self.ready = json.loads(self._ready.read_text())

    def stop(self) -> int:
        """Tell it to stop; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.exit_code()

    def exit_code(self) -> int:
        """When it has ended."""
        assert self._process is not None
        return self._process.wait(READY_TIMEOUT_S)

    def kill(self) -> None:
        """kill -9, if it was started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, KeyError):
            os.kill(self.ready["server_pid"], signal.SIGKILL)
        self._process.kill()
        self._process.wait(READY_TIMEOUT_S)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


def end_session(address: str, path: str) -> None:
    """End the session that the ephemeral node `path` belongs to; its client hears that it is over.

    Whoever knows a session's password may join it and close it, and the server makes passwords from ids.
    """
    client = KazooClient(address)
    client.start(READY_TIMEOUT_S)
    try:
        session = client.get(path)[1].ephemeralOwner
    finally:
        client.stop()
        client.close()
    other = KazooClient(address, client_id=(session, _password_of(session)))
    other.start(READY_TIMEOUT_S)
    other.stop()
    other.close()


def _password_of(session: int) -> bytes:
    """`SessionTrackerImpl`'s: 16 bytes of java.util.Random, whose seed is the id xor a constant."""
    state = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password


class CuttingProxy:
    """Forwards connections to a server until it is cut."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.address = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def cut(self) -> None:
        """Break what there is, and whatever comes."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        self._is_cut = False

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        host, _, port = self._target.rpartition(":")
        there, to_there = await asyncio.open_connection(host, int(port))
        ours = {writer, to_there}
        self._writers |= ours
        await asyncio.gather(_copy(reader, to_there), _copy(there, writer))
        self._writers -= ours


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
