"""Worlds for nodes under test, and the parts of a node without its ports.

    async with node_parts(folder, num_partitions="3") as parts:      # all but the ports, and nothing goes on
        await parts.cluster.create_topic(...)

    wire = Wire()                                                    # tests/support/memory_network.py
    async with (
        a_node(folder / "a", a_world(network=wire.host("a"), store=store), node_id="1") as a,
        a_node(folder / "b", a_world(network=wire.host("b"), store=store), node_id="2") as b,
    ): ...

Randomness comes from a seed; disk, threads and the clock are real if the test brings none.
"""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from anabranch.base.clock import Clock
from anabranch.base.disk import DirectDisk, Disk
from anabranch.base.executors import Executors
from anabranch.base.network import Network
from anabranch.meta.embedded import EmbeddedStore
from anabranch.meta.store import MetadataStore
from anabranch.node import Node, this_machine
from anabranch.node_parts import NodeParts, NodeWorld
from anabranch.server.config import BrokerConfig
from anabranch.server.config_file import load
from tests.support.logs import SetClock


def a_world(
    *,
    clock: Clock | None = None,
    seed: int = 7,
    disk: Disk | None = None,
    network: Network | None = None,
    store: EmbeddedStore | None = None,
    executors: Executors | None = None,
) -> NodeWorld:
    """This machine, but for what is given; the node has a session of its own on `store`."""
    world = replace(this_machine(), random=Random(seed))
    if clock is not None:
        world = replace(world, clock=clock)
    if disk is not None:
        world = replace(world, disk=lambda most_open, executors: disk)
    if executors is not None:
        world = replace(world, executors=executors)
    if network is not None:
        world = replace(world, network=network)
    if store is not None:

        async def new_session(*_: object) -> MetadataStore:
            return store.new_session()

        world = replace(world, open_store=new_session)
    return world


class Inline(Executor):
    """Runs work in the loop, at once: no thread comes into it."""

    def __init__(self, name: str = "", threads: int = 1) -> None:
        self.name = name

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  # whoever waits is told, as by a thread
            done.set_exception(error)
        return done


@asynccontextmanager
async def node_parts(data: Path, world: NodeWorld | None = None, **settings: str) -> AsyncIterator[NodeParts]:
    """The parts of a broker on `data`, which may have been another's; a setting's dots are underscores."""
    DirectDisk().make_dirs(data)
    parts = NodeParts(_configured(data, settings), world or a_world(clock=SetClock()))
    await parts.open()
    await parts.states.load()  # of what goes on beside requests, the one thing that they would notice
    try:
        yield parts
    finally:
        await parts.quiesce()
        await parts.close()


@asynccontextmanager
async def a_node(data: Path, world: NodeWorld, **settings: str) -> AsyncIterator[Node]:
    """A broker with its ports on the network of its world, HTTP apart; a setting's dots are underscores."""
    node = Node(_configured(data, settings, webServicePort="-1"), world)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def _configured(data: Path, settings: dict[str, str], **more: str) -> BrokerConfig:
    static = {name.replace("_", "."): value for name, value in settings.items()}
    return load(None, {}, {"log.dirs": str(data), **more, **static})
