"""Simulated members of a classic group: they join, are given partitions, and commit how far they are.

    for number in range(3):
        Member(world, cluster, f"m{number}", group)      group: what all of them were told

What they are told is held against this: in a generation a partition has one owner; what was committed is
there when it is asked for, or something later.
"""

import asyncio
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.client.destinations import GROUPS, Coordinator, TopicPartition
from anabranch.client.group_offsets import by_topic, offset_items
from anabranch.client.requests import OFFSET_COMMIT, OFFSET_FETCH, Request
from anabranch.wire.kafka.schema import ErrorCode
from tests.sim.clients import Client
from tests.sim.cluster import SimCluster
from tests.sim.history import Violation
from tests.sim.world import SimWorld

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
_SESSION_MS = 6000
_REBALANCE_MS = 6000
_NONE = 0


class GroupHistory:
    """What a group's members were told."""

    def __init__(self, name: str, places: list[TopicPartition]) -> None:
        self.name = name
        self.places = places
        self.committed = dict.fromkeys(places, 0)
        """The furthest that was acknowledged."""
        self.commits = 0
        self._owners: dict[tuple[int, TopicPartition], str] = {}

    def owns(self, generation: int, member: str, places: list[TopicPartition]) -> None:
        for place in places:
            known = self._owners.setdefault((generation, place), member)
            if known != member:
                raise Violation(
                    f"group {self.name}: {known} and {member} both own {place} in generation {generation}"
                )

    def acknowledged(self, place: TopicPartition, offset: int) -> None:
        self.committed[place] = max(self.committed[place], offset)
        self.commits += 1

    def found(self, place: TopicPartition, offset: int, least: int) -> None:
        if offset < least:
            raise Violation(f"group {self.name}: {place} was committed to {least}, and now it is {offset}")


class Member(Client):
    def __init__(self, world: SimWorld, cluster: SimCluster, name: str, group: GroupHistory) -> None:
        super().__init__(world, cluster, name)
        self._group = group
        self._to = Coordinator(GROUPS, group.name)
        self._id = ""
        self._generation = -1
        self.run(self._live)

    async def _live(self) -> None:
        while not self.is_over:
            mine = await self._join()
            if mine is not None:
                await self._own(mine)
            await self.pause(0.2)

    async def _ask(self, api_key: int, **values: Any) -> Any:
        return await self.send(self._to, Request(api_key, {"group_id": self._group.name, **values}))

    async def _join(self) -> list[TopicPartition] | None:
        """What is given to this member; None if it must try again."""
        joined = await self._ask(
            JOIN_GROUP,
            session_timeout=_SESSION_MS,
            rebalance_timeout=_REBALANCE_MS,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff"}],
            reason=None,
        )
        if joined.error_code == ErrorCode.member_id_required:
            self._id = joined.member_id
            return None
        if joined.error_code:
            return self._start_over(joined.error_code)
        self._id, self._generation = joined.member_id, joined.generation_id
        assignments = self._divide(joined) if joined.leader == joined.member_id else []
        synced = await self._ask(
            SYNC_GROUP,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        if synced.error_code:
            return self._start_over(synced.error_code)
        mine = [self._group.places[index] for index in bytes(synced.assignment)]
        self._group.owns(self._generation, self._id, mine)
        return mine

    def _divide(self, joined: Any) -> list[dict[str, Any]]:
        """Numbers of partitions, a byte each: what it says is the members' own affair."""
        members = sorted(member.member_id for member in joined.members)
        numbers = range(len(self._group.places))
        return [
            {"member_id": member, "assignment": bytes(numbers[i :: len(members)])}
            for i, member in enumerate(members)
        ]

    def _start_over(self, code: int) -> None:
        if code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id):
            self._id = ""
        elif code != ErrorCode.rebalance_in_progress:
            self.world.say(self.name, f"group {self._group.name}: code {code}")

    async def _own(self, mine: list[TopicPartition]) -> None:
        """Go on with the partitions until the group is divided anew."""
        at = await self._committed(mine)
        while not self.is_over:
            answer = await self._ask(
                HEARTBEAT, generation_id=self._generation, member_id=self._id, group_instance_id=None
            )
            if answer.error_code:
                self._start_over(answer.error_code)
                return
            for place in mine:
                at[place] += self.random.randint(0, 3)
            if mine and not await self._commit(at):
                return
            await self.pause(2.0)
            if self.random.random() < 0.03:
                await self._leave()
                return
        await self._leave()

    async def _committed(self, mine: list[TopicPartition]) -> dict[TopicPartition, int]:
        least = dict(self._group.committed)
        items = [(one, one.partition) for one in mine]
        answer = await self._ask(
            OFFSET_FETCH, topics=by_topic(items, "partition_indexes"), require_stable=False
        )
        found = dict.fromkeys(mine, 0)
        for topic in answer.topics:
            for one in topic.partitions:
                place = TopicPartition(topic.name, one.partition_index)
                if one.error_code == _NONE:
                    found[place] = max(0, one.committed_offset)
                    self._group.found(place, found[place], least[place])
        return found

    async def _commit(self, at: dict[TopicPartition, int]) -> bool:
        try:
            answer = await self._ask(
                OFFSET_COMMIT,
                generation_id_or_member_epoch=self._generation,
                member_id=self._id,
                group_instance_id=None,
                topics=by_topic(offset_items(at, ""), "partitions"),
            )
        except AnabranchError:
            return False
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    self._start_over(one.error_code)
                    return False
                place = TopicPartition(topic.name, one.partition_index)
                self._group.acknowledged(place, at[place])
        return True

    async def _leave(self) -> None:
        await self._ask(
            LEAVE_GROUP,
            member_id=self._id,
            members=[{"member_id": self._id, "group_instance_id": None, "reason": None}],
        )
        self._id = ""
        await asyncio.sleep(0)
