"""Partitions that are led under a test's eyes: a host, a follower of all of it, elections at will.

    led = Led(folder)
    role = led.add("orders", min_insync_replicas=2)     its leader, of epoch 0
    role = led.elect("orders")                          the next one; `role` before has resigned
    led.vacate("orders")                                nobody leads
    led.follower.release()

Only the partition 0 of a topic is there.  `Handed` is one that is handed on from role to role unseen.
"""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from anabranch.base.ids import BrokerId, LeaderEpoch
from anabranch.base.waiters import Waiter
from anabranch.log.config import LogConfig
from anabranch.meta.image import NO_BROKER, PartitionImage
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Appended
from anabranch.records.control import Marker
from tests.support.acknowledgements import FOLLOWER, Follower
from tests.support.hosts import a_host
from tests.support.images import ME, led_by, topic_image

_APPENDS_A_ROLE = 3


class Led:
    def __init__(self, folder: Path) -> None:
        self.host = a_host(folder)
        self.follower = Follower(self.host)
        self.host.recover()

    def add(self, name: str = "orders", *, epoch: int = 0, id: int = 1, **config: Any) -> Partition:
        image = topic_image(name, UUID(int=id))
        state = replace(image.partitions[0], leader_epoch=LeaderEpoch(epoch))
        self.host.add_topic(led_by(image, 0, state), LogConfig(**config))
        return self.host.partition(name, 0)

    def state(self, name: str = "orders") -> PartitionImage:
        return self.host.topic(name).image.partitions[0]

    def elect(self, name: str = "orders", leader: BrokerId = ME) -> Partition:
        self._change(name, leader=leader, leader_epoch=LeaderEpoch(self.state(name).leader_epoch + 1))
        return self.host.partition(name, 0)

    def vacate(self, name: str = "orders") -> None:
        self._change(name, leader=NO_BROKER, leader_epoch=LeaderEpoch(self.state(name).leader_epoch + 1))

    def in_sync(self, *brokers: BrokerId, name: str = "orders") -> None:
        self._change(name, isr=brokers, replicas=(ME, FOLLOWER))

    def _change(self, name: str, **fields: Any) -> None:
        state = self.state(name)
        new = replace(state, partition_epoch=state.partition_epoch + 1, **fields)
        self.host.change_topic(led_by(self.host.topic(name).image, 0, new))


class Handed:
    """A partition whose follower lags a batch behind, and whose leader is another one every few appends.

    The watermark moves after an append, not within; whoever waits waits with the next role.
    """

    def __init__(self, led: Led, name: str) -> None:
        self.led = led
        self.name = name
        self._appends = 0
        self._waiters: list[Waiter] = []
        led.follower.release()

    @property
    def role(self) -> Partition:
        return self.led.host.partition(self.name, 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.role, name)

    def append(self, batch: memoryview, acks: int) -> Appended:
        role, release = self.role, self.led.follower.release
        safe = role.high_watermark
        if not _in_loop():  # nobody could wait
            acks = 1
        appended = role.append(batch, acks)
        assert role.high_watermark == safe
        if appended.acknowledged is not None:
            asyncio.get_running_loop().call_soon(release)
            return appended
        release()
        assert role.high_watermark == role.log_end
        self._appends += 1
        if self._appends % _APPENDS_A_ROLE == 0:
            self._hand_on(role)
        return appended

    def _hand_on(self, role: Partition) -> None:
        new = self.led.elect(self.name)
        assert role.retired
        assert new.leader_epoch == role.leader_epoch + 1
        for waiter in self._waiters:
            new.wait(waiter)

    def wait(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)
        self.role.wait(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._waiters = [other for other in self._waiters if other is not waiter]
        self.role.stop_waiting(waiter)

    def put_marker(self, producer_id: int, *, commit: bool) -> None:
        follower = self.led.follower
        follower.is_holding = False  # nobody could wait
        self.role.end_transaction(producer_id, 0, Marker(commit, 0))
        follower.is_holding = True


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
