"""What brokers know of a large cluster: how long the image of 50,000 partitions takes to load from ZooKeeper,
what memory it needs, and what a change of one leader costs.

    python bench/path/image.py [PARTITIONS]

Wanted are less than 1 s, less than 300 MB, and a change that costs what changed.  The partitions are in
topics of 10 and of 1,000, and every one of them has had an election, so that all its state is written.
Each figure is of a process of its own, on a ZooKeeper that is started for it.
"""

import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[2]))

from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.cluster.image_watcher import ImageWatcher
from anabranch.meta import paths
from anabranch.meta.documents import PartitionState, PartitionStatesDocument, TopicDocument, encode
from anabranch.meta.image import ClusterImage
from anabranch.meta.store import Create, Operation
from anabranch.meta.zookeeper import ZooKeeperStore
from tests.support.zookeeper import ZooKeeperServer

BROKERS = [BrokerId(id) for id in (1, 2, 3)]
SESSION_MS = 30_000
TOPICS_A_MULTI = 8
CHANGES = 200


def topic(number: int, partitions: int) -> Iterator[Operation]:
    """Its documents."""
    id = TopicId(UUID(int=number))
    replicas = [tuple(BROKERS[(index + step) % 3] for step in range(3)) for index in range(partitions)]
    name = TopicName("public", "default", f"topic-{number}")
    yield Create(paths.topic(name), encode(TopicDocument(id, replicas, {}, 1)))
    for page in paths.pages_of(partitions):
        states = {
            index: PartitionState(placed[1], LeaderEpoch(1), 1, placed, placed)
            for index, placed in enumerate(replicas)
            if paths.page_of(index) == page
        }
        yield Create(paths.partition_states(id, page), encode(PartitionStatesDocument(states)))


async def fill(address: str, partitions: int, each: int) -> None:
    store = await ZooKeeperStore.connect(address, SESSION_MS)
    for start in range(0, partitions // each, TOPICS_A_MULTI):
        numbers = range(start + 1, min(start + TOPICS_A_MULTI, partitions // each) + 1)
        await store.multi([operation for number in numbers for operation in topic(number, each)])
    await store.close()


async def load(address: str) -> None:
    """In a process of its own: prints the seconds, the MB and the milliseconds of a change."""
    store = await ZooKeeperStore.connect(address, SESSION_MS)
    watcher = ImageWatcher(store, ClusterImage(cluster_id="c"))
    started = time.perf_counter()
    await watcher.start()
    loaded_s = time.perf_counter() - started
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    changed_ms = [await change(store, watcher, number) for number in range(CHANGES)]
    found = sum(len(topic.partitions) for topic in watcher.image.topics.values())
    print(f"{found} {loaded_s} {rss_mb} {statistics.median(changed_ms)}")
    await store.close()


async def change(store: ZooKeeperStore, watcher: ImageWatcher, number: int) -> float:
    """Milliseconds until the image shows that partition 0 of a topic has another leader."""
    topic = watcher.image.topics[TopicName("public", "default", f"topic-{number % 50 + 1}")]
    path = paths.partition_states(topic.id, 0)
    before = {part.index: part for part in topic.partitions if paths.page_of(part.index) == 0}
    states = {
        index: PartitionState(
            BROKERS[number % 3] if index == 0 else part.leader, part.leader_epoch, 1, part.isr, part.replicas
        )
        for index, part in before.items()
    }
    await store.put(path, encode(PartitionStatesDocument(states)))
    started = time.perf_counter()
    await watcher.refresh(path)
    return (time.perf_counter() - started) * 1e3


def measure(folder: Path, partitions: int, each: int) -> Sequence[float]:
    zookeeper = ZooKeeperServer(folder)
    zookeeper.start()
    try:
        address = zookeeper.chroot()
        asyncio.run(fill(address, partitions, each))
        command = [sys.executable, "-P", __file__, "--load", address]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
        return [float(word) for word in told.stdout.split()]
    finally:
        zookeeper.kill()


def main() -> None:
    if sys.argv[1:2] == ["--load"]:
        asyncio.run(load(sys.argv[2]))
        return
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    for each in (10, 1_000):
        with tempfile.TemporaryDirectory() as folder:
            found, loaded_s, rss_mb, changed_ms = measure(Path(folder), partitions, each)
        print(
            f"{found:9,.0f} partitions, {each:5,} a topic: loaded in {loaded_s:.2f} s, "
            f"{rss_mb:.0f} MB in all, a change seen in {changed_ms:.2f} ms"
        )


if __name__ == "__main__":
    main()
