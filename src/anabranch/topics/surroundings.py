"""Surroundings of topics: what they see of the rest of the broker, given by whoever puts it together.

The cluster stands above: what it finds and keeps for a topic comes through a `Catalog`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anabranch.base.clock import Clock
from anabranch.base.disk import Disk
from anabranch.base.ids import TopicName
from anabranch.meta.image import Located
from anabranch.meta.policy_upkeep import PolicyUpkeep
from anabranch.meta.rules import Rules
from anabranch.partition.partition import Partition
from anabranch.subscriptions.durable import SnapshotStore
from anabranch.subscriptions.pending_acks import PendingAckStore
from anabranch.subscriptions.positions import Positions
from anabranch.topics.compacting import Compactor


class Catalog(Protocol):
    def locate(self, name: TopicName) -> Located | None:
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
    check_owner: Callable[[TopicName], None]  # of a topic that is not stored; NotOwner if that is another
