"""Scrape measurements: the parts that keep counters, and one pass over the partitions for the rest.

The pass gives other work of the loop a turn every `_A_TURN` partitions.  So it blocks the loop no longer with
ten thousand partitions than with one, and its numbers may be some milliseconds apart.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.base.clock import Clock
from anabranch.base.ids import BrokerId
from anabranch.base.loop_lag import LoopLag
from anabranch.cluster.cluster import Cluster
from anabranch.meta.image import NO_BROKER, PartitionImage
from anabranch.meta.session import Session
from anabranch.partition.fetcher import Followers
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.partition.served_topic import ServedTopic
from anabranch.partition.traffic import Counts
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.request_times import Requests

_A_TURN = 1000


class Connections(NamedTuple):
    listener: str
    open: int
    accepted: int
    """Since the start."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The parts of a node that know something worth a metric."""

    broker: BrokerId
    clock: Clock
    requests: Requests
    host: PartitionHost
    followers: Followers
    cluster: Cluster
    session: Session
    pulsar: PulsarServices
    loop_lag: LoopLag
    connections: Callable[[], Iterable[Connections]]
    """Of the listeners that there are."""


@dataclass(slots=True)
class Standing:
    """How the partitions are."""

    replicas: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    partitions: int = 0
    """Of the cluster."""
    topics: int = 0
    leaderless: int = 0
    not_preferred: int = 0
    """Led by another than their first replica, or by nobody."""
    counts: Counts = field(default_factory=Counts)
    by_topic: dict[str, Counts] = field(default_factory=dict)
    """Of topics with traffic that this broker leads partitions of."""
    counted: list[tuple[Partition, Counts]] = field(default_factory=list)
    """What was added to `counts` for each leader."""
    lags: dict[BrokerId, int] = field(default_factory=dict)
    """How many messages a follower lacks of a partition led here, where it lacks most."""

    def look_at(self, topic: ServedTopic, state: PartitionImage, me: BrokerId) -> None:
        self.partitions += 1
        self.leaderless += state.leader == NO_BROKER
        self.not_preferred += state.leader != state.replicas[0]
        if me not in state.replicas:
            return
        self.replicas += 1
        if state.leader != me:
            return
        self.leaders += 1
        leader = topic.partitions[state.index] if state.index < len(topic.partitions) else None
        if leader is not None:
            state = leader.state  # which it may know before the image does
            self._count(topic.name.kafka, leader)
        in_sync, replicas = len(state.isr), len(state.replicas)
        least = min(topic.config.min_insync_replicas, replicas)
        self.under_replicated += in_sync < replicas
        self.under_min_isr += in_sync < least
        self.at_min_isr += in_sync == least
        self.reassigning += bool(state.adding or state.removing)

    def _count(self, topic: str, leader: Partition) -> None:
        if leader.led is not None:
            for broker, lag in leader.led.lags():
                self.lags[broker] = max(self.lags.get(broker, 0), lag)
        counts = leader.counts
        if counts.bytes_in or counts.bytes_out:
            self.by_topic.setdefault(topic, Counts()).add(counts)
        self.counts.add(counts)
        self.counted.append((leader, counts))

    def add_past(self, past: Counts) -> None:
        """`past` has all of those that have ended by now: what the pass found of them counts no more."""
        for leader, counts in self.counted:
            if leader.retired:
                self.counts.subtract(counts)
        self.counts.add(past)

    def busiest(self, most: int) -> list[tuple[str, Counts]]:
        """The topics with most bytes in and out, by name."""
        by_bytes = sorted(self.by_topic.items(), key=lambda one: -one[1].bytes_in - one[1].bytes_out)
        return sorted(by_bytes[:most], key=lambda one: one[0])


async def standing(measured: Measured) -> Standing:
    found, left, me = Standing(), _A_TURN, measured.broker
    for topic in measured.host.topics():
        found.topics += 1
        for state in topic.image.partitions:
            found.look_at(topic, state, me)
            left -= 1
            if not left:
                left = _A_TURN
                await asyncio.sleep(0)
    found.add_past(
        measured.host.traffic.past
    )  # not earlier: leaders end during the pass, and sums never fall
    for _, _, fetcher in measured.followers.fetchers():
        found.counts.replication_bytes_in += fetcher.fetched_bytes
    return found
