"""The composition root: one broker, from its configuration to its open port.

    data folder ─> metadata store ─> cluster image ─> partitions ─> coordinators ─> listener
                                          └─ dynamic configuration

Everything is built here and nowhere else; parts get what they need as arguments.  `stop` takes it
down in the opposite order: no new work, answers under way, then flush, checkpoint, and the mark of a
clean stop.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from random import Random
from typing import Any

from anabranch.admin.listener import HttpListener
from anabranch.admin.services import AdminServices
from anabranch.base.clock import Clock, SystemClock
from anabranch.base.descriptors import claim_descriptors
from anabranch.base.disk import DirectDisk
from anabranch.base.ids import id_text
from anabranch.base.network import Network, TcpNetwork
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.coordinators import group_coordinator, share_coordinator, transaction_coordinator
from anabranch.cluster.host_reconciler import HostReconciler
from anabranch.cluster.identity import random_id
from anabranch.cluster.pending_acks import AckEnds, StoredPendingAcks
from anabranch.cluster.positions import SubscribedGroups, positions, subscription_states
from anabranch.cluster.pulsar_topics import PulsarTopics
from anabranch.cluster.share_partitions import share_partitions
from anabranch.cluster.topic_schemas import TopicSchemas
from anabranch.cluster.topics import TopicDefaults
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import BrokerImage, appearance
from anabranch.partition.folders import DataFolderLock, partition_folder
from anabranch.partition.host import PartitionHost
from anabranch.partition.meta_properties import MetaProperties, check_broker, claim_data_folder
from anabranch.partition.upkeep import Upkeep
from anabranch.schemas.subject_store import SubjectStore
from anabranch.server.config import BrokerConfig, DynamicConfig
from anabranch.server.config_pulsar import NO_PORT
from anabranch.server.fetch_sessions import FetchSessions
from anabranch.server.handover import Handovers
from anabranch.server.kafka.registry import load_apis
from anabranch.server.listener import KafkaListener
from anabranch.server.producer_ids import ProducerIds
from anabranch.server.pulsar.listener import PulsarListener
from anabranch.server.pulsar.registry import load_commands
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.reception import Reception
from anabranch.server.services import Services
from anabranch.server.share_sessions import ShareSessions
from anabranch.server.telemetry import Telemetry
from anabranch.tables.supervisor import Supervisor, maintainer_command
from anabranch.topics.compacting import Compactor
from anabranch.topics.registry import Topics
from anabranch.topics.surroundings import Surroundings
from anabranch.topics.transactions import Transactions

log = logging.getLogger(__name__)

_GRACE_S = 5.0


class Node:
    def __init__(self, config: BrokerConfig, network: Network | None = None) -> None:
        self._config = config
        self._network = network or TcpNetwork()
        self._tasks: list[asyncio.Task[None]] = []
        self._pulsar: PulsarListener | None = None
        self._http: HttpListener | None = None
        self.addresses: dict[str, str] = {}
        self.failed: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Bring the broker up.  It serves when this returns; nothing is left behind if it raises."""
        config = self._config
        data = config.node.data_dir
        self.failed = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as undo:
            self._lock = DataFolderLock(data)
            undo.callback(self._lock.release)
            await self._build(config, undo)
            undo.pop_all()

    async def _build(self, config: BrokerConfig, undo: AsyncExitStack) -> None:
        clock, chance = SystemClock(), Random()
        shares = claim_descriptors(config.node.max_open_files, config.sockets.listen_backlog_size)
        disk = DirectDisk(shares.files)
        data = config.node.data_dir
        dynamic = DynamicConfig(config)
        check_broker(disk, data, config.node.node_id)
        self._store = EmbeddedStore.open(data / "metadata", disk)
        undo.push_async_callback(self._store.close)
        cluster = await Cluster.open(
            self._store,
            config.node.node_id,
            clock,
            chance,
            TopicDefaults(config.topics.num_partitions, config.topics.default_replication_factor),
            lambda overrides: _check_topic(dynamic, overrides),
            config.pulsar.cluster_name,
        )
        claim_data_folder(
            disk,
            data,
            MetaProperties(cluster.image.cluster_id, config.node.node_id, id_text(random_id(chance))),
        )
        self._host = PartitionHost(disk, clock, data, config.node.node_id)
        self._host.translations.fits_bytes = lambda: dynamic.current.policies.max_message_bytes
        undo.callback(self._host.abandon)
        reconciler = HostReconciler(self._host, dynamic.stored_log_config, lambda: dynamic.current.policies)
        dynamic.on_change(lambda old, new: reconciler.defaults_changed(cluster.image))
        # The reconciler first: what the configuration then changes for all topics includes the newest.
        for subscriber in (reconciler.image_changed, dynamic.image_changed):
            subscriber(appearance(cluster.image))
            cluster.subscribe(subscriber)
        self._upkeep = Upkeep(self._host, disk, clock, dynamic)
        undo.callback(self._upkeep.abandon)
        self._host.recover()
        services = self._coordinate(cluster, dynamic, clock, chance)
        pulsar = self._open_topics(services, disk)
        reception = Reception(dynamic, shares.connections)
        await self._listen(services, reception, undo)
        await self._listen_for_pulsar(pulsar, reception, undo)
        await self._listen_for_http(pulsar, undo)
        self._run_all(cluster)
        self._maintain_tables(cluster)

    def _coordinate(self, cluster: Cluster, dynamic: DynamicConfig, clock: Clock, chance: Random) -> Services:
        """The coordinators, and all that request handlers reach."""
        self._states = subscription_states(cluster, self._host, clock, lambda: dynamic.current.groups)
        self._subscribed = SubscribedGroups(self._states)
        self._groups = group_coordinator(
            cluster, self._host, clock, chance, lambda: dynamic.current.groups, self._subscribed
        )
        self._share_groups = share_coordinator(
            cluster, self._host, clock, lambda: dynamic.current.share_states, self._groups
        )
        self._share_partitions = share_partitions(
            cluster, self._host, clock, lambda: dynamic.current.groups, self._share_groups.states
        )
        self._producer_ids = ProducerIds(cluster)
        self._transactions = transaction_coordinator(
            cluster,
            self._host,
            clock,
            lambda: dynamic.current.transactions,
            self._producer_ids.next,
            self._groups,
        )
        return Services(
            clock=clock,
            config=dynamic,
            cluster=cluster,
            partitions=self._host,
            producer_ids=self._producer_ids,
            telemetry=Telemetry(cluster, dynamic, clock, chance),
            fetch_sessions=FetchSessions(self._config.fetch.max_session_slots, clock, chance),
            groups=self._groups,
            share_groups=self._share_groups,
            share_partitions=self._share_partitions,
            share_sessions=ShareSessions(
                lambda: dynamic.current.groups.share_max_share_sessions, self._share_partitions.release
            ),
            transactions=self._transactions,
            handovers=Handovers(lambda *place: self._subscribed.ahead(*place), self._host.partition, clock),
        )

    def _run_all(self, cluster: Cluster) -> None:
        """What goes on beside the requests."""
        self._run(cluster.run())
        self._run(self._listener.sweep())
        self._run(self._upkeep.run())
        self._run(self._groups.load())
        self._run(self._share_groups.states.run())
        self._run(self._states.load())
        self._run(self._topics.run())
        self._run(self._schemas.run())
        self._run(self._transactions.run())
        self._run(self._txns.load())

    def _maintain_tables(self, cluster: Cluster) -> None:
        told = self._config.tables
        if told.maintain:
            roots = (self._config.tables_root, *told.roots)
            command = maintainer_command(self.addresses["kafka"], self.addresses.get("http"), roots, told)
            supervisor = Supervisor(command, self._config.node.data_dir / "tables.log")
            supervisor.image_changed(appearance(cluster.image))
            cluster.subscribe(supervisor.image_changed)
            self._run(supervisor.run())

    async def _listen(self, services: Services, reception: Reception, undo: AsyncExitStack) -> None:
        """Open the port for Kafka's clients and tell the cluster about it."""
        node, sockets = self._config.node, self._config.sockets
        self._listener = KafkaListener(load_apis(), services, reception)
        host, port = await self._listener.open(self._network, sockets.bind.host, sockets.bind.port)
        undo.push_async_callback(self._listener.close, 0)
        told = sockets.advertised
        if told is not None:
            host, port = told.host, told.port or port
        await services.cluster.register_broker(BrokerImage(node.node_id, host, port, node.rack))
        self.addresses = {"kafka": f"{host}:{port}"}

    def _open_topics(self, services: Services, disk: DirectDisk) -> PulsarServices:
        """What Pulsar clients attach to, on the same logs and coordinators."""
        cluster, dynamic, clock, host = services.cluster, services.config, services.clock, self._host
        told = self._config.pulsar
        catalog = PulsarTopics(cluster, lambda: dynamic.current.policies, told.cluster_name)
        self._positions, stored = positions(cluster, host, services.groups, self._states, self._subscribed)
        self._upkeep.hold_back(stored.hold)
        self._txns = Transactions(
            services.transactions,
            self._producer_ids.next,
            clock,
            lambda: dynamic.current.pulsar.max_transactions,
            self._states,
        )
        self._topics = Topics(
            Surroundings(
                clock,
                disk,
                catalog,
                self._positions,
                stored,
                host.partition,
                lambda topic, index: partition_folder(host.data, topic, index),
                lambda: dynamic.current.policy_upkeep,
                told.cluster_name,
                pending_acks=StoredPendingAcks(self._states, self._txns),
                compactor=Compactor(lambda: dynamic.current.cleaner),
            )
        )

        services.transactions.markers.subscriptions = AckEnds(
            self._states, self._topics, lambda: cluster.image
        )
        cluster.subscribe(self._topics.image_changed)
        dynamic.on_change(lambda old, new: self._topics.rules_changed())
        self._schemas = TopicSchemas(
            SubjectStore(self._store, clock), cluster, catalog, lambda: dynamic.current.policies
        )
        return PulsarServices(clock, dynamic, cluster, catalog, self._topics, self._schemas, self._txns)

    async def _listen_for_pulsar(
        self, offered: PulsarServices, reception: Reception, undo: AsyncExitStack
    ) -> None:
        told = self._config.pulsar
        if told.broker_service_port == NO_PORT:
            return
        listener = self._pulsar = PulsarListener(load_commands(), offered, reception)
        bind = told.bind_address or self._config.sockets.bind.host
        _, port = await listener.open(self._network, bind, told.broker_service_port)
        undo.push_async_callback(listener.close, 0)
        self.addresses["pulsar"] = self._reached_at(port)
        offered.service_url = f"pulsar://{self.addresses['pulsar']}"
        self._run(listener.sweep())

    async def _listen_for_http(self, pulsar: PulsarServices, undo: AsyncExitStack) -> None:
        told = self._config.pulsar
        if told.web_service_port == NO_PORT:
            return
        offered = AdminServices(pulsar, self._host, self._upkeep)
        listener = self._http = HttpListener(offered)
        bind = told.bind_address or self._config.sockets.bind.host
        _, port = await listener.open(bind, told.web_service_port)
        undo.push_async_callback(listener.close)
        self.addresses["http"] = self._reached_at(port)
        offered.web_url = f"http://{self.addresses['http']}"

    def _reached_at(self, port: int) -> str:
        """Where Pulsar clients are told to find a port."""
        host = self._config.pulsar.advertised_address or self.addresses["kafka"].rpartition(":")[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Supervise a task for as long as the node lives: if it dies, so does the node."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or task.exception() is None or self.failed is None or self.failed.done():
            return
        self.failed.set_exception(task.exception())  # type: ignore[arg-type]

    async def stop(self) -> None:
        """Bring the broker down cleanly."""
        self._groups.let_go()  # a rebalance may take minutes, and nobody comes to end it
        if self._http is not None:
            await self._http.close(_GRACE_S)
        if self._pulsar is not None:
            await self._pulsar.close(_GRACE_S)
        await self._listener.close(_GRACE_S)
        await self._share_partitions.stop()
        await self._topics.stop()
        await self._host.translations.stop()
        await self._positions.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._txns.close()
        self._transactions.close()
        self._share_groups.close()
        self._groups.close()
        self._states.close()
        await self._producer_ids.close()
        self._host.close(clean=await self._upkeep.stop())
        await self._store.close()
        self._lock.release()


def _check_topic(dynamic: DynamicConfig, overrides: Any) -> None:
    dynamic.log_config(overrides)
