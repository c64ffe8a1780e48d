"""Parts of a group shard: one file per protocol, over groups that all of them share.

    GroupShard ─┬─ offsets    CommittedOffsets  what groups have committed         keys 0, 1
                ├─ classic    ClassicGroups     Join, Sync, Heartbeat, Leave       key 2
                ├─ consumer   ConsumerGroups    KIP-848                            keys 3-8, 16
                └─ share      ShareGroups       KIP-932                            keys 10-15

A part owns the records whose key begins with one of its versions (the int16 that every key of
`__consumer_offsets` begins with) and the timers whose key is a tuple that begins with its name.  Groups
are in one dictionary by id, whatever their protocol: a group has one, and may change it.
"""

from collections.abc import Callable, Hashable, Mapping
from random import Random
from typing import NamedTuple, Protocol
from uuid import UUID

from anabranch.groups.config import GroupConfig
from anabranch.groups.effects import Effects
from anabranch.groups.group_options import config_for_group
from anabranch.groups.records import CommittedOffset, OffsetKey


class Part(Protocol):
    """One protocol's share of a shard."""

    name: str
    key_versions: frozenset[int]

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of one of `key_versions`."""

    def loaded(self, effects: Effects, now_ms: int) -> None:
        """Every record has been replayed: set the timers that should be running."""

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        """A timer whose key begins with `name` has come."""


class TopicFacts(NamedTuple):
    """What groups need to know of a topic."""

    name: str
    topic_id: UUID
    partition_racks: tuple[frozenset[str], ...]
    """For each partition the racks that hold a replica, as far as they are known."""

    @property
    def num_partitions(self) -> int:
        return len(self.partition_racks)


class Topics(Protocol):
    """The cluster's topics as groups see them; passed in, since the cluster stands above."""

    def by_name(self, name: str) -> TopicFacts | None: ...

    def by_id(self, topic_id: UUID) -> TopicFacts | None: ...

    def names(self) -> frozenset[str]:
        """Every topic; the same object for as long as there are no others."""


class Subscriptions(Protocol):
    """Pulsar's durable subscriptions, each the group of its name; passed in for the same reason."""

    def has(self, name: OffsetKey, metadata: str) -> bool:
        """Whether the offset is a subscription's position, which nothing but its end removes.

        True also while that is not known yet; where another broker knows, what was committed last tells, by
        its `metadata`.
        """

    def is_attached(self, group_id: str, topic: str) -> bool:
        """Whether consumers are, so that only the subscription moves its offsets."""

    def is_led_in(self, topic: str, partition: int, epoch: int) -> bool:
        """Whether a partition has the leader that was elected in `epoch`, as far as is known here."""

    def is_open(self, group_id: str) -> bool:
        """Whether somebody wants to know whenever the group's offsets are moved, and not only back."""

    def moved(self, name: OffsetKey, committed: CommittedOffset) -> None:
        """A Kafka client has moved it."""


class NoSubscriptions:
    """Of a broker that only Kafka's clients use."""

    def has(self, name: OffsetKey, metadata: str) -> bool:
        return False

    def is_attached(self, group_id: str, topic: str) -> bool:
        return False

    def is_led_in(self, topic: str, partition: int, epoch: int) -> bool:
        return False

    def is_open(self, group_id: str) -> bool:
        return False

    def moved(self, name: OffsetKey, committed: CommittedOffset) -> None:
        """Nobody's."""


NO_SUBSCRIPTIONS = NoSubscriptions()


class Surroundings(NamedTuple):
    """What a part may look at besides its own state."""

    config: Callable[[], GroupConfig]
    topics: Topics
    chance: Random
    overrides: Callable[[str], Mapping[str, str] | None] = lambda group_id: None
    """What a group is told by itself."""
    subscriptions: Subscriptions = NO_SUBSCRIPTIONS

    def config_of(self, group_id: str) -> GroupConfig:
        """The options as they hold for one group."""
        config, told = self.config(), self.overrides(group_id)
        return config_for_group(config, told) if told else config
