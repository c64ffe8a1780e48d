"""The group coordinator: which shard a group belongs to, and the way to it.

    answer = await groups.submit("g", lambda shard, token, now_ms: shard.classic.join(...))

A group lives in the partition of `__consumer_offsets` that Kafka's hash of its id names, so that
Kafka's tools and clients agree on where it is.  The topic is made when it is first needed.

Raised to handlers, who answer with its code: CoordinatorNotAvailable while there is no topic,
CoordinatorLoading while the shard is being read, NotCoordinator if another broker leads the partition.
"""

from collections.abc import Awaitable, Callable

from anabranch.base.clock import Clock
from anabranch.base.errors import CoordinatorNotAvailable
from anabranch.groups.effects import Answer
from anabranch.groups.parts import Surroundings
from anabranch.groups.runtime import Decide, Runtime
from anabranch.groups.shard import GroupShard
from anabranch.partition.partition import Partition

OFFSETS_TOPIC = "__consumer_offsets"


class GroupCoordinator:
    def __init__(
        self,
        clock: Clock,
        around: Surroundings,
        partition: Callable[[int], Partition],
        create_topic: Callable[[], Awaitable[None]],
    ) -> None:
        """`partition` gives a partition of the topic that this broker leads; `create_topic` makes the topic."""
        self._topics = around.topics
        self._create_topic = create_topic
        self._runtime: Runtime[GroupShard] = Runtime(clock, lambda index: GroupShard(around), partition)

    async def ensure_topic(self) -> int:
        """The number of partitions of the topic, which is made if it is not there."""
        if self._topics.by_name(OFFSETS_TOPIC) is None:
            await self._create_topic()
        return self._partitions()

    def shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partitions())

    async def submit(self, group_id: str, decide: Decide[GroupShard]) -> Answer:
        """The answer to what `decide` decides over the shard of `group_id`."""
        return await self._runtime.submit(self.shard_of(group_id), decide)

    def read(self, group_id: str) -> GroupShard:
        """The shard of `group_id`, to look at."""
        return self._runtime.read(self.shard_of(group_id))

    def close(self) -> None:
        self._runtime.close()

    def _partitions(self) -> int:
        topic = self._topics.by_name(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable(f"the topic {OFFSETS_TOPIC} has not been made yet")
        return topic.num_partitions


def partition_for(key: str, partitions: int) -> int:
    """The partition of an internal topic that `key` belongs to: Java's hash of the string, without its sign."""
    return (java_hash(key) & 0x7FFFFFFF) % partitions


def java_hash(text: str) -> int:
    """`String.hashCode`, which goes over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value
