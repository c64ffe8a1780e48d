"""Kafka services: the node's parts that request handlers may reach, built by `node_parts.py` alone."""

from concurrent.futures import Executor
from dataclasses import dataclass, field

from anabranch.base.clock import Clock
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.doubted_brokers import DoubtedBrokers
from anabranch.cluster.subscription_calls import KeptSubscriptions
from anabranch.groups.coordinator import GroupCoordinator
from anabranch.groups.other_brokers import OtherBrokers
from anabranch.groups.participation import Participation
from anabranch.groups.share_coordinator import ShareCoordinator
from anabranch.groups.transaction_coordinator import TransactionCoordinator
from anabranch.partition.host import PartitionHost
from anabranch.server.config import DynamicConfig
from anabranch.server.fetch_sessions import FetchSessions
from anabranch.server.handover import Handovers
from anabranch.server.kafka.written_topics import WrittenTopics
from anabranch.server.producer_ids import ProducerIds
from anabranch.server.request_times import Requests
from anabranch.server.share_sessions import ShareSessions
from anabranch.server.telemetry import Telemetry
from anabranch.subscriptions.share_partitions import SharePartitions


@dataclass(frozen=True, slots=True)
class Services:
    clock: Clock
    config: DynamicConfig
    cluster: Cluster
    doubted: DoubtedBrokers
    partitions: PartitionHost
    producer_ids: ProducerIds
    telemetry: Telemetry
    fetch_sessions: FetchSessions
    groups: GroupCoordinator
    share_groups: ShareCoordinator
    share_partitions: SharePartitions
    share_sessions: ShareSessions
    transactions: TransactionCoordinator
    participation: Participation
    brokers: OtherBrokers
    handovers: Handovers
    subscriptions: KeptSubscriptions | None
    """Which other brokers may ask about; None if there are none."""
    threads: Executor
    """For what takes a request a while and needs no pool of its own."""
    written_topics: WrittenTopics = field(default_factory=WrittenTopics)
    requests: Requests = field(default_factory=Requests)
