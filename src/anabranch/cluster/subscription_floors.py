"""Subscription floors: how far the slowest subscription of each partition has got, for retention.

On several brokers they are not kept where the partition's replicas are.  So all are asked for now and then,
when retention wants to know; everything is held until an answer to what was asked since this broker leads the
partition.  One before may have made subscriptions of which no earlier answer tells.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial

from anabranch.base.errors import AnabranchError
from anabranch.base.seldom import Seldom
from anabranch.cluster.subscription_calls import (
    ANY_EPOCH,
    MOST_NAMES,
    Committed,
    ReadCommitted,
    ReadNames,
    SubscriptionCalls,
)
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.records import OffsetKey
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC

_trouble = Seldom(logging.getLogger(__name__), 60.0)
_LOOK_EVERY_S = 20.0


class Floors:
    def __init__(
        self, calls: SubscriptionCalls, position_of: Callable[[OffsetKey, Committed], int | None]
    ) -> None:
        """`position_of`: the position that a committed offset is, if it is of the topic that is there now."""
        self._calls = calls
        self._position_of = position_of
        self._floors: dict[tuple[str, int], int] = {}
        self._looking: asyncio.Task[None] | None = None
        self._written: dict[tuple[str, int], int] = {}  # since the last look, and between the two before
        self._before: dict[tuple[str, int], int] = {}
        self._looked_s = 0.0
        self._known: dict[
            tuple[str, int], int
        ] = {}  # the epochs in which partitions were led at the last look
        self._asked: dict[tuple[str, int], int] = {}  # of those that were asked for since

    def of(self, topic: str, partition: int, epoch: int | None) -> int | None:
        """The least position of a partition's subscriptions; None if it has none, 0 while it is not known.

        `epoch` is that in which this broker leads it.  None if it does not: what the leader lets go of goes
        here, too, and nothing else.
        """
        if not self._calls.kept.states.shards:
            return None
        if epoch is None:
            return 0
        place = (topic, partition)
        is_known = self._known.get(place) == epoch
        if not is_known:
            self._asked[place] = epoch
        now_s = asyncio.get_running_loop().time()
        if self._looking is None and (not is_known or now_s - self._looked_s > _LOOK_EVERY_S):
            self._looking = asyncio.ensure_future(self._look())
        if not is_known:
            return 0
        tables = (self._floors, self._written, self._before)
        return min([table[place] for table in tables if place in table], default=None)

    def topics_deleted(self, gone: Container[str]) -> None:
        for table in (self._known, self._asked):
            for place in [place for place in table if place[0] in gone]:
                del table[place]

    def wrote(self, name: OffsetKey, offset: int) -> None:
        """A position is about to be there that may be less than those that are known."""
        place = (name.topic, name.partition)
        self._written[place] = min(self._written.get(place, offset), offset)

    async def _look(self) -> None:
        before = self._before
        self._before, self._written = self._written, {}
        asked, self._asked = self._asked, {}
        try:
            shards = self._calls.kept.states.shards
            lists = await self._calls.ask_each(
                SUBSCRIPTION_TOPIC, shards, lambda mine, _: ReadNames(set(mine))
            )
            names = [name for found in lists for name in found]
            floors: dict[tuple[str, int], int] = {}
            for name, found in (await committed_of(self._calls, names, ANY_EPOCH)).items():
                position = self._position_of(name, found)
                if position is not None:
                    place = (name.topic, name.partition)
                    floors[place] = min(floors.get(place, position), position)
            self._floors = floors
            self._known |= asked
            self._looked_s = asyncio.get_running_loop().time()
        except AnabranchError as error:
            self._asked = asked | self._asked
            for place, offset in before.items():
                self._before[place] = min(self._before.get(place, offset), offset)
            _trouble.warning("retention keeps what it kept, subscriptions cannot be asked for: %s", error)
        finally:
            self._looking = None


async def committed_of(
    calls: SubscriptionCalls, names: Sequence[OffsetKey], epoch: int
) -> dict[OffsetKey, Committed]:
    """Where groups are, each with a partition; `epoch` is the owner's, if it is one partition."""
    shards: dict[int, list[OffsetKey]] = {}
    for name in names:
        shards.setdefault(calls.kept.groups.shard_of(name.group_id), []).append(name)

    async def ask(index: int, together: list[OffsetKey]) -> Iterable[tuple[OffsetKey, Committed]]:
        found: list[Committed] = []
        for i in range(0, len(together), MOST_NAMES):
            some = together[i : i + MOST_NAMES]
            found += await calls.ask(OFFSETS_TOPIC, index, partial(_read_committed, some, epoch))
        return zip(together, found, strict=True)

    answers = await asyncio.gather(*[ask(index, together) for index, together in shards.items()])
    return {name: found for answer in answers for name, found in answer}


def _read_committed(names: list[OffsetKey], epoch: int, _attempt: int) -> ReadCommitted:
    return ReadCommitted(names, epoch)
