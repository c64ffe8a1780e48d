"""Two nodes in one process, on one store and one wire: what leaders are moved between.

    async with two_nodes(folder) as nodes:
        await nodes.create(ORDERS, partitions=3)         # a replica on each node
        await nodes.elect(ORDERS, 0, BrokerId(2))
        client = nodes.client("c")                       # from a third host

Followers ask again soon after what fails and wait shortly, so that a test has many elections in a short time.
"""

from collections.abc import AsyncIterator
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
BOTH = (BrokerId(1), BrokerId(2))
_SETTINGS = {"replica_fetch_wait_max_ms": "50", "replica_fetch_backoff_ms": "20", "brokerServicePort": "-1"}


class TwoNodes:
    def __init__(self, wire: Wire, nodes: dict[BrokerId, Node]) -> None:
        self.wire = wire
        self.nodes = nodes

    async def create(self, name: TopicName, partitions: int, **config: str) -> None:
        """A topic with replicas on both; its leaders take turns."""
        both = list(BOTH)
        assignments = [(index, both[:: 1 - 2 * (index % 2)]) for index in range(partitions)]
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
        """Both have the same, and know that it is safe."""

        def same() -> bool:
            one, other = self.replicas(name, index)
            return (
                one.log.log_end == other.log.log_end == one.high_watermark == other.high_watermark
                and one.log.epochs.latest == other.log.epochs.latest
            )

        await until(same, f"{name.kafka}-{index} is not the same on both")

    def client(self, host: str) -> AsyncClient:
        settings = Settings(",".join(f"{one}:9092" for one in HOSTS), "test", timeout_s=30.0)
        return AsyncClient(settings, self.wire.host(host), SystemClock(), Random(host))


@asynccontextmanager
async def two_nodes(folder: Path, **settings: str) -> AsyncIterator[TwoNodes]:
    """Brokers 1 and 2 on the hosts a and b, with what `folder` has of an earlier run."""
    store = EmbeddedStore.open(folder / "metadata", DirectDisk(4))
    wire = Wire()
    async with AsyncExitStack() as running:
        running.push_async_callback(store.close)
        nodes = {}
        for id, host in zip(BOTH, HOSTS, strict=True):
            world = a_world(network=wire.host(host), store=store, seed=id)  # or ids would collide
            options = {"node_id": str(id), "listeners": f"PLAINTEXT://{host}:9092", **_SETTINGS, **settings}
            nodes[id] = await running.enter_async_context(a_node(folder / host, world, **options))
        both = TwoNodes(wire, nodes)
        await until(
            lambda: all(set(node.parts.cluster.image.brokers) == set(BOTH) for node in nodes.values())
        )
        yield both
