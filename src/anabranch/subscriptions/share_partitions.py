"""The share partitions that this broker leads, opened when somebody first fetches from them.

A group begins to read a partition where `share.auto.offset.reset` says, and that place is kept at once: who
joins with "latest" and is cut off before the first acknowledgement finds everything that came meanwhile.
"""

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from uuid import UUID

from anabranch.base.errors import UnknownTopicId
from anabranch.groups.config import GroupConfig
from anabranch.groups.share_config import EARLIEST, reset_duration_ms
from anabranch.groups.share_state import NOT_INITIALISED, DeliveryState, ShareKey, StateBatch
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.subscriptions.share_live import LiveSharePartition, ShareSurroundings, rules_of
from anabranch.subscriptions.share_partition import SharePartition


class SharePartitions:
    def __init__(self, host: PartitionHost, around: ShareSurroundings) -> None:
        self._host = host
        self._around = around
        self._open: dict[ShareKey, LiveSharePartition] = {}
        self._opening: dict[ShareKey, asyncio.Task[LiveSharePartition]] = {}
        self._closing: dict[ShareKey, asyncio.Task[None]] = {}
        around.states.on_change(self._changed)

    def config_of(self, group: str) -> GroupConfig:
        return self._around.config_of(group)

    def find(self, key: ShareKey) -> LiveSharePartition | None:
        """One that is open already."""
        found = self._open.get(key)
        if found is not None and found.is_closed:
            del self._open[key]
            return None
        return found

    async def open(self, key: ShareKey) -> LiveSharePartition:
        found = self.find(key)
        if found is not None:
            return found
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.ensure_future(self._load(key))
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(opening)

    def release(self, group: str, member: str) -> None:
        """A member is gone: what it held is free."""
        for key, live in list(self._open.items()):
            if key.group == group:
                live.release(member)

    def rest(self, group: str) -> None:
        """The group has nobody here any more: what may be set from outside without a word is read again."""
        for key, live in list(self._open.items()):
            if key.group == group and not self._around.states.tells(key):
                del self._open[key]
                closing = self._closing[key] = asyncio.ensure_future(live.stop())
                closing.add_done_callback(partial(self._closed, key))

    def _closed(self, key: ShareKey, closing: "asyncio.Task[None]") -> None:
        if self._closing.get(key) is closing:
            del self._closing[key]

    def topics_deleted(self, topic_ids: Collection[UUID]) -> None:
        """Nobody will ask for theirs again."""
        for key in [key for key in self._open if key.topic_id in topic_ids]:
            self._changed(key)

    async def stop(self) -> None:
        for live in list(self._open.values()):
            await live.stop()
        for opening in list(self._opening.values()):
            opening.cancel()

    # --- how it is done

    async def _load(self, key: ShareKey) -> LiveSharePartition:
        if (closing := self._closing.get(key)) is not None:
            await asyncio.wait((closing,))
        partition = self._partition(key)
        config = self._around.config_of(key.group)
        states = self._around.states
        state = await states.read(key, partition.leader_epoch)
        start = state.start_offset
        if start == NOT_INITIALISED:
            start = await self._first_offset(partition, config)
            await states.write(key, state.state_epoch, start, (), 0, partition.leader_epoch)
        # What the log has lost in a crash will be rewritten, and not by what was known of the old.
        end = partition.log_end
        start = min(start, end)
        lost = [
            StateBatch(max(batch.first_offset, end), batch.last_offset, DeliveryState.AVAILABLE, 0)
            for batch in state.batches
            if batch.last_offset >= end
        ]
        if lost or start < state.start_offset:
            await states.write(key, state.state_epoch, start, lost, leader_epoch=partition.leader_epoch)
        share = SharePartition(start, rules_of(config), list(_below(state.batches, end)))
        live = self._open[key] = LiveSharePartition(key, partition, share, state.state_epoch, self._around)
        return live

    def _partition(self, key: ShareKey) -> Partition:
        topic = self._host.topic_by_id(key.topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with the id {key.topic_id}")
        return self._host.partition_of(topic, key.partition)

    async def _first_offset(self, partition: Partition, config: GroupConfig) -> int:
        reset = config.share_auto_offset_reset
        if reset == EARLIEST:
            return partition.log_start
        back_ms = reset_duration_ms(reset)
        if back_ms is not None:
            found = await partition.offset_for_time(self._around.clock.now_ms() - back_ms)
            if found is not None:
                return min(found.offset, partition.high_watermark)
        return partition.high_watermark

    def _changed(self, key: ShareKey) -> None:
        """The state was set from outside: what is known of it here is out of date."""
        live = self._open.pop(key, None)
        if live is not None:
            live.close()


def _below(batches: Iterable[StateBatch], end: int) -> Iterable[StateBatch]:
    for batch in batches:
        if batch.first_offset < end:
            yield batch._replace(last_offset=min(batch.last_offset, end - 1))
