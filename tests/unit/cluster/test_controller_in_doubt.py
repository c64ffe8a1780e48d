"""A broker that was made the controller and did not hear of it finds out, and goes on from there."""

import asyncio
import logging
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Unavailable
from anabranch.base.ids import BrokerId
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.topics import TopicDefaults
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import BrokerImage
from anabranch.meta.store import Operation
from tests.support.waiting import until
from tests.unit.cluster.test_cluster import FixedClock, no_bad_config

B1, B2 = BrokerId(1), BrokerId(2)


class ForgetfulStore(EmbeddedStore):
    """Does what it is asked for; of some multis the answers are lost."""

    lost_answers = 0

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        done = await super().multi(operations)
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unavailable("the connection broke")
        return done


async def open_cluster(store: EmbeddedStore, id: BrokerId) -> Cluster:
    cluster = await Cluster.open(
        store, id, FixedClock(), random.Random(id), TopicDefaults(1, 1), no_bad_config
    )
    await cluster.register_broker(BrokerImage(id, "127.0.0.1", 9090 + id))
    return cluster


async def test_the_epoch_is_found_when_the_answer_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anabranch.cluster")
    first = EmbeddedStore.open(tmp_path / "metadata", DirectDisk(4))
    store = ForgetfulStore(first._rounds)
    former, cluster = await open_cluster(first, B1), await open_cluster(store, B2)
    assert (former.controller.epoch, cluster.controller.epoch) == (0, None)
    running = asyncio.create_task(cluster.run())
    store.lost_answers = 1
    await first.close()
    await until(lambda: cluster.controller.epoch == 1)
    assert "broker 2 is the controller, at epoch 1" in caplog.text
    await until(lambda: cluster.image.controller_id == B2)
    assert store.lost_answers == 0
    running.cancel()
    await asyncio.wait([running])
    await store.close()
