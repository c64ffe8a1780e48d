import asyncio
import random
import shutil
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import DiskFull
from anabranch.base.ids import BrokerId
from anabranch.cluster.cluster import PRODUCER_IDS_PER_BLOCK, Cluster
from anabranch.cluster.topics import TopicDefaults
from anabranch.meta.embedded import EmbeddedStore
from anabranch.server.producer_ids import ProducerIds
from tests.support.logs import SetClock


async def open_cluster(folder: Path) -> tuple[EmbeddedStore, Cluster]:
    disk = DirectDisk()
    disk.make_dirs(folder)
    store = EmbeddedStore.open(folder / "metadata", disk)
    chance = random.Random(1)
    cluster = await Cluster.open(store, BrokerId(1), SetClock(), chance, TopicDefaults(), lambda _: None)
    return store, cluster


class Counted:
    """A cluster that says how often it was asked for a block, and can be made to wait or fail."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.asked = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.answered = asyncio.Event()

    async def allocate_producer_ids(self) -> range:
        self.asked += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        block = await self._cluster.allocate_producer_ids()
        self.answered.set()
        return block


async def test_one_after_the_other_over_many_blocks(tmp_path: Path) -> None:
    store, cluster = await open_cluster(tmp_path)
    ids = ProducerIds(cluster)
    count = 3 * PRODUCER_IDS_PER_BLOCK + 7
    assert [await ids.next() for _ in range(count)] == list(range(count))
    await ids.close()
    await store.close()


async def test_never_twice_whatever_is_killed(tmp_path: Path) -> None:
    """Each time the broker is killed after so many ids: the next one finds the files as they were then."""
    seen: list[int] = []
    for life, given in enumerate((1, 5, PRODUCER_IDS_PER_BLOCK - 1, 2 * PRODUCER_IDS_PER_BLOCK, 3)):
        store, cluster = await open_cluster(tmp_path / str(life))
        ids = ProducerIds(cluster)
        seen += [await ids.next() for _ in range(given)]
        shutil.copytree(tmp_path / str(life), tmp_path / str(life + 1))
        await ids.close()
        await store.close()
    assert len(set(seen)) == len(seen)


async def test_two_brokers_share_no_id(tmp_path: Path) -> None:
    store, cluster = await open_cluster(tmp_path)
    one, other = ProducerIds(cluster), ProducerIds(cluster)
    seen = [await ids.next() for _ in range(1500) for ids in (one, other)]
    assert len(set(seen)) == len(seen)
    await one.close()
    await other.close()
    await store.close()


async def test_the_next_block_is_there_before_it_is_needed(tmp_path: Path) -> None:
    store, cluster = await open_cluster(tmp_path)
    counted = Counted(cluster)
    ids = ProducerIds(counted)  # type: ignore[arg-type]
    assert counted.asked == 0  # a broker without idempotent producers writes nothing
    for _ in range(PRODUCER_IDS_PER_BLOCK - 101):
        await ids.next()
    assert counted.asked == 1
    counted.answered.clear()
    await ids.next()
    await asyncio.wait_for(counted.answered.wait(), 60)
    assert counted.asked == 2
    counted.gate.clear()  # from here on a block would never come
    for _ in range(PRODUCER_IDS_PER_BLOCK):
        await asyncio.wait_for(ids.next(), 1)
    await ids.close()
    await store.close()


async def test_those_who_wait_share_one_request(tmp_path: Path) -> None:
    store, cluster = await open_cluster(tmp_path)
    counted = Counted(cluster)
    counted.gate.clear()
    ids = ProducerIds(counted)  # type: ignore[arg-type]
    waiting = [asyncio.create_task(ids.next()) for _ in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # whoever gives up takes nothing from the others
    await asyncio.sleep(0)
    counted.gate.set()
    given = await asyncio.gather(*waiting[1:])
    assert (sorted(given), counted.asked) == (list(range(9)), 1)
    await ids.close()
    await store.close()


async def test_a_block_that_cannot_be_had(tmp_path: Path) -> None:
    store, cluster = await open_cluster(tmp_path)
    counted = Counted(cluster)
    counted.error = DiskFull("no room")
    ids = ProducerIds(counted)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(DiskFull):
            await ids.next()
    counted.error = None
    assert await ids.next() == 0
    await ids.close()
    await store.close()
