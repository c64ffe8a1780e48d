"""The metadata store over a real ZooKeeper: links that break, sessions that end, servers that come back."""

import asyncio
import json
import logging
import os
import random
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.states import KeeperState

from anabranch.base.errors import Conflict, Invalid, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.topics import TopicDefaults
from anabranch.meta import paths
from anabranch.meta.documents import ConfigDocument, TenantDocument, encode
from anabranch.meta.image import NO_BROKER, BrokerImage, ClusterImage
from anabranch.meta.session import SessionState
from anabranch.meta.store import MUST_NOT_EXIST, Check, Create, Event, EventKind, Put
from anabranch.meta.zookeeper import ZooKeeperStore
from tests.support.broker import without_settings
from tests.support.metadata import content
from tests.support.waiting import until
from tests.support.zookeeper import CuttingProxy, ZooKeeperServer
from tests.unit.cluster.test_cluster import FixedClock, no_bad_config

pytestmark = pytest.mark.jvm

SHORT_MS = 1000  # the shortest that our server grants; it ends within half a second more
LONG_MS = 60_000
CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED

Open = Callable[..., Awaitable[ZooKeeperStore]]


@pytest.fixture
def chroot(zookeeper: ZooKeeperServer) -> str:
    return zookeeper.chroot().removeprefix(zookeeper.address)


@pytest.fixture
async def connect(zookeeper: ZooKeeperServer, chroot: str) -> AsyncIterator[Open]:
    """Stores of one chroot; by way of the proxy, if it is given."""
    stores: list[ZooKeeperStore] = []

    async def open_store(timeout_ms: int = LONG_MS, by: CuttingProxy | None = None) -> ZooKeeperStore:
        address = zookeeper.address if by is None else by.address
        # A busy machine may take longer to answer than a session is to last.
        store = await ZooKeeperStore.connect(address + chroot, timeout_ms, connect_timeout_ms=60_000)
        stores.append(store)
        return store

    yield open_store
    for store in reversed(stores):
        await store.close()


@pytest.fixture
async def proxy(zookeeper: ZooKeeperServer) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(zookeeper.address)
    await proxy.open()
    yield proxy
    await proxy.close()


def states_of(store: ZooKeeperStore) -> list[tuple[SessionState, int]]:
    """Where the states that its session goes through, and the id in each, will be."""
    seen: list[tuple[SessionState, int]] = []
    store.session.subscribe(lambda state: seen.append((state, store.session.id)))
    return seen


async def expire(proxy: CuttingProxy, store: ZooKeeperStore, other: ZooKeeperStore, path: str) -> None:
    """Cut it off until its ephemeral node `path` is gone, as another session sees it."""
    proxy.cut()
    gone = asyncio.Event()
    stop = await other.watch(path, lambda event: gone.set() if event.kind is EventKind.DELETED else None)
    if await other.get(path) is not None:
        await asyncio.wait_for(gone.wait(), 60)
    stop()
    assert await other.get(path) is None
    await until(lambda: store.session.state is SUSPENDED)


async def test_a_link_that_breaks_for_a_moment_costs_no_session(
    connect: Open, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anabranch.meta")
    store, other = await connect(by=proxy), await connect()
    await store.create("/brokers/1", b"", ephemeral=True)
    id, seen = store.session.id, states_of(store)
    heard: list[Event] = []
    await store.watch("/t", heard.append)
    certain = store.session.certain_until
    assert time.monotonic() < certain
    proxy.cut()
    await until(lambda: store.session.state is SUSPENDED)
    for call in (store.get("/t"), store.put("/t", b""), store.scan("/"), store.multi([Create("/t", b"")])):
        with pytest.raises(Unavailable, match="answers"):
            await call
    await other.put("/t/unseen", b"1")
    assert store.session.certain_until < certain + LONG_MS, "as it was: nobody answered"
    proxy.heal()
    await until(lambda: heard)
    assert seen == [(SUSPENDED, id), (CONNECTED, id)]
    assert heard == [Event(EventKind.MISSED, "/t")]
    assert content(await store.get("/t/unseen")) == (b"1", 0)
    assert await other.get("/brokers/1") is not None
    await other.put("/t/seen", b"")
    await until(lambda: heard[1:])
    assert heard[1:] == [Event(EventKind.CREATED, "/t/seen")]
    told = [record.getMessage() for record in caplog.records]
    assert sum(": opened at" in line for line in told) == 2
    assert sum(": suspended, " in line for line in told) == 1
    assert sum(": connected again in time" in line for line in told) == 1


async def test_a_server_that_lags_catches_up_before_it_is_scanned(
    connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await connect()
    asked: list[str] = []
    call = store._link.call

    async def noted(request: Any) -> Any:
        asked.append(type(request).__name__)
        return await call(request)

    monkeypatch.setattr(store._link, "call", noted)
    assert await store.scan("/nothing") == []
    assert asked[:2] == ["Sync", "MultiRead"]


async def test_after_a_session_has_ended_there_is_another(
    connect: Open, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anabranch.meta")
    store, other = await connect(SHORT_MS, proxy), await connect()
    await store.create("/brokers/1", b"old", ephemeral=True)
    await store.put("/kept", b"")
    old, seen = store.session.id, states_of(store)
    heard: list[Event] = []
    await store.watch("/", heard.append)
    await expire(proxy, store, other, "/brokers/1")
    assert store.session.certain_until < time.monotonic()
    await other.delete("/kept")
    proxy.heal()
    await until(lambda: len(seen) == 3)
    new = store.session.id
    assert seen == [(SUSPENDED, old), (EXPIRED, old), (CONNECTED, new)]
    assert new != old
    await until(lambda: heard)
    assert heard == [Event(EventKind.MISSED, "/")]
    assert await store.create("/brokers/1", b"new", ephemeral=True) == "/brokers/1"
    made = await other.get("/brokers/1")
    assert made is not None
    assert made.owner == new
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert ": lost, " in told
    assert f"{new & (1 << 64) - 1:#x}: opened in place of metadata session {old & (1 << 64) - 1:#x}" in told


async def test_how_long_it_is_certain_that_a_session_lives(connect: Open) -> None:
    before = time.monotonic()
    store = await connect(SHORT_MS)
    granted_s = SHORT_MS / 1000 * 2 / 3
    for _ in range(3):
        await store.get("/")
        sent = time.monotonic()
        await store.get("/nothing")
        assert sent + granted_s <= store.session.certain_until <= time.monotonic() + granted_s
    assert before < store.session.certain_until
    last = store.session.certain_until
    await until(lambda: store.session.certain_until > last)  # pings do it, too
    await store.close()
    assert store.session.certain_until < before


SLEEPER = """
import asyncio, json, sys, time
from anabranch.meta.zookeeper import ZooKeeperStore

def say(**what):
    print(json.dumps(what), flush=True)

async def main():
    store = await ZooKeeperStore.connect(sys.argv[1], int(sys.argv[2]), connect_timeout_ms=60_000)
    await store.create("/sleeper", b"", ephemeral=True)
    session = store.session
    first = session.id
    session.subscribe(lambda state: say(state=state.value, is_new=session.id != first))
    slept, last = False, time.monotonic()
    say(began=True)
    while session.id == first:
        now, certain = time.monotonic(), session.certain_until
        if now - last > float(sys.argv[3]) and not slept:
            slept = True
            say(certain=now < certain, connected=session.state.value)
        last = now
        await asyncio.sleep(0)
    await store.create("/sleeper", b"", ephemeral=True)
    say(back=True)

asyncio.run(main())
"""


async def test_a_process_that_was_stopped_knows_at_once_that_it_is_in_doubt(
    zookeeper: ZooKeeperServer, connect: Open, chroot: str
) -> None:
    other = await connect()
    gone = asyncio.Event()
    await other.watch(
        "/sleeper", lambda event: gone.set() if event.kind is EventKind.DELETED else gone.clear()
    )
    sleeper = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SLEEPER, zookeeper.address + chroot, str(SHORT_MS), str(SHORT_MS / 1000)),
        stdout=asyncio.subprocess.PIPE,
        env=without_settings(),
    )

    async def said() -> dict[str, Any]:
        assert sleeper.stdout is not None
        line = await asyncio.wait_for(sleeper.stdout.readline(), 120)
        told: dict[str, Any] = json.loads(line)
        return told

    try:
        told = await said()
        while "began" not in told:
            told = await said()
        os.kill(sleeper.pid, signal.SIGSTOP)
        await asyncio.wait_for(gone.wait(), 60)
        os.kill(sleeper.pid, signal.SIGCONT)
        lines = [await said()]
        while "back" not in lines[-1]:
            lines.append(await said())
        assert await sleeper.wait() == 0
    finally:
        if sleeper.returncode is None:
            sleeper.kill()
            await sleeper.wait()
    doubts = [line for line in lines if "certain" in line]
    assert doubts
    assert not doubts[0]["certain"]
    states = [(line["state"], line["is_new"]) for line in lines if "state" in line]
    assert states[-3:] == [("suspended", False), ("expired", False), ("connected", True)]


async def test_a_server_that_was_stopped_is_found_again(
    zookeeper: ZooKeeperServer, connect: Open, chroot: str
) -> None:
    store, other = await connect(), await connect()
    await store.put(paths.tenant("kept"), encode(TenantDocument()))
    await store.put(paths.tenant("gone"), encode(TenantDocument()))
    watcher = ImageWatcher(store, ClusterImage(cluster_id="c"))
    await watcher.start()
    following = asyncio.create_task(watcher.run())
    id, seen = store.session.id, states_of(store)
    await asyncio.to_thread(zookeeper.stop)
    await until(lambda: store.session.state is SUSPENDED)
    with pytest.raises(Unavailable):
        await watcher.refresh(paths.tenant("kept"))
    assert set(watcher.image.tenants) == {"kept", "gone"}
    await asyncio.to_thread(zookeeper.start)
    await until(lambda: store.session.state is CONNECTED)
    await until(lambda: other.session.state is CONNECTED)
    assert seen == [(SUSPENDED, id), (CONNECTED, id)]
    await other.put(paths.tenant("new"), encode(TenantDocument()))
    await until(lambda: set(watcher.image.tenants) == {"kept", "gone", "new"})
    following.cancel()
    await asyncio.wait([following])


async def test_an_image_is_in_step_after_changes_that_nobody_told_of(
    connect: Open, proxy: CuttingProxy
) -> None:
    store, other = await connect(by=proxy), await connect()
    for name in ("kept", "gone", "changed"):
        await other.put(paths.tenant(name), encode(TenantDocument()))
    await other.put(paths.DEFAULT_BROKER_CONFIG, encode(ConfigDocument({"a": "1"})))
    watcher = ImageWatcher(store, ClusterImage(cluster_id="c"))
    await watcher.start()
    following = asyncio.create_task(watcher.run())
    await other.put(paths.tenant("seen"), encode(TenantDocument()))
    await until(lambda: "seen" in watcher.image.tenants)
    proxy.cut()
    await until(lambda: store.session.state is SUSPENDED)
    for path in (paths.tenant("gone"), paths.tenant("seen"), paths.DEFAULT_BROKER_CONFIG):
        await other.delete(path)
    await other.put(paths.tenant("changed"), encode(TenantDocument(["admin"])))
    await other.put(paths.tenant("new"), encode(TenantDocument()))
    kept = watcher.image.tenants["kept"]
    assert set(watcher.image.tenants) == {"kept", "gone", "changed", "seen"}
    proxy.heal()
    await until(lambda: "new" in watcher.image.tenants)
    assert set(watcher.image.tenants) == {"kept", "changed", "new"}
    assert watcher.image.tenants["changed"].admin_roles == ["admin"]
    assert watcher.image.tenants["kept"] is kept, "what has not changed is the same object"
    assert not watcher.image.default_broker_config
    following.cancel()
    await asyncio.wait([following])


async def test_sessions_see_each_others_changes_and_fence_each_other(connect: Open) -> None:
    one, other = await connect(), await connect()
    heard: list[Event] = []
    await other.watch("/", heard.append)
    assert await one.multi([Put("/epoch", b"1", MUST_NOT_EXIST), Create("/state", b"a")]) == [0, "/state"]
    await until(lambda: len(heard) == 2)
    assert await other.multi([Check("/epoch", 0), Put("/state", b"b", 0)]) == [None, 1]
    assert await other.put("/epoch", b"2", 0) == 1
    with pytest.raises(Conflict):
        await one.multi([Check("/epoch", 0), Put("/state", b"lost", 1)])
    assert content(await one.get("/state")) == (b"b", 1)


async def test_a_controller_that_lost_its_session_is_deposed_and_stands_again(
    connect: Open, proxy: CuttingProxy
) -> None:
    async def join(id: int, store: ZooKeeperStore) -> Cluster:
        cluster = await Cluster.open(
            store, BrokerId(id), FixedClock(), random.Random(id), TopicDefaults(1, 1), no_bad_config
        )
        await cluster.register_broker(BrokerImage(BrokerId(id), "127.0.0.1", 9090 + id))
        return cluster

    store, other_store = await connect(SHORT_MS, proxy), await connect()
    one, other = await join(1, store), await join(2, other_store)
    assert (one.controller.epoch, other.controller.epoch) == (0, None)
    running = [asyncio.create_task(cluster.run()) for cluster in (one, other)]
    proxy.cut()
    await until(lambda: other.controller.epoch == 1)
    proxy.heal()
    await until(lambda: store.session.state is CONNECTED and one.controller.epoch is None)
    await until(lambda: one.image.controller_id == BrokerId(2))
    await other_store.close()
    await until(lambda: one.controller.epoch == 2)
    await until(lambda: one.image.controller_id != NO_BROKER)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_what_is_asked_for_while_the_link_breaks_is_done_or_not(
    connect: Open, proxy: CuttingProxy
) -> None:
    """Read before you try again: what failed may be there, and what did not fail must be."""
    store, other = await connect(by=proxy), await connect()
    done: set[int] = set()
    failed: set[int] = set()

    async def write(number: int) -> None:
        while True:
            try:
                await store.create(f"/n/{number:05}", b"")
            except Unavailable:
                failed.add(number)
                return
            done.add(number)
            number += 1

    writes = [asyncio.create_task(write(1000 * writer)) for writer in range(20)]
    await until(lambda: len(done) > 200)
    proxy.cut()
    await asyncio.gather(*writes)
    there = {int(name) for name in await other.children("/n")}
    assert len(failed) == 20
    assert done <= there
    assert there <= done | failed


async def test_what_is_asked_for_before_we_hear_that_the_link_broke_fails(
    connect: Open, proxy: CuttingProxy
) -> None:
    """kazoo knows by then; it would keep the request for the next connection."""
    store, other = await connect(by=proxy), await connect()
    client = store._link._client
    proxy.cut()
    await asyncio.sleep(0)
    deadline = time.monotonic() + 60
    while client.client_state == KeeperState.CONNECTED and time.monotonic() < deadline:
        time.sleep(0.001)  # noqa: ASYNC251  the loop does not hear of it
    assert store.session.state is CONNECTED
    asked = asyncio.create_task(store.create("/late", b""))
    with pytest.raises(Unavailable):
        await asyncio.wait_for(asked, 60)
    proxy.heal()
    await until(lambda: store.session.state is CONNECTED)
    assert await store.get("/late") is None
    assert await other.get("/late") is None


async def test_it_is_said_when_no_server_answers(tmp_path: Path) -> None:
    with pytest.raises(
        Unavailable, match=r"no ZooKeeper server at 127\.0\.0\.1:1 answers within 0\.3 s: .*refused"
    ):
        await ZooKeeperStore.connect("127.0.0.1:1/x", 4000, connect_timeout_ms=300)


class OldServer:
    """Speaks as much of the protocol as a ZooKeeper that knows no request for the watch.

    With `nonsense` its first answer is to another request than it was asked.
    """

    def __init__(self, nonsense: bool = False) -> None:
        self._nonsense = nonsense
        self._sessions = 0
        self.address = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._request(reader)
        self._sessions += 1
        self._answer(writer, struct.pack("!iiqi16sB", 0, 4000, self._sessions, 16, bytes(16), 0))
        with suppress(asyncio.IncompleteReadError):
            while True:
                xid, kind = struct.unpack_from("!ii", await self._request(reader))
                is_mistaken, self._nonsense = self._nonsense, False
                error = 0 if kind in (11, -11) or self._sessions > 1 else -6
                self._answer(writer, struct.pack("!iqi", xid + 77 * is_mistaken, 1, error))
        writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        writer.write(len(answer).to_bytes(4, "big") + answer)


async def test_a_server_without_the_watch_is_refused() -> None:
    server = OldServer()
    await server.open()
    with pytest.raises(Invalid, match=r"is too old; version 3\.6 or newer is needed"):
        await ZooKeeperStore.connect(server.address, 4000)
    await server.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_answers_that_make_no_sense_cost_the_session_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = OldServer(nonsense=True)
    await server.open()
    store = await ZooKeeperStore.connect(server.address, 4000)
    assert store.session.id == 2
    assert "given up, the client broke down; a new one is started" in caplog.text
    await store.close()
    await server.close()


@pytest.mark.parametrize("hosts", ["", "host:port", "127.0.0.1:1/a//b", "127.0.0.1:1/../b"])
async def test_addresses_that_are_none(hosts: str) -> None:
    with pytest.raises(Invalid):
        await ZooKeeperStore.connect(hosts, 4000)


async def test_without_a_chroot_zookeepers_own_nodes_are_not_shown(zookeeper: ZooKeeperServer) -> None:
    store = await ZooKeeperStore.connect(zookeeper.address, LONG_MS, connect_timeout_ms=60_000)
    heard: list[Event] = []
    await store.watch("/", heard.append)
    await store.put("/plain", b"")
    assert "zookeeper" not in await store.children("/")
    assert "plain" in await store.children("/")
    assert not [path for path, _ in await store.scan("/") if path in ("/", "/zookeeper")]
    await store.delete("/plain")
    assert [event for event in heard if event.path == "/plain"] == [
        Event(EventKind.CREATED, "/plain"),
        Event(EventKind.DELETED, "/plain"),
    ]
    await store.close()


async def test_a_scan_is_of_everything_however_much_there_is(connect: Open) -> None:
    store = await connect()
    for folder in range(3):
        await store.multi([Create(f"/f{folder}/{i:05}", b"%d" % i) for i in range(700)])
    found = await store.scan("/")
    assert len(found) == 3 * 701
    assert [path for path, _ in found] == sorted(path for path, _ in found)
    assert found[1][1].data == b"0"
    assert len(await store.scan("/f1")) == 701
