"""Pulsar services: the node's parts that command handlers may reach, built by `node_parts.py` alone."""

from dataclasses import dataclass, field

from anabranch.base.clock import Clock
from anabranch.base.ids import BrokerId
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.pulsar_topics import PulsarTopics
from anabranch.cluster.topic_schemas import TopicSchemas
from anabranch.server.config import DynamicConfig
from anabranch.topics.registry import Topics
from anabranch.topics.transactions import Transactions


@dataclass(slots=True)
class PulsarTraffic:
    """What Pulsar clients sent and were given since the broker started."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0


@dataclass(slots=True)
class PulsarServices:
    clock: Clock
    config: DynamicConfig
    cluster: Cluster
    catalog: PulsarTopics
    topics: Topics
    schemas: TopicSchemas
    transactions: Transactions
    broker_id: BrokerId
    is_alone: bool
    """It is the only broker of its cluster, and there will be no other."""
    service_url: str = ""
    """Where clients find this broker, `pulsar://HOST:PORT`; known once it listens."""
    traffic: PulsarTraffic = field(default_factory=PulsarTraffic)
