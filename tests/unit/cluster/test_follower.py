"""Keeping an image in step with a store that is slow, away, or changed by others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Unavailable
from anabranch.base.ids import BrokerId
from anabranch.cluster.follower import Follower
from anabranch.cluster.image import ClusterImage, ImageChange
from anabranch.meta import paths
from anabranch.meta.documents import BrokerDocument, encode
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.store import Event, Versioned


class RemoteStore:
    """An embedded store seen over a link that takes time and breaks."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.away = False
        self.reads: list[str] = []
        self.reading = asyncio.Event()
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
async def follower(store: RemoteStore) -> Follower:
    follower = Follower(store, ClusterImage(cluster_id="c"))
    await follower.start()
    return follower


async def put_broker(store: RemoteStore, port: int) -> None:
    await store.put("/brokers/1", encode(BrokerDocument("h", port)))


def port(follower: Follower) -> int:
    return follower.image.brokers[BrokerId(1)].port


async def test_a_writer_sees_its_own_write(store: RemoteStore, follower: Follower) -> None:
    for number in range(5):
        await put_broker(store, number)
        await follower.refresh("/brokers/1")
        assert port(follower) == number


async def test_concurrent_writers_see_theirs_and_share_sweeps(store: RemoteStore, follower: Follower) -> None:
    images: list[ClusterImage] = []
    follower.subscribe(lambda change: images.append(change.new))

    async def write(id: int) -> None:
        path = paths.broker(BrokerId(id))
        await store.put(path, encode(BrokerDocument("h", id)))
        await follower.refresh(path)
        assert BrokerId(id) in follower.image.brokers

    await asyncio.gather(*(write(id) for id in range(100)))
    assert len(images) <= 2
    assert len(store.reads) <= 203


async def test_nothing_new_is_no_new_image(store: RemoteStore, follower: Follower) -> None:
    await put_broker(store, 1)
    await follower.refresh("/brokers/1")
    image = follower.image
    follower.subscribe(lambda change: pytest.fail("nothing changed"))
    await follower.refresh("/brokers/1")
    await store.put("/something/else", b"")
    await follower.refresh("/something/else")
    assert follower.image is image


async def test_what_could_not_be_read_is_read_later(store: RemoteStore, follower: Follower) -> None:
    await put_broker(store, 7)
    store.away = True
    with pytest.raises(Unavailable):
        await follower.refresh("/brokers/1")
    assert follower.image.brokers == {}
    store.away = False
    await follower.refresh("/cluster")
    assert port(follower) == 7


async def test_a_reader_that_gives_up_loses_nothing(store: RemoteStore, follower: Follower) -> None:
    await put_broker(store, 7)
    store.reading.clear()
    refresh = asyncio.create_task(follower.refresh("/brokers/1"))
    await store.reading.wait()
    refresh.cancel()
    await asyncio.wait([refresh])
    assert follower.image.brokers == {}
    await follower.refresh("/cluster")
    assert port(follower) == 7


async def test_it_follows_by_itself_and_ends_in_the_last_state(
    store: RemoteStore, follower: Follower
) -> None:
    seen: list[int] = []
    last_seen = asyncio.Event()

    def subscriber(change: ImageChange) -> None:
        new = change.new
        seen.append(new.brokers[BrokerId(1)].port)
        if seen[-1] == 49:
            last_seen.set()

    follower.subscribe(subscriber)
    following = asyncio.create_task(follower.run())
    for number in range(50):
        await put_broker(store, number)
    await asyncio.wait_for(last_seen.wait(), 60)
    assert seen == sorted(set(seen)), "an image went back, or came twice"
    following.cancel()
    await asyncio.wait([following])
