"""The node's parts: everything of a broker but its ports and what goes on by itself.

    data folder ─> metadata store ─> cluster image ─> partitions ─> coordinators ─> topics
                                          └─ dynamic configuration

Parts get what they need as arguments, taken from the configuration and the world.  Tests build these very
parts, on a world of their own.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.base.disk import Disk
from anabranch.base.executors import Executors, Pools
from anabranch.base.ids import BrokerId, TopicName, id_text
from anabranch.base.loop_lag import LoopLag
from anabranch.base.world import OpenStore, World
from anabranch.client.aio import AsyncClient
from anabranch.client.destinations import Address
from anabranch.client.settings import Settings
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.coordinators import group_coordinator, share_coordinator, transaction_coordinator
from anabranch.cluster.disk_refusals import DiskRefusals
from anabranch.cluster.elector import Rules
from anabranch.cluster.host_reconciler import HostReconciler
from anabranch.cluster.identity import random_id
from anabranch.cluster.isr_requests import ControllerIsr
from anabranch.cluster.pending_acks import AckEnds, StoredPendingAcks
from anabranch.cluster.positions import SubscribedGroups, leader_epoch_of, positions, subscription_states
from anabranch.cluster.pulsar_topics import PulsarTopics
from anabranch.cluster.share_partitions import share_partitions
from anabranch.cluster.subscription_calls import KeptSubscriptions, SubscriptionCalls
from anabranch.cluster.suspicion import Peers
from anabranch.cluster.topic_owners import check_owner
from anabranch.cluster.topic_schemas import TopicSchemas
from anabranch.cluster.topics import TopicDefaults
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.other_brokers import FOR_CLIENTS, OtherBrokers
from anabranch.groups.participation import Participation
from anabranch.groups.share_states import SHARE_STATE_TOPIC
from anabranch.groups.subscription_states import SUBSCRIPTION_TOPIC
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.log.cleaner import run_worker
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import PartitionImage, appearance
from anabranch.meta.moved import METADATA, check_not_moved
from anabranch.meta.store import MetadataStore
from anabranch.partition.fetcher import Followers
from anabranch.partition.fetcher import Surroundings as Followed
from anabranch.partition.folders import partition_folder
from anabranch.partition.host import PartitionHost
from anabranch.partition.in_sync import Lag
from anabranch.partition.isr_changes import IsrChanges
from anabranch.partition.meta_properties import MetaProperties, check_broker, claim_data_folder
from anabranch.partition.served_topic import ServedTopic
from anabranch.partition.upkeep import Upkeep
from anabranch.schemas.subject_store import SubjectStore
from anabranch.server.config import BrokerConfig, DynamicConfig
from anabranch.server.config_sections import NodeConfig
from anabranch.server.fetch_sessions import FetchSessions
from anabranch.server.handover import Handovers
from anabranch.server.producer_ids import ProducerIds
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.services import Services
from anabranch.server.share_sessions import ShareSessions
from anabranch.server.telemetry import Telemetry
from anabranch.topics.compacting import Compactor
from anabranch.topics.registry import Topics
from anabranch.topics.surroundings import Surroundings
from anabranch.topics.transactions import Transactions

_THREADS = 4
"""For what takes a request a while and needs no pool of its own."""

_FLUSH_S = 2.0
"""How long a broker that stops waits for positions to be kept before others lead."""


NodeWorld = World[MetadataStore]


async def embedded_store(data: Path, disk: Disk, executors: Executors) -> MetadataStore:
    check_not_moved(disk, data)
    return EmbeddedStore.open(data / METADATA, disk, executors)


def store_of(node: NodeConfig) -> OpenStore[MetadataStore]:
    """ZooKeeper if the node is told of one, else its own."""
    hosts = node.zookeeper_connect
    if hosts is None:
        return embedded_store

    async def zookeeper_store(data: Path, disk: Disk, executors: Executors) -> MetadataStore:
        from anabranch.meta.zookeeper import ZooKeeperStore  # its library takes long to load

        return await ZooKeeperStore.connect(hosts, node.session_timeout_ms, executors=executors)

    return zookeeper_store


class NodeParts:
    def __init__(self, config: BrokerConfig, world: NodeWorld) -> None:
        self.config = config
        self.clock = world.clock
        self._world = world
        self._random = world.random
        self._pools = Pools(world.executors)
        self.threads = self._pools("aside", _THREADS)
        self.dynamic = DynamicConfig(config)
        self.loop_lag = LoopLag(world.clock)
        shares = world.descriptors(config.node.max_open_files, config.sockets.listen_backlog_size)
        self.most_connections = shares.connections
        self.disk = world.disk(shares.files, self._pools)
        self._worker = partial(run_worker, world.processes)

    async def open(self) -> None:
        """Build everything, and recover the logs.  Nothing is left behind if it raises."""
        async with AsyncExitStack() as undo:
            undo.callback(self._pools.close)
            await self._open_storage(undo)
            self.services = self._coordinate()
            self.pulsar = self._open_topics(self.services)
            self._undo = undo.pop_all()

    async def _open_storage(self, undo: AsyncExitStack) -> None:
        """The metadata store, the image of the cluster, and the partitions that it names."""
        config, dynamic = self.config, self.dynamic
        data = config.node.data_dir
        check_broker(self.disk, data, config.node.node_id)
        self.store = await self._world.open_store(data, self.disk, self._pools)
        undo.push_async_callback(self.store.close)
        self.cluster = cluster = await Cluster.open(
            self.store,
            config.node.node_id,
            self.clock,
            self._random,
            TopicDefaults(config.topics.num_partitions, config.topics.default_replication_factor),
            lambda overrides: _check_topic(dynamic, overrides),
            config.pulsar.cluster_name,
            Rules(
                lambda: dynamic.current.control,
                lambda overrides: dynamic.stored_log_config(overrides).unclean_leader_election_enable,
                lambda: _internal_factors(config),
            ),
        )
        self.peers = Peers(
            config.node.node_id, self.store, self._world.network, lambda: cluster.image, self._random
        )
        cluster.subscribe(self.peers.image_changed)
        self.refusals = DiskRefusals(
            config.node.node_id, self.disk, data, cluster.registration, lambda: cluster.image
        )
        directory = id_text(random_id(self._random))
        mine = MetaProperties(cluster.image.cluster_id, config.node.node_id, directory)
        self.folder = claim_data_folder(self.disk, data, mine)
        syncing = dynamic.current.upkeep.recovery_threads_per_data_dir
        self.host = PartitionHost(self.disk, self.clock, data, config.node.node_id, self._pools, syncing)
        self.host.translations.fits_bytes = lambda: dynamic.current.policies.max_message_bytes
        undo.callback(self.host.abandon)
        self._replicate()
        reconciler = HostReconciler(self.host, dynamic.stored_log_config, lambda: dynamic.current.policies)
        dynamic.on_change(lambda old, new: reconciler.defaults_changed(cluster.image))
        # The reconciler first: what the configuration then changes for all topics includes the newest.
        for subscriber in (reconciler.image_changed, dynamic.image_changed):
            subscriber(appearance(cluster.image))
            cluster.subscribe(subscriber)
        self.upkeep = Upkeep(self.host, self.disk, self.clock, dynamic, self._pools, self._worker)
        undo.callback(self.upkeep.abandon)
        for _ in self.host.recovering():
            await asyncio.sleep(0)  # the session lives on, and a stop waits for no more than one log

    def _replicate(self) -> None:
        """What follows, and what looks after those that follow."""
        config, cluster, host = self.config, self.cluster, self.host
        told, me = config.replication, config.node.node_id
        self.followers = Followers(
            Followed(
                me,
                host,
                self.disk,
                self._world.network,
                self.clock,
                self._random,
                told,
                lambda broker: _address_of(cluster, broker),
                lambda: _epoch_of(cluster, me),
                lambda following, cut: self.upkeep.truncated(following.replica, cut),
            )
        )
        host.replication.lag = lambda: Lag(told.lag_time_max_ms / 1000, told.lag_max_messages)
        host.replication.epoch_of = lambda broker: _steady_epoch_of(cluster, broker)
        host.replication.certainty.depend_on(self.store.session)
        cluster.when_read_anew(host.replication.certainty.image_read)
        host.replication.leader_throttle.rate = lambda: self.dynamic.current.replication.leader_throttled_rate
        host.replication.follower_throttle.rate = lambda: (
            self.dynamic.current.replication.follower_throttled_rate
        )
        settings = Settings("", f"broker-{me}-isr")
        self._controller_client = AsyncClient(settings, self._world.network, self.clock, self._random)
        ask = ControllerIsr(cluster, me, self._controller_client, lambda broker: _address_of(cluster, broker))
        self.isr_changes = IsrChanges(host, me, ask, self._random)

        def has_state(topic: ServedTopic, state: PartitionImage) -> None:
            self.followers.follow(topic, state)
            self.isr_changes.follow(topic, state)

        host.on_state = has_state

    def _coordinate(self) -> Services:
        """The coordinators, and all that request handlers reach."""
        cluster, host, clock, dynamic = self.cluster, self.host, self.clock, self.dynamic
        chance = self._random
        self.states = subscription_states(cluster, host, clock, lambda: dynamic.current.groups)
        self._subscribed = SubscribedGroups(self.states, partial(leader_epoch_of, cluster))
        self.groups = group_coordinator(
            cluster, host, clock, chance, lambda: dynamic.current.groups, self._subscribed
        )
        kept = KeptSubscriptions(self.groups, self.states, partial(leader_epoch_of, cluster))
        others = None if self.config.node.zookeeper_connect is None else self._other_brokers("subscriptions")
        self.subscriptions = SubscriptionCalls(kept, others, chance)
        self.share_groups = share_coordinator(
            cluster,
            host,
            clock,
            lambda: dynamic.current.share_states,
            self.groups,
            self._other_brokers("share-states"),
            chance,
        )
        self.share_partitions = share_partitions(
            cluster, host, clock, lambda: dynamic.current.groups, self.share_groups.anywhere
        )
        self.share_sessions = ShareSessions(
            lambda: dynamic.current.groups.share_max_share_sessions, self._share_session_gone
        )
        self.producer_ids = ProducerIds(cluster)
        self._coordinate_transactions()
        self.brokers = self._other_brokers(FOR_CLIENTS)
        elected = {
            OFFSETS_TOPIC: self.groups.elected,
            STATE_TOPIC: self.transactions.elected,
            SUBSCRIPTION_TOPIC: self.states.elected,
            SHARE_STATE_TOPIC: self.share_groups.states.elected,
        }
        host.on_elected = lambda topic, index: elected.get(topic.name.kafka, _nobody)(index)
        return Services(
            clock=clock,
            config=dynamic,
            cluster=cluster,
            doubted=self.peers.doubted,
            partitions=host,
            producer_ids=self.producer_ids,
            telemetry=Telemetry(cluster, dynamic, clock, chance, self.threads),
            fetch_sessions=FetchSessions(self.config.fetch.max_session_slots, clock, chance),
            groups=self.groups,
            share_groups=self.share_groups,
            share_partitions=self.share_partitions,
            share_sessions=self.share_sessions,
            transactions=self.transactions,
            participation=self.participation,
            brokers=self.brokers,
            handovers=Handovers(lambda *place: self._subscribed.ahead(*place), host.partition, clock),
            subscriptions=None if self.subscriptions.are_all_here else self.subscriptions.kept,
            threads=self.threads,
        )

    def _coordinate_transactions(self) -> None:
        self.transactions = transaction_coordinator(
            self.cluster,
            self.host,
            self.clock,
            lambda: self.dynamic.current.transactions,
            self.producer_ids.next,
            self.groups,
            self._other_brokers("markers"),
            self._random,
        )
        self.participation = Participation(
            self.transactions, self._other_brokers("transactions"), self._random
        )

    def _share_session_gone(self, group: str, member: str) -> None:
        self.share_partitions.release(group, member)
        if not self.share_sessions.has_group(group):
            self.share_partitions.rest(group)

    def _other_brokers(self, asked_about: str) -> OtherBrokers:
        """The way to them, on connections of its own: who waits for one answer holds up those behind it."""
        me, cluster = self.config.node.node_id, self.cluster
        settings = Settings("", f"broker-{me}-{asked_about}")
        client = AsyncClient(settings, self._world.network, self.clock, self._random)
        return OtherBrokers(me, lambda: cluster.image, lambda broker: _address_of(cluster, broker), client)

    def _open_topics(self, services: Services) -> PulsarServices:
        """What Pulsar clients attach to, on the same logs and coordinators."""
        cluster, dynamic, clock, host = self.cluster, self.dynamic, self.clock, self.host
        told, node = self.config.pulsar, self.config.node
        catalog = PulsarTopics(cluster, lambda: dynamic.current.policies, told.cluster_name)
        self.positions, stored = positions(cluster, host, self.subscriptions, self._subscribed)
        self.upkeep.hold_back(stored.hold)
        self.txns = Transactions(
            services.transactions,
            self.producer_ids.next,
            clock,
            lambda: dynamic.current.pulsar.max_transactions,
            self.states,
        )
        self.topics = Topics(
            Surroundings(
                clock,
                self.disk,
                catalog,
                self.positions,
                stored,
                host.partition,
                lambda topic, index: partition_folder(host.data, topic, index),
                lambda: dynamic.current.policy_upkeep,
                told.cluster_name,
                pending_acks=StoredPendingAcks(
                    self.states, stored, self.txns, is_alone=self.subscriptions.are_all_here
                ),
                compactor=Compactor(lambda: dynamic.current.cleaner, self._worker, self.threads),
                check_owner=lambda name: check_owner(cluster.image, node.node_id, name),
            )
        )
        services.transactions.markers.subscriptions = AckEnds(self.states, self.topics, lambda: cluster.image)
        cluster.subscribe(self.topics.image_changed)
        dynamic.on_change(lambda old, new: self.topics.rules_changed())
        subjects = SubjectStore(self.store, clock, self._pools)
        self.schemas = TopicSchemas(subjects, cluster, catalog, lambda: dynamic.current.policies)
        return PulsarServices(
            clock,
            dynamic,
            cluster,
            catalog,
            self.topics,
            self.schemas,
            self.txns,
            node.node_id,
            is_alone=node.zookeeper_connect is None,
        )

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on beside the requests."""
        return [
            self.loop_lag.run(),
            self.cluster.run(),
            self.peers.run(),
            self.refusals.run(),
            self.upkeep.run(),
            self.followers.run(),
            self.isr_changes.run(),
            self.groups.load(),
            self.share_groups.states.run(),
            self.states.load(),
            self.topics.run(),
            self.schemas.run(),
            self.transactions.run(),
            self.txns.load(),
        ]

    async def abandon(self) -> None:
        """The start has failed: leave things as they were found."""
        await self._undo.aclose()

    async def hand_over(self) -> None:
        """The broker will stop: let others lead what they can, and be the controller."""
        self.peers.is_leaving = True
        await asyncio.wait((asyncio.ensure_future(self.positions.flush()),), timeout=_FLUSH_S)
        control = self.dynamic.current.control
        wait_s = 1 + control.controlled_shutdown_max_retries if control.controlled_shutdown else 0
        await self.cluster.depart(wait_s)

    async def quiesce(self) -> None:
        """No requests come any more: finish what they began, while `work` still goes on."""
        self.subscriptions.hurry()
        await self.share_partitions.stop()
        await self.topics.stop()
        await self.host.translations.stop()
        await self.positions.stop()

    async def close(self) -> None:
        """Make all of it durable and let it go, once `work` has ended."""
        self._controller_client.close()
        self.txns.close()
        self.brokers.close()
        self.participation.close()
        self.transactions.close()
        self.share_groups.close()
        self.groups.close()
        self.states.close()
        self.subscriptions.close()
        await self.producer_ids.close()
        self.host.close(clean=await self.upkeep.stop())
        await self.store.close()
        self._pools.close()


def _nobody(index: int) -> None:
    """Most topics are no coordinator's."""


def _address_of(cluster: Cluster, broker: BrokerId) -> Address | None:
    found = cluster.image.brokers.get(broker)
    return None if found is None else found.for_brokers


def _epoch_of(cluster: Cluster, broker: BrokerId) -> int | None:
    found = cluster.image.brokers.get(broker)
    return None if found is None else found.epoch


def _steady_epoch_of(cluster: Cluster, broker: BrokerId) -> int | None:
    """None for one that nothing is expected of, too: it stops, or its disk takes nothing."""
    found = cluster.image.brokers.get(broker)
    return None if found is None or found.gives_way else found.epoch


def _internal_factors(config: BrokerConfig) -> dict[TopicName, int]:
    """The replicas that each internal topic is to have."""
    factors = {
        OFFSETS_TOPIC: config.groups.topic_replication_factor,
        SUBSCRIPTION_TOPIC: config.groups.topic_replication_factor,
        STATE_TOPIC: config.transactions.topic_replication_factor,
        SHARE_STATE_TOPIC: config.share_states.topic_replication_factor,
    }
    return {TopicName.from_kafka(name): factor for name, factor in factors.items()}


def _check_topic(dynamic: DynamicConfig, overrides: Any) -> None:
    dynamic.log_config(overrides)
