"""Share partition lifecycle: begin, reset and end, each of which takes several decisions.

A share partition is known in two places: its group says that there is one (`__consumer_offsets`), and its
state is kept apart (`__share_group_state`).  A change is noted with the group, then done, then noted as done:

    begins    group: initialising ─> state: initialised, at no offset yet ─> group: initialised
    is reset  group: initialising, epoch + 1 ─> state: initialised, at an offset ─> group: initialised
    ends      group: deleting ─> state: gone ─> group: nothing

So what a crash cuts off is seen and done again: at the next heartbeat of the group, or when it is asked for
again.  A share partition is assigned to nobody while it begins, so its state may be initialised twice; one
that had begun goes on as it was if its reset is cut off.  A group has one of these under way at a time.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable
from anabranch.groups import share_requests as requests
from anabranch.groups.coordinator import GroupCoordinator
from anabranch.groups.effects import Answer
from anabranch.groups.heartbeats import Refused
from anabranch.groups.parts import Topics
from anabranch.groups.runtime import Begun
from anabranch.groups.share_group import ShareGroup
from anabranch.groups.share_records import Shares, TopicShare
from anabranch.groups.share_requests import ShareHeartbeat
from anabranch.groups.share_state import NOT_INITIALISED, ShareKey
from anabranch.groups.share_states import KeptShareStates
from anabranch.groups.share_states_anywhere import ShareStatesAnywhere, Summary

log = logging.getLogger(__name__)


class NewStart(NamedTuple):
    """Where the share partitions of a topic are to begin."""

    name: str
    offsets: Mapping[int, int]


class ShareCoordinator:
    def __init__(
        self,
        groups: GroupCoordinator,
        states: KeptShareStates,
        anywhere: ShareStatesAnywhere,
        topics: Topics,
    ) -> None:
        """`states` are those that this broker keeps, of groups that may be elsewhere; `anywhere` are all."""
        self._groups = groups
        self._topics = topics
        self.states = states
        self.anywhere = anywhere
        self._initialising: dict[str, asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # --- members

    async def heartbeat(self, request: ShareHeartbeat, begun: Begun | None = None) -> Answer:
        """What the group decides; share partitions that this makes begin do so while the member is told.

        `begun` as in `Runtime.submit`.
        """
        answer = await self._groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.share.heartbeat(request, token, now_ms),
            begun,
        )
        group = self._groups.known(request.group_id).groups.get(request.group_id)
        if isinstance(group, ShareGroup) and group.topics.initialising:
            self._initialise(group)
        return answer

    def _initialise(self, group: ShareGroup) -> None:
        group_id = group.group_id
        if group_id not in self._initialising:
            task = asyncio.ensure_future(self._begin(group_id))
            self._initialising[group_id] = task
            task.add_done_callback(lambda _: self._initialising.pop(group_id, None))

    async def _begin(self, group_id: str) -> None:
        """Initialise what the group has noted; not what is initialised already and was to be reset."""
        try:
            async with self._alone(group_id):
                group = await self.find(group_id)
                shares, epoch = group.topics.initialising, group.epoch
                known = {*group.share_keys(group.topics.initialised)}
                for key in group.share_keys(shares):
                    if key not in known:
                        await self.anywhere.initialise(key, epoch, NOT_INITIALISED)
                await self._begun(group_id, shares)
        except Refused:
            log.info("group %s: deleted before its partitions were initialised", group_id)
        except AnabranchError as error:
            log.warning(
                "group %s: its partitions are not initialised yet, tried again later: %s", group_id, error
            )

    async def _begun(self, group_id: str, shares: Shares) -> None:
        await self._groups.submit(
            group_id, lambda shard, token, now_ms: shard.share.begun(group_id, shares, token, now_ms)
        )

    def _alone(self, group_id: str) -> asyncio.Lock:
        """Held by whoever begins, resets or ends share partitions of the group."""
        lock = self._locks.get(group_id)
        if lock is None:
            lock = self._locks[group_id] = asyncio.Lock()
        return lock

    # --- offsets

    async def find(self, group_id: str) -> ShareGroup:
        """Refused if there is no such share group."""
        try:
            return await self._groups.ask(group_id, lambda shard: shard.share.find(group_id))
        except CoordinatorNotAvailable as error:  # there are no groups at all
            raise requests.not_a_share_group(group_id, exists=False) from error

    async def state_of(self, key: ShareKey) -> Summary | None:
        return await self.anywhere.look(key)

    async def alter(self, group_id: str, starts: Mapping[UUID, NewStart]) -> None:
        """Have share partitions begin where `starts` says.

        The group is made if it is not there.  Refused if it has members, or is no share group.
        """
        shares = {topic: TopicShare(start.name, frozenset(start.offsets)) for topic, start in starts.items()}
        async with self._alone(group_id):
            begins = await self._groups.submit(
                group_id, lambda shard, token, now_ms: shard.share.begin(group_id, shares, token, now_ms)
            )
            for topic_id, start in starts.items():
                for partition, offset in start.offsets.items():
                    key = ShareKey(group_id, topic_id, partition)
                    await self.anywhere.initialise(key, begins["epoch"], offset)
            await self._begun(group_id, shares)

    async def delete_offsets(self, group_id: str, topic_ids: Collection[UUID]) -> None:
        """Keep nothing of topics any more.  Refused if the group has members, or is none."""
        async with self._alone(group_id):
            group = await self.find(group_id)
            keys = [key for key in self._kept(group) if key.topic_id in topic_ids]
            await self._groups.submit(
                group_id, lambda shard, token, now_ms: shard.share.end(group_id, topic_ids, token, now_ms)
            )
            await self.anywhere.delete(keys)
            await self._groups.submit(
                group_id, lambda shard, token, now_ms: shard.share.ended(group_id, topic_ids, token, now_ms)
            )

    async def delete_all_offsets(self, group_id: str) -> None:
        """The group is about to be deleted: keep nothing of it.  Refused if it has members, or is none."""
        group = await self.find(group_id)
        await self.delete_offsets(group_id, {key.topic_id for key in self._kept(group)})

    def _kept(self, group: ShareGroup) -> list[ShareKey]:
        """What is kept of the group, and what may be since its deletion was cut off."""
        topics = group.topics
        keys = group.share_keys(topics.initialised) + group.share_keys(topics.initialising)
        for topic_id in group.topics.deleting:
            facts = self._topics.by_id(topic_id)
            partitions = range(facts.num_partitions) if facts is not None else ()
            keys += [ShareKey(group.group_id, topic_id, partition) for partition in partitions]
        return keys

    def close(self) -> None:
        for task in self._initialising.values():
            task.cancel()
        self.anywhere.close()
        self.states.close()
