"""What topics see of the rest of the broker: narrow views, given by whoever puts them together.

The cluster stands above, so what it knows about a topic and keeps for it comes through a `Catalog`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.ids import TopicName
from anabranch.meta.policy_upkeep import PolicyUpkeep
from anabranch.meta.rules import Rules
from anabranch.partition.partition import Partition
from anabranch.subscriptions.durable import SnapshotStore
from anabranch.subscriptions.pending_acks import PendingAckStore
from anabranch.subscriptions.positions import Positions
from anabranch.topics.compacting import Compactor


class Facts(Protocol):
    """What the cluster has written down about a topic."""

    @property
    def name(self) -> TopicName: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def is_partitioned(self) -> bool: ...

    @property
    def created_ms(self) -> int: ...

    @property
    def epochs(self) -> Mapping[int, int]:
        """By partition: how often a producer had it alone."""

    @property
    def terminated(self) -> Mapping[int, int]:
        """By partition: the offset at which it ended, for good."""

    @property
    def properties(self) -> Mapping[str, str]: ...


class Catalog(Protocol):
    def locate(self, name: TopicName) -> tuple[Facts, int] | None:
        """The topic and partition that Pulsar clients mean by `name`; None if there is none."""

    def rules(self, name: TopicName) -> Rules: ...

    async def store_epoch(self, name: TopicName, index: int, epoch: int) -> None:
        """Make a partition's topic epoch last."""

    async def store_terminated(self, name: TopicName, index: int, end: int) -> None:
        """A partition takes no more messages, for good: it ends at offset `end`."""

    async def delete(self, name: TopicName) -> None:
        """Delete a topic, with all of its partitions."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    clock: Clock
    disk: Disk
    catalog: Catalog
    positions: Positions
    snapshots: SnapshotStore
    partition: Callable[[TopicName, int], Partition]  # one that is served here; others raise
    partition_folder: Callable[[TopicName, int], Path]
    upkeep: Callable[[], PolicyUpkeep]
    cluster_name: str
    compactor: Compactor
    pending_acks: PendingAckStore
