"""A broker whose disk takes nothing: it says so, and when it is over."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import DiskFull
from anabranch.base.ids import BrokerId
from anabranch.cluster import disk_refusals
from anabranch.cluster.disk_refusals import DiskRefusals
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.cluster.registration import Registration
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import BrokerImage, ClusterImage
from tests.support.crashing_disk import FailingDisk
from tests.support.hosted import Hosted
from tests.support.waiting import until

B1, B2 = BrokerId(1), BrokerId(2)


class Running:
    def __init__(self, hosted: Hosted, registration: Registration, watcher: ImageWatcher) -> None:
        self.hosted = hosted
        self.registration = registration
        self.watcher = watcher
        self.refusals = DiskRefusals(B1, hosted.disk, hosted.data, registration, lambda: watcher.image)

    @property
    def gives_way(self) -> bool:
        return self.watcher.image.brokers[B1].gives_way

    def fill(self) -> None:
        assert isinstance(self.hosted.disk, FailingDisk)
        self.hosted.disk.room_bytes = 0

    def free(self) -> None:
        assert isinstance(self.hosted.disk, FailingDisk)
        self.hosted.disk.room_bytes = 1 << 40

    def write(self) -> None:
        self.hosted.put("orders", "a")


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(disk_refusals, "_QUIET_S", 0.02)
    hosted = Hosted(tmp_path / "host", FailingDisk())
    hosted.topic("orders")
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    watcher = ImageWatcher(store, ClusterImage(cluster_id="c"))
    await watcher.start()
    registration = Registration(store, watcher, random.Random(5))
    await registration.register(BrokerImage(B1, "h", 1))
    made = Running(hosted, registration, watcher)
    task = asyncio.create_task(made.refusals.run())
    yield made
    task.cancel()
    hosted.kill()
    await store.close()


async def test_it_gives_way_until_a_file_can_be_written(running: Running) -> None:
    await running.registration.register(BrokerImage(B2, "h", 2))
    running.write()
    running.fill()
    with pytest.raises(DiskFull):
        running.write()
    await until(lambda: running.gives_way)
    await asyncio.sleep(0.1)
    assert running.gives_way
    running.free()
    await until(lambda: not running.gives_way)
    running.write()
    assert not list(running.hosted.data.glob("probe*"))


async def test_it_waits_until_nothing_was_refused_for_a_while(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be room for a probe and not for what is written."""
    monkeypatch.setattr(DiskRefusals, "_is_writable", lambda _: True)
    await running.registration.register(BrokerImage(B2, "h", 2))
    running.write()
    running.fill()
    for _ in range(20):
        with pytest.raises(DiskFull):
            running.write()
        await until(lambda: running.gives_way)
        await asyncio.sleep(0.005)
        assert running.gives_way
    await until(lambda: not running.gives_way)


async def test_it_gives_way_where_a_log_cannot_be_made(running: Running) -> None:
    await running.registration.register(BrokerImage(B2, "h", 2))
    running.fill()
    with pytest.raises(DiskFull):
        running.write()
    await until(lambda: running.gives_way)


async def test_a_broker_alone_says_nothing(running: Running) -> None:
    running.write()
    running.fill()
    with pytest.raises(DiskFull):
        running.write()
    await asyncio.sleep(0.05)
    assert not running.gives_way
