"""Two nodes in one process, or a few more, on one store and one wire: what leaders are moved between.

    async with two_nodes(folder) as nodes:
        await nodes.create(ORDERS, partitions=3)         # a replica on each node
        await nodes.elect(ORDERS, 0, BrokerId(2))
        client = nodes.client("x")                       # from a host of its own

Followers ask again soon after what fails and wait shortly, so that a test has many elections in a short time.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.aio import AsyncClient
from anabranch.client.settings import Settings
from anabranch.cluster.topics import NewTopic
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.image import PartitionImage
from anabranch.node import Node
from anabranch.partition.replica import Replica
from tests.support.memory_network import Wire
from tests.support.waiting import until
from tests.support.worlds import a_node, a_world

HOSTS = ("a", "b")
THREE = ("a", "b", "c")
BOTH = (BrokerId(1), BrokerId(2))
_SETTINGS = {"replica_fetch_wait_max_ms": "50", "replica_fetch_backoff_ms": "20", "brokerServicePort": "-1"}


class TwoNodes:
    def __init__(self, wire: Wire, nodes: dict[BrokerId, Node]) -> None:
        self.wire = wire
        self.nodes = nodes

    async def create(self, name: TopicName, partitions: int, **config: str) -> None:
        """A topic with replicas on all nodes; its leaders take turns."""
        ids = list(self.nodes)
        turns = [index % len(ids) for index in range(partitions)]
        assignments = [(index, ids[turn:] + ids[:turn]) for index, turn in enumerate(turns)]
        of_the_topic = {option.replace("_", "."): value for option, value in config.items()}
        await self.nodes[BOTH[0]].parts.cluster.create_topic(
            NewTopic(name, assignments=assignments, config=of_the_topic)
        )
        await until(lambda: all(name in node.parts.cluster.image.topics for node in self.nodes.values()))

    async def elect(self, name: TopicName, index: int, leader: BrokerId) -> None:
        """Returns when it is written down, which is before the nodes know."""
        (controller,) = [
            node.parts.cluster.controller
            for node in self.nodes.values()
            if node.parts.cluster.controller.epoch is not None
        ]
        await controller.elect_leader(name, index, leader, "a test moves leaders")

    def state(self, name: TopicName, index: int) -> PartitionImage:
        """As the first node knows it."""
        return self.nodes[BOTH[0]].parts.cluster.image.topics[name].partitions[index]

    def replicas(self, name: TopicName, index: int) -> list[Replica]:
        hosts = [node.parts.host for node in self.nodes.values()]
        return [host.replica_of(host.topic(name.kafka), index) for host in hosts]

    async def settled(self, name: TopicName, index: int) -> None:
        """All have the same, and know that it is safe."""

        def same() -> bool:
            found = {
                (one.log.log_end, one.high_watermark, one.log.epochs.latest)
                for one in self.replicas(name, index)
            }
            ((end, safe, _), *others) = found
            return not others and end == safe

        await until(same, f"{name.kafka}-{index} is not the same on all")

    def client(self, host: str) -> AsyncClient:
        hosts = ",".join(f"{chr(ord('a') + number)}:9092" for number in range(len(self.nodes)))
        settings = Settings(hosts, "test", timeout_s=30.0)
        return AsyncClient(settings, self.wire.host(host), SystemClock(), Random(host))


@asynccontextmanager
async def two_nodes(
    folder: Path, hosts: Sequence[str] = HOSTS, each: Mapping[str, Mapping[str, str]] = {}, **settings: str
) -> AsyncIterator[TwoNodes]:
    """Brokers 1, 2 and so on, on the hosts, with what `folder` has of an earlier run.

    `each` are the settings of a host alone.
    """
    ids = [BrokerId(number) for number in range(1, len(hosts) + 1)]
    store = EmbeddedStore.open(folder / "metadata", DirectDisk(4))
    wire = Wire()
    async with AsyncExitStack() as running:
        running.push_async_callback(store.close)
        nodes = {}
        for id, host in zip(ids, hosts, strict=True):
            world = a_world(network=wire.host(host), store=store, seed=id)  # or ids would collide
            options = {"node_id": str(id), "listeners": f"PLAINTEXT://{host}:9092", **_SETTINGS, **settings}
            options |= each.get(host, {})
            nodes[id] = await running.enter_async_context(a_node(folder / host, world, **options))
        both = TwoNodes(wire, nodes)
        await until(lambda: all(set(node.parts.cluster.image.brokers) == set(ids) for node in nodes.values()))
        yield both
