"""50,000 partitions: an image loads quickly and small, and a broker that goes costs what it had."""

import asyncio
import time
import tracemalloc
from pathlib import Path
from random import Random
from uuid import UUID

from anabranch.base.disk import DirectDisk
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from anabranch.cluster.builder import ImageBuilder
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import TopicDefaults
from anabranch.meta import paths
from anabranch.meta.documents import (
    BrokersSeenDocument,
    PartitionState,
    PartitionStatesDocument,
    TopicDocument,
    encode,
)
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import BrokerImage, ClusterImage
from tests.support.speed import slowness
from tests.support.waiting import until
from tests.unit.cluster.test_cluster import FixedClock, no_bad_config

TOPICS, PARTITIONS = 500, 100
BROKERS = 50


def replicas_of(topic: int, partition: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(1 + (topic + partition + j) % BROKERS) for j in range(3))


def documents() -> list[tuple[str, bytes]]:
    """Of topics all of whose partitions have been elected once."""
    found = []
    for topic in range(TOPICS):
        id = TopicId(UUID(int=topic + 1))
        name = TopicName.from_kafka(f"topic-{topic}")
        placed = [replicas_of(topic, index) for index in range(PARTITIONS)]
        states = {
            index: PartitionState(replicas[0], LeaderEpoch(1), 1, replicas, replicas)
            for index, replicas in enumerate(placed)
        }
        found.append((paths.topic(name), encode(TopicDocument(id, placed, {}, 0))))
        found.append((paths.partition_states(id, 0), encode(PartitionStatesDocument(states))))
    return found


def load(made: list[tuple[str, bytes]]) -> ClusterImage:
    builder = ImageBuilder(ClusterImage(cluster_id="x"))
    for path, data in made:
        builder.apply(path, data)
    return builder.build()


def test_an_image_loads_quickly_and_small() -> None:
    made = documents()
    started = time.process_time()
    image = load(made)
    took_s = time.process_time() - started
    assert sum(len(topic.partitions) for topic in image.topics.values()) == 50_000
    assert took_s < 1.0 * slowness(), f"{took_s:.2f} s"
    tracemalloc.start()  # it takes its time, so a tenth has to do
    kept = load(made[: len(made) // 10])
    size = 10 * tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept.topics.items() <= image.topics.items()
    assert size < 300 << 20, f"{size >> 20} MiB"


async def test_a_broker_that_goes_costs_what_it_had(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    for path, data in documents():
        await store.put(path, data)
    cluster = await Cluster.open(
        store, BrokerId(1), FixedClock(), Random(1), TopicDefaults(1, 1), no_bad_config
    )
    sessions = [store.new_session() for _ in range(BROKERS)]
    for id, session in enumerate(sessions[1:], 2):
        others = BrokerImage(BrokerId(id), "h", 1)
        await session.create(paths.broker(others.id), b'{"host":"h","port":1}', ephemeral=True)
    await cluster.register_broker(BrokerImage(BrokerId(1), "h", 1))
    there = {id: await store.get(paths.broker(BrokerId(id))) for id in range(1, BROKERS + 1)}
    seen = BrokersSeenDocument({BrokerId(id): node.czxid for id, node in there.items() if node is not None})
    await store.put(paths.CONTROLLER_BROKERS, encode(seen))
    running = asyncio.ensure_future(cluster.run())
    await until(lambda: len(cluster.image.brokers) == BROKERS)
    before = cluster.image.topics
    spent = time.process_time()
    await sessions[6].close()

    def has_left() -> bool:
        return all(
            BrokerId(7) not in state.isr and state.leader != 7
            for topic in cluster.image.topics.values()
            for state in topic.partitions[: 2 * BROKERS]
        )

    await until(has_left)
    spent = time.process_time() - spent
    changed = [
        (was, now)
        for name, topic in cluster.image.topics.items()
        for was, now in zip(before[name].partitions, topic.partitions, strict=True)
        if was is not now
    ]
    assert len(changed) == 3 * TOPICS * PARTITIONS // BROKERS
    assert sum(was.leader != now.leader for was, now in changed) == TOPICS * PARTITIONS // BROKERS
    assert all(now.leader in now.isr for _, now in changed)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for session in (*sessions[:6], *sessions[7:], store):
        await session.close()
