"""The group coordinator: which shard a group belongs to, and the way to it.

    answer = await groups.submit("g", lambda shard, token, now_ms: shard.classic.join(...))
    shard = await groups.look("g")

A group lives in the partition of `__consumer_offsets` that Kafka's hash of its id names, so that
Kafka's tools and clients agree on where it is.  The topic is made when it is first needed.

Transactions reach it by partition, as they reach any other: `end_transaction` instead of a marker
written past it, so that what was pending counts at once.

Raised to handlers, who answer with the code: CoordinatorNotAvailable while there is no topic,
CoordinatorLoading while the shard is being read, NotCoordinator if another broker leads the partition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable, Exists
from anabranch.groups.effects import Answer, Producer
from anabranch.groups.parts import Surroundings
from anabranch.groups.runtime import Decide, Runtime
from anabranch.groups.shard import GroupShard
from anabranch.partition.partition import Partition

OFFSETS_TOPIC = "__consumer_offsets"

log = logging.getLogger(__name__)


class GroupCoordinator:
    def __init__(
        self,
        clock: Clock,
        around: Surroundings,
        partition: Callable[[int], Partition],
        is_stored: Callable[[int], bool],
        create_topic: Callable[[], Awaitable[object]],
    ) -> None:
        """`partition` gives a partition that is served here; `is_stored` says whether it was ever opened."""
        self._topics = around.topics
        self._is_stored = is_stored
        self._create_topic = create_topic
        self._runtime: Runtime[GroupShard] = Runtime(clock, lambda index: GroupShard(around), partition)
        self._forgetting: set[asyncio.Task[None]] = set()

    # --- where a group is

    async def ensure_topic(self) -> int:
        """The number of partitions of the topic, which is made if it is not there."""
        if self._topics.by_name(OFFSETS_TOPIC) is None:
            try:
                await self._create_topic()
            except Exists:
                pass  # somebody else was first
            except AnabranchError as error:
                raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} could not be made: {error}") from error
        return self._partitions()

    def shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partitions())

    def _partitions(self) -> int:
        topic = self._topics.by_name(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable(f"the topic {OFFSETS_TOPIC} has not been made yet")
        return topic.num_partitions

    def _in_use(self) -> list[int]:
        """The partitions that somebody has written to or asked for: those that nobody has stay closed."""
        topic = self._topics.by_name(OFFSETS_TOPIC)
        partitions = range(0 if topic is None else topic.num_partitions)
        return [index for index in partitions if self._runtime.is_served(index) or self._is_stored(index)]

    # --- to a group

    async def submit(self, group_id: str, decide: Decide[GroupShard]) -> Answer:
        """The answer to what `decide` decides over the shard of `group_id`."""
        await self.ensure_topic()
        return await self._runtime.submit(self.shard_of(group_id), decide)

    def submit_now(self, group_id: str, decide: Decide[GroupShard]) -> "asyncio.Future[Answer]":
        """As `submit`, if topic and shard are there (CoordinatorNotAvailable or -Loading if not)."""
        return self._runtime.submit_now(self.shard_of(group_id), decide)

    async def look(self, group_id: str) -> GroupShard:
        """The shard of `group_id`, to look at."""
        return await self._runtime.look(self.shard_of(group_id))

    def known(self, group_id: str) -> GroupShard:
        """The shard of `group_id`, to look at now.  CoordinatorLoading if it is not loaded."""
        return self._runtime.read(self.shard_of(group_id))

    async def look_at_all(self) -> list[GroupShard]:
        """Every shard that has groups."""
        return [await self._runtime.look(index) for index in self._in_use()]

    async def end_transaction(
        self,
        partition: int,
        producer: Producer,
        coordinator_epoch: int,
        *,
        commit: bool,
        strict: bool = False,
    ) -> None:
        """A transaction that touched `partition` of the topic is over."""
        await self._runtime.end_transaction(
            partition, producer, coordinator_epoch, commit=commit, strict=strict
        )

    # --- as the node lives

    async def load(self) -> None:
        """Read the shards that have something to read, so that nobody has to wait for them later."""
        for index in self._in_use():
            try:
                await self._runtime.load(index)
            except AnabranchError as error:
                log.warning("the groups of partition %d cannot be served: %s", index, error)

    def topics_deleted(self, topics: Mapping[str, UUID]) -> None:
        """Forget what was committed for topics that are no more, and that share groups had them."""
        gone = {name: topic_id for name, topic_id in topics.items() if name != OFFSETS_TOPIC}
        if gone and self._in_use():
            task = asyncio.ensure_future(self._forget(gone))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _forget(self, topics: Mapping[str, UUID]) -> None:
        topic_ids = frozenset(topics.values())
        for index in self._in_use():
            try:
                await self._runtime.load(index)
                self._runtime.tell(index, lambda shard, now_ms: shard.offsets.forget_topics(topics))
                self._runtime.tell(index, lambda shard, now_ms: shard.share.forget_topics(topic_ids, now_ms))
            except AnabranchError as error:
                log.warning("offsets of deleted topics stay in partition %d: %s", index, error)

    def let_go(self) -> None:
        """The node is about to stop: whoever waits for its group is told to look for another coordinator."""
        self._runtime.let_go()

    def close(self) -> None:
        for task in self._forgetting:
            task.cancel()
        self._runtime.close()


def partition_for(key: str, partitions: int) -> int:
    """The partition of an internal topic that `key` belongs to: the absolute value of Java's hash of it.

    The least hash has none that Java can hold; Kafka takes 0 for it."""
    unsigned = java_hash(key)
    absolute = min(unsigned, (1 << 32) - unsigned)
    return absolute % partitions if absolute < 1 << 31 else 0


@lru_cache(512)
def java_hash(text: str) -> int:
    """`String.hashCode`, which goes over UTF-16 units; its 32 bits, unsigned."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value
