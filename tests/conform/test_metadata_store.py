"""Metadata stores: what every one does.  A new implementation is one more parameter of `opener`."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError, Conflict, Exists, Invalid, NotFound, SessionExpired
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.session import SessionState
from anabranch.meta.store import (
    MAX_DATA_BYTES,
    MUST_NOT_EXIST,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    MetadataStore,
    Operation,
    Put,
    Versioned,
)
from tests.sim.store import SimStore
from tests.support.metadata import content, contents
from tests.support.zookeeper import ZooKeeperServer

Connect = Callable[[MetadataStore | None], Awaitable[MetadataStore]]


class Opener:
    """Opens sessions with one store: each `open` ends those before it, `beside` leaves them."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._sessions: list[MetadataStore] = []

    async def open(self) -> MetadataStore:
        await self.close()
        return await self.beside()

    async def beside(self) -> MetadataStore:
        session = await self._connect(self._sessions[0] if self._sessions else None)
        self._sessions.append(session)
        return session

    async def close(self) -> None:
        while self._sessions:
            await self._sessions.pop().close()


def embedded(folder: Path) -> Opener:
    async def connect(other: MetadataStore | None) -> MetadataStore:
        if isinstance(other, EmbeddedStore):
            return other.new_session()
        return EmbeddedStore.open(folder / "metadata.journal", DirectDisk(max_open=4))

    return Opener(connect)


def over_zookeeper(server: ZooKeeperServer) -> Opener:
    hosts = server.chroot()

    async def connect(other: MetadataStore | None) -> MetadataStore:
        from anabranch.meta.zookeeper import ZooKeeperStore

        return await ZooKeeperStore.connect(hosts, session_timeout_ms=30_000)

    return Opener(connect)


def simulated() -> Opener:
    loop = asyncio.get_running_loop()

    def schedule(when: float, callback: Callable[[], None]) -> None:
        loop.call_soon(callback)

    store = SimStore(schedule, lambda: 0.0)

    async def connect(other: MetadataStore | None) -> MetadataStore:
        return store.connect("test", loop.call_soon)

    return Opener(connect)


@pytest.fixture(params=["embedded", "simulated", pytest.param("zookeeper", marks=pytest.mark.jvm)])
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    if request.param == "embedded":
        opener = embedded(tmp_path)
    elif request.param == "simulated":
        opener = simulated()
    else:
        opener = over_zookeeper(request.getfixturevalue("zookeeper"))
    yield opener
    await opener.close()


@pytest.fixture
async def store(opener: Opener) -> MetadataStore:
    return await opener.open()


async def settled() -> None:
    """Let events that are on their way arrive."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_not_there(store: MetadataStore) -> None:
    assert await store.get("/nothing") is None
    assert await store.children("/nothing") == []
    assert await store.scan("/nothing") == []


async def test_put_makes_and_replaces_and_counts_versions(store: MetadataStore) -> None:
    assert await store.put("/a", b"one") == 0
    assert content(await store.get("/a")) == (b"one", 0)
    assert await store.put("/a", b"two") == 1
    assert await store.put("/a", b"", expected_version=1) == 2
    assert content(await store.get("/a")) == (b"", 2)


async def test_put_refuses_another_version(store: MetadataStore) -> None:
    await store.put("/a", b"one")
    await store.put("/a", b"two")
    for wrong in (0, 2, 99):
        with pytest.raises(Conflict):
            await store.put("/a", b"lost", expected_version=wrong)
    assert content(await store.get("/a")) == (b"two", 1)


async def test_put_at_a_version_does_not_make_a_node(store: MetadataStore) -> None:
    with pytest.raises(Conflict):
        await store.put("/a", b"", expected_version=0)
    assert await store.get("/a") is None


async def test_put_that_must_not_exist(store: MetadataStore) -> None:
    assert await store.put("/a", b"one", MUST_NOT_EXIST) == 0
    with pytest.raises(Exists):
        await store.put("/a", b"two", MUST_NOT_EXIST)
    assert content(await store.get("/a")) == (b"one", 0)


async def test_of_concurrent_creators_one_wins(store: MetadataStore) -> None:
    outcomes = await asyncio.gather(
        *(store.put("/a", b"%d" % i, MUST_NOT_EXIST) for i in range(20)), return_exceptions=True
    )
    assert outcomes.count(0) == 1
    assert sum(isinstance(outcome, Exists) for outcome in outcomes) == 19
    value = await store.get("/a")
    assert value is not None
    assert value.data == b"%d" % outcomes.index(0)


async def test_concurrent_updates_at_a_version_are_not_lost(store: MetadataStore) -> None:
    await store.put("/count", b"0")

    async def increment() -> None:
        while True:
            value = await store.get("/count")
            assert value is not None
            try:
                await store.put("/count", b"%d" % (int(value.data) + 1), value.version)
            except Conflict:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(20)))
    assert content(await store.get("/count")) == (b"20", 20)


async def test_parents_are_made_empty(store: MetadataStore) -> None:
    await store.put("/a/b/c", b"deep")
    assert content(await store.get("/a")) == (b"", 0)
    assert await store.children("/a") == ["b"]
    assert await store.children("/") == ["a"]
    await store.put("/a/b", b"later")
    assert content(await store.get("/a/b")) == (b"later", 1)
    assert content(await store.get("/a/b/c")) == (b"deep", 0)


async def test_children_and_scan_are_in_order_and_end_at_the_name(store: MetadataStore) -> None:
    for path in ("/t/b/2", "/t/b/1", "/t/a", "/t/b-c", "/tt/a"):
        await store.put(path, path.encode())
    assert await store.children("/t") == ["a", "b", "b-c"]
    assert [path for path, _ in await store.scan("/t")] == [
        "/t",
        "/t/a",
        "/t/b",
        "/t/b/1",
        "/t/b/2",
        "/t/b-c",
    ]
    assert [path for path, _ in await store.scan("/t/b")] == ["/t/b", "/t/b/1", "/t/b/2"]
    assert content(dict(await store.scan("/"))["/tt/a"]) == (b"/tt/a", 0)


async def test_delete(store: MetadataStore) -> None:
    await store.put("/a/b", b"")
    with pytest.raises(Conflict):
        await store.delete("/a")
    with pytest.raises(Conflict):
        await store.delete("/a/b", expected_version=1)
    await store.delete("/a/b", expected_version=0)
    assert await store.get("/a/b") is None
    assert await store.children("/a") == []
    await store.delete("/a")
    with pytest.raises(NotFound):
        await store.delete("/a")


async def test_a_node_made_again_starts_over(store: MetadataStore) -> None:
    await store.put("/a", b"1")
    await store.put("/a", b"2")
    await store.delete("/a")
    assert await store.put("/a", b"3") == 0


async def test_create(store: MetadataStore) -> None:
    assert await store.create("/a/b", b"x") == "/a/b"
    with pytest.raises(Exists):
        await store.create("/a/b", b"y")
    assert content(await store.get("/a/b")) == (b"x", 0)


async def test_sequential_names_are_never_the_same(opener: Opener) -> None:
    store = await opener.open()
    first = await store.create("/q/n-", b"", sequential=True)
    second = await store.create("/q/n-", b"", sequential=True)
    assert first < second
    assert len(first) == len(second) == len("/q/n-0123456789")
    await store.delete(second)
    third = await store.create("/q/m-", b"", ephemeral=True, sequential=True)
    store = await opener.open()
    fourth = await store.create("/q/m-", b"", ephemeral=True, sequential=True)
    assert second < "/q/n-" + third[-10:] < "/q/n-" + fourth[-10:]


async def test_ephemeral_nodes_end_with_the_session(opener: Opener) -> None:
    store = await opener.open()
    assert await store.create("/brokers/1", b"here", ephemeral=True) == "/brokers/1"
    with pytest.raises(Exists):
        await store.create("/brokers/1", b"", ephemeral=True)
    assert await store.put("/brokers/1", b"moved") == 1
    assert await store.children("/brokers") == ["1"]
    with pytest.raises(Invalid):
        await store.put("/brokers/1/below", b"")
    store = await opener.open()
    assert await store.get("/brokers/1") is None
    assert await store.children("/brokers") == []
    assert content(await store.get("/brokers")) == (b"", 0)
    await store.create("/brokers/1", b"again", ephemeral=True)


async def test_everything_else_outlives_the_session(opener: Opener) -> None:
    store = await opener.open()
    for i in range(30):
        await store.put(f"/t/{i % 10}", b"%d" % i)
    await store.delete("/t/3")
    before = await store.scan("/")
    store = await opener.open()
    assert await store.scan("/") == before
    assert await store.put("/t/4", b"next", expected_version=2) == 3


async def test_watchers_hear_in_order(store: MetadataStore) -> None:
    heard: list[Event] = []
    await store.put("/t/before", b"")
    await store.watch("/t", heard.append)
    await store.put("/t/a", b"")
    await store.put("/t/a", b"")
    await store.put("/tt", b"")
    await store.put("/t/b/c", b"")
    await store.delete("/t/a")
    with pytest.raises(AnabranchError):
        await store.delete("/t/a")
    await settled()
    assert heard == [
        Event(EventKind.CREATED, "/t/a"),
        Event(EventKind.CHANGED, "/t/a"),
        Event(EventKind.CREATED, "/t/b"),
        Event(EventKind.CREATED, "/t/b/c"),
        Event(EventKind.DELETED, "/t/a"),
    ]


async def test_a_watcher_reads_what_it_was_told_of(store: MetadataStore) -> None:
    seen: list[Versioned | None] = []
    reads: list[asyncio.Task[None]] = []

    async def read(path: str) -> None:
        seen.append(await store.get(path))

    await store.watch("/a", lambda event: reads.append(asyncio.create_task(read(event.path))))
    await store.put("/a", b"1")
    await settled()
    await store.delete("/a")
    await settled()
    await asyncio.gather(*reads)
    assert [content(value) for value in seen] == [(b"1", 0), None]


async def test_a_watch_of_everything_and_one_that_was_ended(store: MetadataStore) -> None:
    everything: list[str] = []
    ended: list[str] = []
    await store.watch("/", lambda event: everything.append(event.path))
    stop = await store.watch("/", lambda event: ended.append(event.path))
    await store.put("/a", b"")
    await settled()
    stop()
    stop()
    await store.put("/b", b"")
    await settled()
    assert everything == ["/a", "/b"]
    assert ended == ["/a"]


@pytest.mark.parametrize(
    "path", ["", "a", "/", "//", "/a/", "/a//b", "/.", "/a/..", "/a\0b", "/a\nb", "/" + "x" * 4096]
)
async def test_illegal_paths(store: MetadataStore, path: str) -> None:
    for call in (store.put(path, b""), store.create(path, b""), store.delete(path)):
        with pytest.raises(Invalid):
            await call


async def test_the_limit_of_a_node(store: MetadataStore) -> None:
    await store.put("/large", bytes(MAX_DATA_BYTES))
    with pytest.raises(Invalid):
        await store.put("/large", bytes(MAX_DATA_BYTES + 1))
    with pytest.raises(Invalid):
        await store.create("/larger", bytes(MAX_DATA_BYTES + 1))
    assert content(await store.get("/large")) == (bytes(MAX_DATA_BYTES), 0)


# --- multi


async def test_a_multi_gives_the_result_of_each(store: MetadataStore) -> None:
    await store.put("/a", b"1")
    await store.put("/gone", b"")
    done = await store.multi(
        [
            Check("/a", 0),
            Put("/a", b"2", 0),
            Put("/new", b"n", MUST_NOT_EXIST),
            Create("/made/below", b"m"),
            Delete("/gone"),
        ]
    )
    assert done == [None, 1, 0, "/made/below", None]
    assert content(await store.get("/a")) == (b"2", 1)
    assert content(await store.get("/new")) == (b"n", 0)
    assert contents(await store.scan("/made")) == [("/made", (b"", 0)), ("/made/below", (b"m", 0))]
    assert await store.get("/gone") is None
    assert await store.multi([]) == []


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Check("/a", 7), Conflict),
        (Check("/nothing", 0), Conflict),
        (Put("/a", b"", 1), Conflict),
        (Put("/nothing", b"", 0), Conflict),
        (Put("/a", b"", MUST_NOT_EXIST), Exists),
        (Create("/a", b""), Exists),
        (Create("/here/below", b""), Invalid),
        (Delete("/nothing"), NotFound),
        (Delete("/a", 4), Conflict),
        (Delete("/t"), Conflict),
    ],
)
async def test_a_multi_that_fails_has_done_nothing(
    store: MetadataStore, last: Operation, error: type[AnabranchError]
) -> None:
    await store.put("/a", b"1")
    await store.put("/t/u", b"")
    await store.create("/here", b"", ephemeral=True)
    before = await store.scan("/")
    heard: list[Event] = []
    await store.watch("/", heard.append)
    first: list[Operation] = [
        Create("/b", b""),
        Put("/t/u", b"2", 0),
        Create("/q", b"", ephemeral=True, sequential=True),
    ]
    with pytest.raises(error):
        await store.multi([*first, last, Delete("/b")])
    await settled()
    assert await store.scan("/") == before
    assert heard == []
    assert await store.multi(first[:2]) == ["/b", 1]


async def test_operations_of_a_multi_see_those_before(store: MetadataStore) -> None:
    await store.put("/t/u", b"")
    done = await store.multi(
        [
            Create("/a", b"1"),
            Put("/a", b"2", 0),
            Check("/a", 1),
            Create("/a/b", b""),
            Delete("/a/b"),
            Delete("/a", 1),
            Create("/a", b"3"),
            Delete("/t/u"),
            Delete("/t"),
        ]
    )
    assert done == ["/a", 1, None, "/a/b", None, None, "/a", None, None]
    assert content(await store.get("/a")) == (b"3", 0)
    assert await store.get("/t") is None
    with pytest.raises(Conflict):
        await store.multi([Create("/a/b", b""), Delete("/a")])
    with pytest.raises(Conflict):
        await store.multi([Delete("/a"), Check("/a", 0)])


async def test_a_multi_makes_ephemeral_and_sequential_nodes(opener: Opener) -> None:
    store = await opener.open()
    await store.put("/q", b"")
    done = await store.multi(
        [
            Create("/q/n-", b"", sequential=True),
            Create("/q/n-", b"", ephemeral=True, sequential=True),
            Create("/q/here", b"", ephemeral=True),
        ]
    )
    first, second, here = map(str, done)
    assert first < second
    assert here == "/q/here"
    with pytest.raises(Invalid):
        await store.multi([Create("/x", b"", ephemeral=True), Create("/x/y", b"")])
    store = await opener.open()
    assert [path for path, _ in await store.scan("/q")] == ["/q", first]
    assert await store.create("/q/n-", b"", sequential=True) > second


async def test_watchers_hear_of_a_multi_in_order(store: MetadataStore) -> None:
    heard: list[Event] = []
    await store.put("/a", b"")
    await store.watch("/", heard.append)
    await store.multi([Put("/a", b"", 0), Create("/b", b""), Delete("/a", 1)])
    await settled()
    assert heard == [
        Event(EventKind.CHANGED, "/a"),
        Event(EventKind.CREATED, "/b"),
        Event(EventKind.DELETED, "/a"),
    ]


async def test_a_multi_outlives_the_session_whole(opener: Opener) -> None:
    store = await opener.open()
    await store.put("/a", b"")
    await store.multi([Delete("/a"), *(Create(f"/t/{i}", b"%d" % i) for i in range(100))])
    before = await store.scan("/")
    store = await opener.open()
    assert await store.scan("/") == before
    assert len(await store.children("/t")) == 100


@pytest.mark.parametrize(
    "operations",
    [
        [Create("/a", b""), Create("a", b"")],
        [Create("/a", b""), Check("/b", MUST_NOT_EXIST)],
        [Create("/a", b""), Put("/b", bytes(MAX_DATA_BYTES + 1), MUST_NOT_EXIST)],
        [Create("/a", bytes(MAX_DATA_BYTES // 2)), Create("/b", bytes(MAX_DATA_BYTES // 2))],
    ],
    ids=["path", "check", "data", "all"],
)
async def test_what_cannot_go_into_a_multi(store: MetadataStore, operations: list[Operation]) -> None:
    with pytest.raises(Invalid):
        await store.multi(operations)
    assert await store.get("/a") is None


# --- sessions


async def test_sessions_share_a_store(opener: Opener) -> None:
    one, other = await opener.open(), await opener.beside()
    assert one.session.id != other.session.id
    assert one.session.state is other.session.state is SessionState.CONNECTED
    heard: list[Event] = []
    await other.watch("/", heard.append)
    await one.put("/a", b"1")
    assert content(await other.get("/a")) == (b"1", 0)
    assert await other.put("/a", b"2", 0) == 1
    with pytest.raises(Conflict):
        await one.put("/a", b"3", 0)
    await settled()
    assert heard == [Event(EventKind.CREATED, "/a"), Event(EventKind.CHANGED, "/a")]


async def test_others_hear_of_ephemeral_nodes_that_go_with_their_session(opener: Opener) -> None:
    one, other = await opener.open(), await opener.beside()
    await one.create("/brokers/1", b"", ephemeral=True)
    await one.create("/brokers/stays", b"")
    await other.create("/brokers/2", b"", ephemeral=True)
    await other.put("/brokers/1", b"changed by another, but not its")
    with pytest.raises(Exists):
        await other.create("/brokers/1", b"", ephemeral=True)
    heard: list[Event] = []
    gone = asyncio.Event()

    def hear(event: Event) -> None:
        heard.append(event)
        gone.set()

    await other.watch("/brokers", hear)
    await one.close()
    await asyncio.wait_for(gone.wait(), 60)
    assert heard == [Event(EventKind.DELETED, "/brokers/1")]
    assert await other.children("/brokers") == ["2", "stays"]
    assert await other.create("/brokers/1", b"", ephemeral=True) == "/brokers/1"


async def test_who_made_an_ephemeral_node_is_known(opener: Opener) -> None:
    one, other = await opener.open(), await opener.beside()
    await one.create("/here", b"", ephemeral=True)
    await one.put("/plain", b"")
    for session in (one, other):
        here, plain = await session.get("/here"), await session.get("/plain")
        assert here is not None
        assert plain is not None
        assert here.owner == one.session.id
        assert plain.owner == 0
    assert dict(await other.scan("/"))["/here"].owner == one.session.id


async def test_a_session_that_is_over_is_of_no_more_use(opener: Opener) -> None:
    other, one = await opener.open(), await opener.beside()
    states: list[SessionState] = []
    heard: list[Event] = []
    one.session.subscribe(states.append)
    stop = one.session.subscribe(lambda state: pytest.fail("stopped"))
    stop()
    await one.watch("/", heard.append)
    assert one.session.certain_until > time.monotonic()
    await one.close()
    await one.close()
    assert states == [SessionState.EXPIRED]
    assert one.session.is_expired
    assert one.session.certain_until < time.monotonic()
    await other.put("/a", b"")
    await settled()
    assert heard == []
    calls = (
        one.get("/a"),
        one.put("/a", b""),
        one.create("/b", b""),
        one.delete("/a"),
        one.multi([Create("/b", b"")]),
        one.children("/"),
        one.scan("/"),
        one.watch("/", heard.append),
    )
    for call in calls:
        with pytest.raises(SessionExpired):
            await call
    assert content(await other.get("/a")) == (b"", 0)


async def test_each_node_made_has_a_higher_czxid_than_any_before(opener: Opener) -> None:
    async def czxid(path: str) -> int:
        value = await store.get(path)
        assert value is not None
        return value.czxid

    given = []
    for _ in range(3):
        store = await opener.open()
        for number in range(3):
            await store.create("/leader", b"", ephemeral=True)
            given.append(await czxid("/leader"))
            await store.put("/leader", b"")
            assert await czxid("/leader") == given[-1]
            made = await store.create("/made-", b"", sequential=True)
            given.append(await czxid(made))
            await store.multi([Delete("/leader"), Create("/leader", b"", ephemeral=True)])
            given.append(await czxid("/leader"))
            if number < 2:
                await store.delete("/leader")
    assert given == sorted(set(given))


async def test_who_was_deposed_is_refused(opener: Opener) -> None:
    """An election: whoever makes the ephemeral node raises the version that it then writes at."""

    async def elect(store: MetadataStore) -> int:
        value = await store.get("/epoch")
        version = MUST_NOT_EXIST if value is None else value.version
        done = await store.multi([Create("/leader", b"", ephemeral=True), Put("/epoch", b"", version)])
        epoch = done[1]
        assert isinstance(epoch, int)
        return epoch

    writer, one, other = await opener.open(), await opener.beside(), await opener.beside()
    first = await elect(one)
    with pytest.raises(Exists):
        await elect(other)
    await writer.multi([Check("/epoch", first), Create("/by-the-first", b"")])
    await one.close()
    second = await elect(other)
    assert second > first
    with pytest.raises(Conflict):
        await writer.multi([Check("/epoch", first), Create("/late", b"")])
    await writer.multi([Check("/epoch", second), Create("/by-the-second", b"")])
    assert set(await writer.children("/")) >= {"by-the-first", "by-the-second"}
    assert await writer.get("/late") is None
