"""ISR changes: the followers of all leaders here are checked, and the controller asked for another ISR.

    every so often   each leader of several replicas: is a follower late?    (`led_replicas`)
    wanted           ─> one request at a time, with what all leaders want by then ─> controller
    answered         the state that was written ─> the leader takes it, without waiting for the image
                     not the controller, gone, slow   again, later each time
                     not a replica that may be in sync   the leader goes on as before
                     the state has moved on       the image will bring it; asked again if it does not.  Until
                                                  then both count: an earlier answer may have been lost, and
                                                  what was asked for be what is written

The cost grows with the partitions of several replicas that are led here, and with nothing else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple
from uuid import UUID

import msgspec

from anabranch.base.backoff import Backoff
from anabranch.base.errors import AnabranchError, IneligibleReplica, NotController, Unavailable
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicName
from anabranch.base.seldom import Seldom
from anabranch.log.checkpoints import TopicPartition
from anabranch.meta.image import PartitionImage
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.partition.served_topic import ServedTopic

_trouble = Seldom(logging.getLogger(__name__), 10.0)

_LONGEST_INTERVAL_S = 1.0
_SHORTEST_INTERVAL_S = 0.01
_A_TURN = 100
_OPENED_A_TURN = 8
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0


class IsrChange(NamedTuple):
    """What a leader asks for."""

    topic_id: UUID
    topic: TopicName
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: Mapping[BrokerId, int]
    """The brokers, and the epoch that each had when it was last heard of; -1 if that is not known."""


class Written(NamedTuple):
    """The state that there is by it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[BrokerId, ...]


Answer = Written | AnabranchError
"""What was written, or why nothing was."""
Ask = Callable[[Sequence[IsrChange]], Awaitable[Sequence[Answer]]]
"""Raises what concerns all of them."""


class IsrChanges:
    def __init__(self, host: PartitionHost, broker: BrokerId, ask: Ask, chance: Random) -> None:
        self._host = host
        self._broker = broker
        self._hub = host.replication
        self._clock = host.replication.clock
        self._ask = ask
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S, chance)
        self._led: dict[TopicPartition, ServedTopic] = {}
        self._wanting: dict[Partition, None] = {}
        self._unheard: dict[Partition, float] = {}
        """Those whose request was overtaken, and since when they wait for the image."""
        self._work = asyncio.Event()
        self._hub.ask = self._want

    # --- who is led

    def follow(self, topic: ServedTopic, state: PartitionImage) -> None:
        """The partition has this state from now on."""
        if state.leader == self._broker and len(state.replicas) > 1:
            self._led[topic.key(state.index)] = topic
        else:
            self._led.pop(topic.key(state.index), None)

    def leaders(self) -> Iterator[Partition]:
        """Those of several replicas that have been opened."""
        for (_, index), topic in self._led.items():
            partition = topic.partitions[index]
            if partition is not None:
                yield partition

    @property
    def under_replicated(self) -> int:
        """Partitions led here with replicas that are not in sync."""
        return sum(len(one.state.isr) < len(one.state.replicas) for one in self.leaders())

    @property
    def under_min_isr(self) -> int:
        return sum(len(one.state.isr) < one.min_insync(one.state) for one in self.leaders())

    @property
    def at_min_isr(self) -> int:
        return sum(len(one.state.isr) == one.min_insync(one.state) for one in self.leaders())

    # --- looking

    async def run(self) -> None:
        await asyncio.gather(self._check_for_ever(), self._ask_for_ever())

    async def _check_for_ever(self) -> None:
        heard_since_s = last_s = self._clock.monotonic()
        while True:
            interval_s = min(_LONGEST_INTERVAL_S, max(_SHORTEST_INTERVAL_S, self._hub.lag().time_s / 2))
            await asyncio.sleep(interval_s)
            now_s = self._clock.monotonic()
            if now_s - last_s > 2 * interval_s:  # what followers asked meanwhile is in the sockets still
                heard_since_s = now_s
            await self._check(now_s, heard_since_s)
            last_s = self._clock.monotonic()

    async def _check(self, now_s: float, heard_since_s: float) -> None:
        opened = 0
        for number, (key, topic) in enumerate(list(self._led.items())):
            if self._host.topic_by_id(topic.topic_id) is not topic:
                self._led.pop(key, None)
                continue
            partition = topic.partitions[key[1]]
            if partition is None:
                opened += self._open(topic, key[1])
            else:
                self._check_one(partition, now_s, heard_since_s)
            if number % _A_TURN == _A_TURN - 1 or opened >= _OPENED_A_TURN:
                opened = 0
                await asyncio.sleep(0)

    def _open(self, topic: ServedTopic, index: int) -> bool:
        """Have the leader made: nobody may ask for it while its followers are away."""
        try:
            self._host.partition_of(topic, index)
        except (AnabranchError, OSError) as error:
            _trouble.warning("%s-%d: its leader cannot be made: %s", topic.name.kafka, index, error)
        return True

    def _check_one(self, partition: Partition, now_s: float, heard_since_s: float) -> None:
        since_s = self._unheard.get(partition)
        if since_s is not None and now_s - since_s > self._hub.lag().time_s:
            del self._unheard[partition]
            self._want(partition)
        partition.check_followers(now_s, heard_since_s)

    # --- asking

    def _want(self, partition: Partition) -> None:
        self._wanting[partition] = None
        self._work.set()

    async def _ask_for_ever(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            changes = self._changes()
            if not changes:
                continue
            try:
                answers = await self._ask(list(changes.values()))
            except (AnabranchError, OSError) as error:
                await self._again(error)
                continue
            for (partition, change), answer in zip(changes.items(), answers, strict=True):
                self._answered(partition, change, answer)
            retried = next((one for one in answers if is_retried(one)), None)
            if retried is None:
                self._backoff.reset()
            else:
                await self._again(retried)

    def _changes(self) -> dict[Partition, IsrChange]:
        """What is wanted now, and not what was when it was noted."""
        changes: dict[Partition, IsrChange] = {}
        self._unheard = {one: since_s for one, since_s in self._unheard.items() if not one.retired}
        for partition in list(self._wanting):
            wanted = None if partition.retired or partition.led is None else partition.led.wanted()
            topic = self._led.get(partition.replica.key)
            if wanted is None or topic is None:
                del self._wanting[partition]
                continue
            changes[partition] = IsrChange(
                topic.topic_id,
                topic.name,
                partition.index,
                LeaderEpoch(partition.leader_epoch),
                partition.state.partition_epoch,
                wanted,
            )
        return changes

    def _answered(self, partition: Partition, change: IsrChange, answer: Answer) -> None:
        if is_retried(answer):
            return
        if partition.state.partition_epoch != change.partition_epoch:
            self._work.set()  # it has moved on meanwhile, and may want something else
            return
        self._wanting.pop(partition, None)
        if partition.retired:
            return
        if isinstance(answer, Written):
            if answer.leader_epoch == partition.leader_epoch:
                written = {"isr": answer.isr, "partition_epoch": answer.partition_epoch}
                partition.replicas_changed(msgspec.structs.replace(partition.state, **written))
            return
        self._hub.failed_isr_updates += 1
        _trouble.warning("%s: ISR %s is refused: %s", partition, list(change.isr), answer)
        if isinstance(answer, IneligibleReplica):
            partition.isr_refused()
        else:
            self._unheard[partition] = self._clock.monotonic()

    async def _again(self, error: object) -> None:
        pause_s = self._backoff.next_s()
        _trouble.warning("the controller could not be asked for ISR changes, again soon: %s", error)
        await asyncio.sleep(pause_s)
        self._work.set()


def is_retried(answer: object) -> bool:
    """Whether the same request may have another answer soon."""
    return isinstance(answer, NotController | Unavailable)
