"""The composition root: one broker, from its configuration and its world to its open ports.

    world ─> parts (`node_parts.py`) ─> listeners ─> what goes on beside the requests

Everything is built here and there, and nowhere else.  `stop` takes it down in the opposite order: no new
work, answers under way, then flush, checkpoint, and the mark of a clean stop.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

from anabranch import __version__
from anabranch.admin.listener import HttpListener
from anabranch.admin.measured import Connections, Measured
from anabranch.admin.services import AdminServices
from anabranch.base.ids import id_text
from anabranch.base.world import real_world
from anabranch.client.destinations import Address
from anabranch.cluster.identity import random_id
from anabranch.meta.image import BrokerImage, appearance
from anabranch.node_parts import NodeParts, NodeWorld, embedded_store, store_of
from anabranch.partition.folders import DataFolderLock
from anabranch.partition.instances import begin_instance
from anabranch.server.config import BrokerConfig
from anabranch.server.config_pulsar import NO_PORT
from anabranch.server.config_sections import Endpoint
from anabranch.server.kafka.registry import load_apis
from anabranch.server.listener import KafkaListener
from anabranch.server.pulsar.listener import PulsarListener
from anabranch.server.pulsar.registry import load_commands
from anabranch.server.reception import Reception
from anabranch.tables.supervisor import Supervisor, maintainer_command

log = logging.getLogger(__name__)

_GRACE_S = 5.0


def this_machine(config: BrokerConfig | None = None) -> NodeWorld:
    """The world of a node in production that is told this; of one that is alone if it is not given."""
    return real_world(embedded_store if config is None else store_of(config.node))


class Node:
    def __init__(self, config: BrokerConfig, world: NodeWorld) -> None:
        self._config = config
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[KafkaListener] = []
        self._internal: Address | None = None
        self._pulsar: PulsarListener | None = None
        self._http: HttpListener | None = None
        self._reached: dict[str, Address] = {}
        self._is_stopping = False
        self.failed: asyncio.Future[None] | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients are told to connect, by protocol."""
        return {protocol: str(address) for protocol, address in self._reached.items()}

    async def start(self) -> None:
        """Bring the broker up.  It serves when this returns; nothing is left behind if it raises."""
        told = self._config.node
        log.info("broker %d: starting, data folder %s", told.node_id, told.data_dir.absolute())
        self.failed = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as undo:
            self.parts = parts = NodeParts(self._config, self._world)
            self._lock = DataFolderLock(parts.disk, self._config.node.data_dir)
            undo.callback(self._lock.release)
            await parts.open()
            undo.push_async_callback(parts.abandon)
            reception = Reception(parts.dynamic, parts.most_connections)
            await self._listen(reception, undo)
            await self._listen_for_pulsar(reception, undo)
            await self._listen_for_http(undo)
            await self._register()
            sweeps = [
                listener.sweep() for listener in (*self._listeners, self._pulsar) if listener is not None
            ]
            for work in (*sweeps, *parts.work()):
                self._run(work)
            self._maintain_tables()
            undo.pop_all()
        served = ", ".join(f"{protocol} at {address}" for protocol, address in self.addresses.items())
        log.info("broker %d: started, serves %s", told.node_id, served)

    def _maintain_tables(self) -> None:
        told, cluster = self._config.tables, self.parts.cluster
        if told.maintain:
            roots = (self._config.tables_root, *told.roots)
            command = maintainer_command(self.addresses["kafka"], self.addresses.get("http"), roots, told)
            output = self._config.node.data_dir / "tables.log"
            supervisor = Supervisor(self._world.processes, command, output)
            supervisor.image_changed(appearance(cluster.image))
            cluster.subscribe(supervisor.image_changed)
            self._run(supervisor.run())

    async def _listen(self, reception: Reception, undo: AsyncExitStack) -> None:
        """Open the port for Kafka's clients, and that for brokers if they have one."""
        sockets = self._config.sockets
        self._reached["kafka"] = await self._open(sockets.bind, sockets.advertised, reception, undo)
        if sockets.internal_bind is not None:
            told = sockets.internal_advertised
            self._internal = await self._open(sockets.internal_bind, told, reception, undo)

    async def _open(
        self, bind: Endpoint, told: Endpoint | None, reception: Reception, undo: AsyncExitStack
    ) -> Address:
        """Listen for Kafka's protocol; where others are told to connect."""
        listener = KafkaListener(load_apis(), self.parts.services, reception)
        host, port = await listener.open(self._world.network, *bind)
        self._listeners.append(listener)
        undo.push_async_callback(listener.close, 0)
        return Address(host, port) if told is None else Address(told.host, told.port or port)

    async def _register(self) -> None:
        """Tell the cluster where this broker is found, now that all its ports are open."""
        node, parts = self._config.node, self.parts
        instance = id_text(random_id(self._world.random))
        former = begin_instance(parts.disk, node.data_dir, instance)
        told = BrokerImage(
            node.node_id,
            *self._reached["kafka"],
            rack=node.rack,
            internal=self._internal,
            pulsar=self._reached.get("pulsar"),
            http=self._reached.get("http"),
            host_id=node.host_id,
            version=__version__,
            instance=instance,
            directory=parts.folder.directory_id,
        )
        await parts.cluster.register_broker(told, former)

    async def _listen_for_pulsar(self, reception: Reception, undo: AsyncExitStack) -> None:
        told = self._config.pulsar
        if told.broker_service_port == NO_PORT:
            return
        offered = self.parts.pulsar
        listener = self._pulsar = PulsarListener(load_commands(), offered, reception)
        bind = told.bind_address or self._config.sockets.bind.host
        _, port = await listener.open(self._world.network, bind, told.broker_service_port)
        undo.push_async_callback(listener.close, 0)
        self._reached["pulsar"] = self._reached_at(port)
        offered.service_url = f"pulsar://{self._reached['pulsar']}"

    async def _listen_for_http(self, undo: AsyncExitStack) -> None:
        told, parts = self._config.pulsar, self.parts
        if told.web_service_port == NO_PORT:
            return
        offered = AdminServices(parts.pulsar, parts.host, parts.upkeep, parts.threads, self.measured())
        listener = self._http = HttpListener(offered)
        bind = told.bind_address or self._config.sockets.bind.host
        _, port = await listener.open(bind, told.web_service_port)
        undo.push_async_callback(listener.close)
        self._reached["http"] = self._reached_at(port)
        offered.web_url = f"http://{self._reached['http']}"

    def measured(self) -> Measured:
        parts = self.parts
        return Measured(
            broker=self._config.node.node_id,
            clock=parts.clock,
            requests=parts.services.requests,
            host=parts.host,
            followers=parts.followers,
            cluster=parts.cluster,
            session=parts.store.session,
            pulsar=parts.pulsar,
            loop_lag=parts.loop_lag,
            connections=self._connections,
        )

    def _connections(self) -> Iterator[Connections]:
        for name, listener in zip(("kafka", "internal"), self._listeners, strict=False):
            yield Connections(name, listener.connections, listener.accepted)
        if self._pulsar is not None:
            yield Connections("pulsar", self._pulsar.connections, self._pulsar.accepted)

    def _reached_at(self, port: int) -> Address:
        """Where Pulsar clients are told to find a port."""
        return Address(self._config.pulsar.advertised_address or self._reached["kafka"].host, port)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Supervise a task for as long as the node lives: if it dies, so does the node."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if self._is_stopping or self.failed is None or self.failed.done():
            return
        if task.cancelled():  # by something that it waited for, or part of it would be missed by nobody
            self.failed.set_exception(RuntimeError(f"{task.get_coro()} was cancelled"))
        elif (error := task.exception()) is not None:
            self.failed.set_exception(error)

    async def stop(self) -> None:
        """Bring the broker down cleanly."""
        self._is_stopping = True
        await self.parts.hand_over()
        log.info("broker %d: stopping, takes no new requests", self._config.node.node_id)
        self.parts.groups.let_go()  # a rebalance may take minutes, and nobody comes to end it
        if self._http is not None:
            await self._http.close(_GRACE_S)
        if self._pulsar is not None:
            await self._pulsar.close(_GRACE_S)
        await asyncio.gather(*(listener.close(_GRACE_S) for listener in self._listeners))
        await self.parts.cluster.deregister()
        await self.parts.quiesce()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.parts.close()
        self._lock.release()
        log.info("broker %d: stopped", self._config.node.node_id)
