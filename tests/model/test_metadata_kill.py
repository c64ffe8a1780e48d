"""kill -9 in the middle of changes: what was answered is there, what goes together is there or not
together, and producer ids are never given twice.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.ids import BrokerId, TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import NewTopic, TopicDefaults
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import BrokerImage
from anabranch.meta.store import MUST_NOT_EXIST, Put

TOGETHER = [f"/together/{name}" for name in "abcdefgh"]
KILLS = 40 if os.environ.get("ANABRANCH_SOAK") else 6


async def open_cluster(path: Path) -> tuple[EmbeddedStore, Cluster]:
    store = EmbeddedStore.open(path, DirectDisk(max_open=4))
    cluster = await Cluster.open(
        store, BrokerId(1), SystemClock(), random.SystemRandom(), TopicDefaults(), lambda config: None
    )
    await cluster.register_broker(BrokerImage(BrokerId(1), "127.0.0.1", 9092))
    return store, cluster


async def work(path: Path, run: str) -> None:
    """Make topics and take producer ids for ever, four at a time, saying so once it is answered."""
    store, cluster = await open_cluster(path)
    print("id", cluster.image.cluster_id, flush=True)

    async def worker(number: int) -> None:
        for i in range(1_000_000):
            name = f"{run}-{number}-{i}"
            await cluster.create_topic(NewTopic(TopicName.from_kafka(name), 2))
            os.write(1, f"topic {name}\n".encode())
            if i % 3 == 0:
                await cluster.delete_topic(TopicName.from_kafka(name))
                os.write(1, f"deleted {name}\n".encode())
            ids = await cluster.allocate_producer_ids()
            os.write(1, f"ids {ids.start}\n".encode())

    async def write_together() -> None:
        there = await store.get(TOGETHER[0])
        version = MUST_NOT_EXIST if there is None else there.version
        while True:
            data = b"%d" % (version + 1) * 100
            done = await store.multi([Put(path, data, version) for path in TOGETHER])
            version += 1
            assert done == [version] * len(TOGETHER)
            os.write(1, f"together {version}\n".encode())

    await asyncio.gather(write_together(), *(worker(number) for number in range(4)))


def killed_after(lines: int, path: Path, run: str) -> list[list[str]]:
    """What a process said before it was killed in mid-work."""
    with subprocess.Popen(
        [sys.executable, __file__, str(path), run], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        said += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    return [line.split() for line in said if line.endswith("\n")]


@pytest.mark.timeout(600)
async def test_what_was_answered_survives(tmp_path: Path) -> None:
    chance = random.Random(3)
    path = tmp_path / "metadata.journal"
    there: set[str] = set()
    taken: list[int] = []
    cluster_ids = set()
    version = MUST_NOT_EXIST
    for kill in range(KILLS):
        for kind, what in killed_after(chance.randint(1, 120), path, f"run{kill}"):
            if kind == "id":
                cluster_ids.add(what)
            elif kind == "topic":
                there.add(what)
            elif kind == "deleted":
                there.remove(what)
            elif kind == "together":
                version = int(what)
            else:
                taken.append(int(what))
        # A deletion that was under way may have happened: each worker's last topic, if it was to go.
        ours = {name for name in there if name.startswith(f"run{kill}-")}
        maybe = {name for name in ours if int(name.rsplit("-", 1)[1]) % 3 == 0}
        store, cluster = await open_cluster(path)
        found = set(cluster.image.topics_by_kafka_name)
        assert there - maybe <= found
        there &= found
        # A creation may have been under way in each of the four workers.
        assert len(found - there) <= 4
        there |= found
        versions = {node.version if node else MUST_NOT_EXIST for node in map(store.tree.get, TOGETHER)}
        assert versions in ({version}, {version + 1})
        version = versions.pop()
        taken.append((await cluster.allocate_producer_ids()).start)
        assert cluster.image.cluster_id in cluster_ids
        await store.close()
    assert len(cluster_ids) == 1
    assert len(set(taken)) == len(taken)
    assert taken, "nothing was done"


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
