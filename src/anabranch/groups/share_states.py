"""Share coordinator: the states of share partitions, which shard one belongs to and the way to it.

    await states.initialise(key, epoch, offset)      its group: it begins, or begins again
    state = await states.read(key)                   its leader, once
    await states.write(key, epoch, offset, batches)  its leader, whenever records are done with
    await states.delete(keys)                        its group: nothing is kept any more

`__share_group_state` is partitioned by Kafka's hash of group, topic id and partition.  It is made when it is
first needed.  It is not compacted, since updates add up.  When most of a partition is old, every state in it
is written again and what was there before is cut off; that is looked at now and then (`run`).

Raised to handlers: what the group coordinator raises (`coordinator.py`), and what `ShareStates` says.
"""

import asyncio
import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.errors import AnabranchError, Invalid
from anabranch.base.ids import id_text
from anabranch.groups.coordinator import partition_for
from anabranch.groups.internal_topic import InternalTopic
from anabranch.groups.parts import Topics
from anabranch.groups.runtime import Runtime
from anabranch.groups.share_config import ShareStateConfig
from anabranch.groups.share_state import (
    ANY_LEADER,
    UNKNOWN_COUNT,
    Changed,
    DeliveryState,
    ShareKey,
    ShareState,
    StateBatch,
)
from anabranch.groups.share_state_records import Snapshot
from anabranch.groups.share_state_shard import ShareStateShard, Written
from anabranch.partition.led_partitions import LedPartitions

SHARE_STATE_TOPIC = "__share_group_state"

log = logging.getLogger(__name__)

_WORTH_PRUNING = 1_000  # records of a partition
_LEAST_OLD = 4  # times as many records as states
_SNAPSHOTS_A_BATCH = 200
_STATES_A_BATCH = 10_000  # of batches of records, in all snapshots: some 250 kB
_MOST_DELIVERIES = (1 << 15) - 1
_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class KeptShareStates:
    """The ShareStates of this broker."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        config: Callable[[], ShareStateConfig],
        partitions: LedPartitions,
        create_topic: Callable[[], Awaitable[object]],
    ) -> None:
        self._config = config
        self._partition = partitions.partition
        self._runtime: Runtime[ShareStateShard] = Runtime(
            clock, ShareStateShard, partitions, lambda: config().write_timeout_ms
        )
        self._topic = InternalTopic(SHARE_STATE_TOPIC, topics, self._runtime, partitions, create_topic)
        self._changed: list[Changed] = []

    # --- for leaders of share partitions

    async def read(self, key: ShareKey, leader_epoch: int = ANY_LEADER) -> ShareState:
        answer = await self._runtime.submit(
            self.shard_of(key), lambda shard, token, now_ms: shard.lead(token, key, leader_epoch)
        )
        kept: Snapshot = answer["kept"]
        return ShareState(kept.state_epoch, kept.start_offset, kept.batches)

    async def write(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int = UNKNOWN_COUNT,
        leader_epoch: int = ANY_LEADER,
    ) -> None:
        _check(batches)
        told = Written(key, state_epoch, start_offset, batches, delivery_complete_count, leader_epoch)
        updates = self._config().updates_per_snapshot
        await self._runtime.submit(
            self.shard_of(key), lambda shard, token, now_ms: shard.write(token, told, updates, now_ms)
        )

    def on_change(self, changed: Changed) -> None:
        self._changed.append(changed)

    # --- for the groups

    async def initialise(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Keep `key` from `start_offset` on, whatever was kept of it.

        FencedStateEpoch if that has been done at a greater epoch.
        """
        await self.ensure_topic()
        await self._runtime.submit(
            self.shard_of(key),
            lambda shard, token, now_ms: shard.initialise(token, key, state_epoch, start_offset, now_ms),
        )
        self._tell((key,))

    async def delete(self, keys: Iterable[ShareKey]) -> None:
        if not self._topic.exists:
            return
        by_shard: dict[int, list[ShareKey]] = {}
        for key in keys:
            by_shard.setdefault(self.shard_of(key), []).append(key)
        for index, gone in by_shard.items():
            await self._runtime.submit(
                index,
                lambda shard, token, now_ms, gone=gone: shard.delete(token, gone),  # type: ignore[misc]
            )
            self._tell(gone)

    async def look(self, key: ShareKey) -> Snapshot | None:
        """What is kept of `key`, to look at."""
        if not self._topic.exists:
            return None
        return await self._runtime.ask(self.shard_of(key), lambda shard: shard.states.get(key))

    def _tell(self, keys: Iterable[ShareKey]) -> None:
        for key in keys:
            for changed in self._changed:
                changed(key)

    # --- where

    async def ensure_topic(self) -> int:
        """The number of partitions of the topic, which is made if it is not there."""
        await self._topic.ensure()
        return self._topic.num_partitions

    @property
    def exists(self) -> bool:
        return self._topic.exists

    def tells(self, key: ShareKey) -> bool:
        """Whoever asks here keeps it here."""
        return True

    def shard_of(self, key: ShareKey) -> int:
        return _shard_of(key, self._topic.num_partitions)

    # --- as the node lives

    async def run(self) -> None:
        """Read what there is to read, so that nobody waits for it later; then keep the topic short."""
        await self._topic.load_all("share groups")
        while True:
            await asyncio.sleep(self._config().prune_interval_ms / 1000)
            await self.prune()

    def elected(self, index: int) -> None:
        """This broker leads partition `index` of the topic from now on."""
        self._topic.elected(index, "share groups")

    async def prune(self) -> None:
        """Cut off what newer records have replaced, where that is worth it."""
        for index in self._topic.in_use():
            try:
                await self._maybe_prune(index)
            except (AnabranchError, OSError) as error:  # the next time it may be possible
                log.warning(
                    "%s-%d: could not be pruned, tried again later: %s", SHARE_STATE_TOPIC, index, error
                )

    async def _maybe_prune(self, index: int) -> None:
        states = (await self._runtime.load(index)).states
        sizes = {key: len(state.batches) for key, state in states.items()}
        partition = self._partition(index)
        end = partition.log_end
        if end - partition.log_start < max(_WORTH_PRUNING, _LEAST_OLD * len(sizes)):
            return
        for some in _that_fit_a_batch(sizes):
            await self._runtime.submit(
                index,
                lambda shard, token, now_ms, some=some: shard.snapshot_again(token, some, now_ms),  # type: ignore[misc]
            )
            await asyncio.sleep(0)
        partition.trim(end)

    def topics_deleted(self, topic_ids: Collection[UUID]) -> None:
        """Forget what was kept for topics that are no more."""
        if topic_ids:
            self._topic.forget_topics("share groups", lambda shard, now_ms: shard.forget_topics(topic_ids))

    def close(self) -> None:
        self._topic.close()


def share_key_text(key: ShareKey) -> str:
    """As FindCoordinator names a share partition, and Kafka hashes it."""
    return f"{key.group}:{id_text(key.topic_id)}:{key.partition}"


def read_share_key(text: str) -> ShareKey:
    """The share partition that `share_key_text` gave `text` for.  Invalid if there is none."""
    group, _, rest = text.partition(":") if text.count(":") == 2 else ("", "", "")
    topic_id, _, partition = rest.partition(":")
    match = _ID.fullmatch(topic_id)
    if not group or match is None or not partition.isascii() or not partition.isdigit():
        raise Invalid("a share partition is called group:topic id:partition")
    return ShareKey(group, UUID(bytes=urlsafe_b64decode(topic_id + "==")), int(partition[:10]))


def _that_fit_a_batch(sizes: Mapping[ShareKey, int]) -> Iterator[list[ShareKey]]:
    """The keys in turn, as many at once as one batch of the log should have."""
    some: list[ShareKey] = []
    room = _STATES_A_BATCH
    for key, size in sizes.items():
        if some and (size > room or len(some) >= _SNAPSHOTS_A_BATCH):
            yield some
            some, room = [], _STATES_A_BATCH
        some.append(key)
        room -= size
    if some:
        yield some


@lru_cache(4096)
def _shard_of(key: ShareKey, partitions: int) -> int:
    return partition_for(share_key_text(key), partitions)


def _check(batches: Sequence[StateBatch]) -> None:
    """Invalid if what a leader writes is nothing that could be kept."""
    for batch in batches:
        if not 0 <= batch.first_offset <= batch.last_offset:
            raise Invalid(f"records {batch.first_offset} to {batch.last_offset} are no batch")
        if (
            batch.delivery_state is DeliveryState.ACQUIRED
            or not 0 <= batch.delivery_count <= _MOST_DELIVERIES
        ):
            raise Invalid(f"a state that is not kept: {batch}")
