"""Asking the controller for ISRs: what counts until it is known what it has written."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from uuid import UUID

from msgspec.structs import replace

from anabranch.base.clock import SystemClock
from anabranch.base.errors import Conflict, Unavailable
from anabranch.base.ids import BrokerId, TopicName
from anabranch.log.config import LogConfig
from anabranch.partition.in_sync import Lag
from anabranch.partition.isr_changes import Answer, IsrChange, IsrChanges
from tests.support.hosts import a_host
from tests.support.images import led_by, partition_image, topic_image
from tests.support.logs import records
from tests.support.waiting import until

ORDERS = TopicName.from_kafka("orders")


async def test_what_may_be_written_counts_until_the_image_says_what_is(tmp_path: Path) -> None:
    """The answer was lost, and whoever asks again is told that the state has moved on."""
    host = a_host(tmp_path, SystemClock())
    host.replication.lag = lambda: Lag(0.05, -1)
    host.replication.epoch_of = lambda broker: 7
    asked: list[Sequence[IsrChange]] = []

    async def ask(changes: Sequence[IsrChange]) -> Sequence[Answer]:
        asked.append(changes)
        if len(asked) == 1:
            raise Unavailable("the connection is lost")
        return [Conflict("partition epoch 0 is over") for _ in changes]

    changes = IsrChanges(host, BrokerId(1), ask, Random(1))
    host.on_state = changes.follow
    host.recover()
    image = topic_image(ORDERS, UUID(int=1))
    host.add_topic(led_by(image, 0, partition_image(replicas=(1, 2), in_sync=(1,))), LogConfig())
    leader = host.partition(ORDERS, 0)
    leader.append(memoryview(records("a")), 1)
    leader.replica_reached(BrokerId(2), 1, 0, 7)
    running = asyncio.create_task(changes.run())
    await until(lambda: len(asked) >= 2)
    await asyncio.sleep(0.2)
    leader.append(memoryview(records("b")), 1)
    assert leader.high_watermark == 1, "broker 2 may lead next, and has no more"
    host.change_topic(led_by(image, 0, replace(partition_image(replicas=(1, 2)), partition_epoch=1)))
    leader.replica_reached(BrokerId(2), 2, 0, 7)
    assert leader.high_watermark == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_nobody_waits_for_who_was_about_to_come_and_has_gone(tmp_path: Path) -> None:
    """Two come back at a time, and one of them goes again before the controller is asked for it."""
    host = a_host(tmp_path, SystemClock())
    host.replication.lag = lambda: Lag(60, -1)
    there = {BrokerId(2): 7, BrokerId(3): 7}
    host.replication.epoch_of = there.get
    host.recover()
    image = topic_image(ORDERS, UUID(int=1))
    host.add_topic(led_by(image, 0, partition_image(replicas=(1, 2, 3), in_sync=(1,))), LogConfig())
    leader = host.partition(ORDERS, 0)
    for broker in (2, 3):
        leader.replica_reached(BrokerId(broker), 0, 0, 7)
    leader.append(memoryview(records("a")), 1)
    leader.replica_reached(BrokerId(2), 1, 0, 7)
    assert leader.high_watermark == 0, "broker 3 is about to come"
    del there[BrokerId(3)]
    now_s = host.replication.clock.monotonic()
    leader.check_followers(now_s, now_s)
    assert leader.high_watermark == 1
