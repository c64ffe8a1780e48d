"""Keeping an image in step with a store that is slow, away, or changed by others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Corrupt, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.meta import paths
from anabranch.meta.documents import BrokerDocument, encode
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import ClusterImage, ImageChange
from anabranch.meta.store import Event, Versioned


class RemoteStore:
    """An embedded store seen over a link that takes time and breaks."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.away = False
        self.reads: list[str] = []
        self.reading = asyncio.Event()
        self.session = store.session
        self.put, self.create, self.delete = store.put, store.create, store.delete
        self.children, self.scan = store.children, store.scan

    async def get(self, path: str) -> Versioned | None:
        self.reads.append(path)
        self.reading.set()
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("the store is away")
        value = await self._store.get(path)
        await asyncio.sleep(0)
        return value

    async def watch(self, prefix: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        return await self._store.watch(prefix, callback)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RemoteStore]:
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    yield RemoteStore(store)
    await store.close()


@pytest.fixture
async def watcher(store: RemoteStore) -> ImageWatcher:
    watcher = ImageWatcher(store, ClusterImage(cluster_id="c"))
    await watcher.start()
    return watcher


async def put_broker(store: RemoteStore, port: int) -> None:
    await store.put("/brokers/1", encode(BrokerDocument("h", port)))


def port(watcher: ImageWatcher) -> int:
    return watcher.image.brokers[BrokerId(1)].port


async def test_a_writer_sees_its_own_write(store: RemoteStore, watcher: ImageWatcher) -> None:
    for number in range(5):
        await put_broker(store, number)
        await watcher.refresh("/brokers/1")
        assert port(watcher) == number


async def test_concurrent_writers_see_theirs_and_share_sweeps(
    store: RemoteStore, watcher: ImageWatcher
) -> None:
    images: list[ClusterImage] = []
    watcher.subscribe(lambda change: images.append(change.new))

    async def write(id: int) -> None:
        path = paths.broker(BrokerId(id))
        await store.put(path, encode(BrokerDocument("h", id)))
        await watcher.refresh(path)
        assert BrokerId(id) in watcher.image.brokers

    await asyncio.gather(*(write(id) for id in range(100)))
    assert len(images) <= 2
    assert len(store.reads) <= 203


async def test_nothing_new_is_no_new_image(store: RemoteStore, watcher: ImageWatcher) -> None:
    await put_broker(store, 1)
    await watcher.refresh("/brokers/1")
    image = watcher.image
    watcher.subscribe(lambda change: pytest.fail("nothing changed"))
    await watcher.refresh("/brokers/1")
    await store.put("/something/else", b"")
    await watcher.refresh("/something/else")
    assert watcher.image is image


async def test_what_could_not_be_read_is_read_later(store: RemoteStore, watcher: ImageWatcher) -> None:
    await put_broker(store, 7)
    store.away = True
    with pytest.raises(Unavailable):
        await watcher.refresh("/brokers/1")
    assert watcher.image.brokers == {}
    store.away = False
    await watcher.refresh("/cluster")
    assert port(watcher) == 7


async def test_a_reader_that_gives_up_loses_nothing(store: RemoteStore, watcher: ImageWatcher) -> None:
    await put_broker(store, 7)
    store.reading.clear()
    refresh = asyncio.create_task(watcher.refresh("/brokers/1"))
    await store.reading.wait()
    refresh.cancel()
    await asyncio.wait([refresh])
    assert watcher.image.brokers == {}
    await watcher.refresh("/cluster")
    assert port(watcher) == 7


async def test_it_follows_by_itself_and_ends_in_the_last_state(
    store: RemoteStore, watcher: ImageWatcher
) -> None:
    seen: list[int] = []
    last_seen = asyncio.Event()

    def subscriber(change: ImageChange) -> None:
        new = change.new
        seen.append(new.brokers[BrokerId(1)].port)
        if seen[-1] == 49:
            last_seen.set()

    watcher.subscribe(subscriber)
    following = asyncio.create_task(watcher.run())
    for number in range(50):
        await put_broker(store, number)
    await asyncio.wait_for(last_seen.wait(), 60)
    assert seen == sorted(set(seen)), "an image went back, or came twice"
    following.cancel()
    await asyncio.wait([following])


@pytest.mark.parametrize("path", ["/brokers/x", "/brokers/1"])
async def test_a_damaged_document_is_passed_over(
    store: RemoteStore, watcher: ImageWatcher, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All brokers read it: none could go on if one document were enough to stop them."""
    await put_broker(store, 7)
    await watcher.refresh("/brokers/1")
    await store.put(path, b"{")
    await store.put("/brokers/2", encode(BrokerDocument("h", 8)))
    await watcher.refresh(path, "/brokers/2")
    assert {id: broker.port for id, broker in watcher.image.brokers.items()} == {1: 7, 2: 8}
    await watcher.reread()
    assert set(watcher.image.brokers) == {1, 2}
    assert path in caplog.text
    with pytest.raises(Corrupt, match=path):
        await ImageWatcher(store, ClusterImage(cluster_id="c")).start()


@pytest.mark.parametrize(
    "path",
    ["/brokers/one", "/partitions/nothing", "/namespaces/a/b%20c", "/topics/a/b%2Fc/d", "/config/brokers/x"],
)
async def test_a_node_of_no_name_of_ours_is_passed_over(
    path: str, store: RemoteStore, watcher: ImageWatcher
) -> None:
    """Whatever an operator makes and removes with a ZooKeeper shell, brokers go on."""
    following = asyncio.create_task(watcher.run())
    await store.put(path, b"{}")
    await store.delete(path)
    await put_broker(store, 1)
    await asyncio.wait([following], timeout=0.05)
    assert not following.done(), following.exception()
    assert port(watcher) == 1
    await store.put(path, b"{}")
    await watcher.reread()
    await store.delete(path)
    await watcher.reread()
    await put_broker(store, 2)
    await watcher.refresh("/brokers/1")
    assert port(watcher) == 2
    following.cancel()
