"""What every metadata store does.  A new implementation is one more parameter of `opener`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import AnabranchError, Conflict, Exists, Invalid, NotFound
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.store import (
    MAX_DATA_BYTES,
    MUST_NOT_EXIST,
    Event,
    EventKind,
    MetadataStore,
    Versioned,
)


class Opener:
    """Opens sessions with one store: each `open` ends the session before it."""

    def __init__(
        self, open: Callable[[], Awaitable[MetadataStore]], close: Callable[[MetadataStore], Awaitable[None]]
    ) -> None:
        self._open = open
        self._close = close
        self._session: MetadataStore | None = None

    async def open(self) -> MetadataStore:
        await self.close()
        self._session = await self._open()
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await self._close(session)


def embedded(folder: Path) -> Opener:
    async def open() -> MetadataStore:
        return EmbeddedStore.open(folder / "metadata.journal", DirectDisk(max_open=4))

    async def close(store: MetadataStore) -> None:
        assert isinstance(store, EmbeddedStore)
        await store.close()

    return Opener(open, close)


@pytest.fixture(params=[embedded], ids=lambda make: make.__name__)
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    opener: Opener = request.param(tmp_path)
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
    assert await store.get("/a") == Versioned(b"one", 0)
    assert await store.put("/a", b"two") == 1
    assert await store.put("/a", b"", expected_version=1) == 2
    assert await store.get("/a") == Versioned(b"", 2)


async def test_put_refuses_another_version(store: MetadataStore) -> None:
    await store.put("/a", b"one")
    await store.put("/a", b"two")
    for wrong in (0, 2, 99):
        with pytest.raises(Conflict):
            await store.put("/a", b"lost", expected_version=wrong)
    assert await store.get("/a") == Versioned(b"two", 1)


async def test_put_at_a_version_does_not_make_a_node(store: MetadataStore) -> None:
    with pytest.raises(Conflict):
        await store.put("/a", b"", expected_version=0)
    assert await store.get("/a") is None


async def test_put_that_must_not_exist(store: MetadataStore) -> None:
    assert await store.put("/a", b"one", MUST_NOT_EXIST) == 0
    with pytest.raises(Exists):
        await store.put("/a", b"two", MUST_NOT_EXIST)
    assert await store.get("/a") == Versioned(b"one", 0)


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
    assert await store.get("/count") == Versioned(b"20", 20)


async def test_parents_are_made_empty(store: MetadataStore) -> None:
    await store.put("/a/b/c", b"deep")
    assert await store.get("/a") == Versioned(b"", 0)
    assert await store.children("/a") == ["b"]
    assert await store.children("/") == ["a"]
    await store.put("/a/b", b"later")
    assert await store.get("/a/b") == Versioned(b"later", 1)
    assert await store.get("/a/b/c") == Versioned(b"deep", 0)


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
    assert dict(await store.scan("/"))["/tt/a"] == Versioned(b"/tt/a", 0)


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
    assert await store.get("/a/b") == Versioned(b"x", 0)


async def test_sequential_names_are_never_the_same(opener: Opener) -> None:
    store = await opener.open()
    first = await store.create("/q/n-", b"", sequential=True)
    second = await store.create("/q/n-", b"", sequential=True)
    assert (first, second) == ("/q/n-0000000000", "/q/n-0000000001")
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
    assert await store.get("/brokers") == Versioned(b"", 0)
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
    assert seen == [Versioned(b"1", 0), None]


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
    assert await store.get("/large") == Versioned(bytes(MAX_DATA_BYTES), 0)
