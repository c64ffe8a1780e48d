"""Starting with many topics must not be felt."""

import random
import time
from pathlib import Path

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.ids import BrokerId, TopicId, TopicName
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.identity import random_id
from anabranch.cluster.topics import TopicDefaults
from anabranch.meta import paths
from anabranch.meta.documents import TopicDocument, encode
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.journal import whole_journal
from anabranch.meta.tree import Change, Set
from tests.support.speed import slowness

TOPICS, PARTITIONS = 1000, 10
LIMIT_S = 0.1


def write_topics(path: Path) -> None:
    chance = random.Random(1)
    changes: list[Change] = [
        Set(p, b"", 0, 1) for p in ("/topics", "/topics/public", "/topics/public/default")
    ]
    for number in range(TOPICS):
        id = TopicId(random_id(chance))
        document = TopicDocument(id, [(BrokerId(1),)] * PARTITIONS, {"retention.ms": "1000"}, 0)
        changes.append(Set(paths.topic(TopicName.from_kafka(f"topic.{number}")), encode(document), 0, 1))
    path.write_bytes(whole_journal(changes))


async def test_a_thousand_topics_load_in_a_tenth_of_a_second(tmp_path: Path) -> None:
    path = tmp_path / "metadata"
    write_topics(path)
    spent_s = []
    for _ in range(3):
        # CPU time, the best of three: what the test is about, whatever else the machine is doing.
        before = time.process_time()
        store = EmbeddedStore.open(path, DirectDisk(4))
        cluster = await Cluster.open(
            store, BrokerId(1), SystemClock(), random.Random(1), TopicDefaults(), lambda config: None
        )
        spent_s.append(time.process_time() - before)
        assert len(cluster.image.topics) == TOPICS
        assert sum(len(topic.partitions) for topic in cluster.image.topics.values()) == TOPICS * PARTITIONS
        await store.close()
    assert min(spent_s) < LIMIT_S * slowness()
