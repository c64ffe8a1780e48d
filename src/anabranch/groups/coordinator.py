"""The group coordinator: which shard a group belongs to, and the way to it.

    answer = await groups.submit("g", lambda shard, token, now_ms: shard.classic.join(...))
    shard = await groups.look("g")

A group lives in the partition of `__consumer_offsets` that Kafka's hash of its id names, so that
Kafka's tools and clients agree on where it is.  The topic is made when it is first needed.

Transactions reach it by partition, as they reach any other: `end_transaction` instead of a marker
written past it, so that what was pending counts at once.

Raised to handlers, who answer with the code: CoordinatorNotAvailable while there is no topic,
CoordinatorLoading while the shard is being read, CoordinatorUnreadable if that has failed, NotCoordinator
if another broker leads the partition.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from uuid import UUID

from anabranch.base.clock import Clock
from anabranch.base.errors import NotCoordinator
from anabranch.groups.effects import Answer, Producer
from anabranch.groups.internal_topic import InternalTopic
from anabranch.groups.parts import Surroundings
from anabranch.groups.runtime import Begun, Decide, Runtime, Seen
from anabranch.groups.shard import GroupShard
from anabranch.partition.led_partitions import LedPartitions

OFFSETS_TOPIC = "__consumer_offsets"


class GroupCoordinator:
    def __init__(
        self,
        clock: Clock,
        around: Surroundings,
        partitions: LedPartitions,
        create_topic: Callable[[], Awaitable[object]],
    ) -> None:
        self._runtime: Runtime[GroupShard] = Runtime(
            clock,
            lambda index: GroupShard(around),
            partitions,
            lambda: around.config().commit_timeout_ms,
        )
        self._topic = InternalTopic(OFFSETS_TOPIC, around.topics, self._runtime, partitions, create_topic)

    # --- where a group is

    async def ensure_topic(self) -> int:
        """The number of partitions of the topic, which is made if it is not there."""
        await self._topic.ensure()
        return self._topic.num_partitions

    def shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._topic.num_partitions)

    # --- to a group

    async def submit(self, group_id: str, decide: Decide[GroupShard], begun: Begun | None = None) -> Answer:
        """The answer to what `decide` decides over the shard of `group_id`; `begun` as the runtime's."""
        await self.ensure_topic()
        return await self._runtime.submit(self.shard_of(group_id), decide, begun)

    def submit_now(self, group_id: str, decide: Decide[GroupShard]) -> "asyncio.Future[Answer]":
        """As `submit`, if topic and shard are there (CoordinatorNotAvailable or -Loading if not)."""
        return self._runtime.submit_now(self.shard_of(group_id), decide)

    async def look(self, group_id: str) -> GroupShard:
        """The shard of `group_id`, to look at."""
        return await self._runtime.look(self.shard_of(group_id))

    def known(self, group_id: str) -> GroupShard:
        """The shard of `group_id`, to look at now.  CoordinatorLoading if it is not loaded."""
        return self._runtime.read(self.shard_of(group_id))

    async def ask(self, group_id: str, read: Callable[[GroupShard], Seen]) -> Seen:
        """What `read` sees of the shard of `group_id`, once that is safe: what a client may be told."""
        return await self._runtime.ask(self.shard_of(group_id), read)

    async def ask_all(self, read: Callable[[GroupShard], Seen]) -> list[Seen]:
        """The same, of every shard here that has groups."""
        found = []
        for index in self._topic.in_use():
            with suppress(NotCoordinator):  # it has been another broker's since we began
                found.append(await self._runtime.ask(index, read))
        return found

    def is_safe(self, group_id: str) -> bool:
        """Whether all that `known` shows is."""
        return self._runtime.is_safe(self.shard_of(group_id))

    def end_transaction(
        self,
        partition: int,
        producer: Producer,
        coordinator_epoch: int,
        *,
        commit: bool,
        strict: bool = False,
    ) -> "asyncio.Future[None] | None":
        """A transaction that touched `partition` of the topic is over.

        What is still to be waited for, if anything.
        """
        return self._runtime.end_transaction(
            partition, producer, coordinator_epoch, commit=commit, strict=strict
        )

    # --- as the node lives

    async def load(self) -> None:
        """Read the shards that have something to read, so that nobody has to wait for them later."""
        await self._topic.load_all("groups")

    def elected(self, index: int) -> None:
        """This broker leads partition `index` of the topic from now on."""
        self._topic.elected(index, "groups")

    def topics_deleted(self, topics: Mapping[str, UUID]) -> None:
        """Forget what was committed for topics that are no more, and that share groups had them."""
        gone = {name: topic_id for name, topic_id in topics.items() if name != OFFSETS_TOPIC}
        topic_ids = frozenset(gone.values())
        if gone:
            self._topic.forget_topics(
                "offsets",
                lambda shard, now_ms: shard.offsets.forget_topics(gone),
                lambda shard, now_ms: shard.share.forget_topics(topic_ids, now_ms),
            )

    def let_go(self) -> None:
        """The node is about to stop: whoever waits for its group is told to look for another coordinator."""
        self._runtime.let_go()

    def close(self) -> None:
        self._topic.close()


@lru_cache(512)
def partition_for(key: str, partitions: int) -> int:
    """The partition of an internal topic that `key` belongs to: the absolute value of Java's hash of it.

    The least hash has none that Java can hold; Kafka takes 0 for it."""
    unsigned = java_hash(key)
    absolute = min(unsigned, (1 << 32) - unsigned)
    return absolute % partitions if absolute < 1 << 31 else 0


def java_hash(text: str) -> int:
    """`String.hashCode`, which goes over UTF-16 units; its 32 bits, unsigned."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value
